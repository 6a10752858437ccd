"""Compaction: keeps the newest record of each key (Kafka's log cleaner), with its kernels."""

from pyspark_log.storage.compaction.cleaner import (
    BACKOFF,
    Due,
    LogCleaner,
    Outcome,
    compact,
    compact_if_due,
    compact_partition,
    due,
    uncleanable,
)
from pyspark_log.storage.compaction.partition_cleaner import Cleaned

__all__ = [
    "BACKOFF", "Cleaned", "Due", "LogCleaner", "Outcome", "compact", "compact_if_due", "compact_partition", "due",
    "uncleanable",
]  # fmt: skip
