"""Streaming queries, under kills."""
