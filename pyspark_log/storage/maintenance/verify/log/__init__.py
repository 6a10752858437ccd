"""Verifies one partition: its state, segments, indexes, and what else is in its folder."""
