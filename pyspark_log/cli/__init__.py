"""The `pylog` command: one file a command."""
