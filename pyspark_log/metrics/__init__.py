"""Metrics in Prometheus' text format: those of a store, through its seam, and HTTP for them and a server's own.

It needs prometheus_client (the extra `server`), and so is loaded only where metrics are asked for.
"""

from pyspark_log.metrics.http import HttpServer, Page
from pyspark_log.metrics.store_metrics import LiveGroup, StoreMetrics, store_metrics
from pyspark_log.metrics.text import TEXT, as_text

__all__ = ["TEXT", "HttpServer", "LiveGroup", "Page", "StoreMetrics", "as_text", "store_metrics"]
