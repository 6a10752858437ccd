"""Transactions of Kafka's clients at `pylog serve`, under kills."""
