"""Clients, a publisher and Spark at `pylog serve`, under kills."""
