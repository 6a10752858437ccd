"""Idempotent producers of one partition: what they have written, and what they may write next."""
