"""Compaction: keeps the newest record of each key (Kafka's log cleaner), with its kernels."""

from pyspark_log.storage.compaction.cleaner import (
    BACKOFF,
    LogCleaner,
    Outcome,
    compact,
    compact_if_due,
    compact_partition,
    due,
    uncleanable,
)

__all__ = ["BACKOFF", "LogCleaner", "Outcome", "compact", "compact_if_due", "compact_partition", "due", "uncleanable"]
