"""Entries of the publish log as bytes, and what they change."""
