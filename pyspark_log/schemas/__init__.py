"""Schemas of keys and values: where they come from, and their values as Arrow columns."""
