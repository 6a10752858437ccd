"""Locks between processes and threads, and how long they are waited for."""
