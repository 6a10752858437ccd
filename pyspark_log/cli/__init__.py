"""The `pylog` command: one file a command, in packages by what the commands are about."""
