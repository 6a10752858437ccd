"""The groups of a server: its coordinator, with the clock, the log and the clients that wait."""

from pyspark_log.server.groups.groups import Groups

__all__ = ["Groups"]
