"""The metrics of a store in Prometheus' text format.

It needs prometheus_client (the extra `server`), and so is loaded only where metrics are asked for.
"""

from pyspark_log.metrics.store_metrics import StoreMetrics, store_metrics
from pyspark_log.metrics.text import TEXT, as_text

__all__ = ["TEXT", "StoreMetrics", "as_text", "store_metrics"]
