"""What can be measured of any store, through its seam, and HTTP: for Prometheus (`metrics`), and the page (`ui`).

It needs no package of others.
"""

from pyspark_log.monitoring.http import HttpServer, Page, Request, is_loopback, paths
from pyspark_log.monitoring.snapshot import GroupSnapshot, Snapshot, Snapshots, TopicSnapshot, take_snapshot

__all__ = [
    "GroupSnapshot", "HttpServer", "Page", "Request", "Snapshot", "Snapshots", "TopicSnapshot", "is_loopback", "paths",
    "take_snapshot",
]  # fmt: skip
