"""A store in an object store, as it is served, by any number of servers."""

from pyspark_log.server.served.objects.logs import ObjectLogs

__all__ = ["ObjectLogs"]
