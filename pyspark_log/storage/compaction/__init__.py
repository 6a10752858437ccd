"""Compaction: keeps the newest record of each key (Kafka's log cleaner), with its kernels."""

from pyspark_log.storage.compaction.build_offset_map import Source, fill
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
from pyspark_log.storage.compaction.offset_map import OffsetMap
from pyspark_log.storage.compaction.rewrite import Rewritten, Round, remove_unfinished, rewrite
from pyspark_log.storage.compaction.transactions import CleanedTransactions

__all__ = [
    "BACKOFF", "CleanedTransactions", "LogCleaner", "OffsetMap", "Outcome", "Rewritten", "Round", "Source", "compact",
    "compact_if_due", "compact_partition", "due", "fill", "remove_unfinished", "rewrite", "uncleanable",
]  # fmt: skip
