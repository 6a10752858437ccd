"""One segment: its files and their names, its indexes, reading, appending and scanning its batches."""

from pyspark_log.storage.segment import txn_index
from pyspark_log.storage.segment.indexes import OffsetEntry, OffsetIndex, TimeEntry, TimeIndex
from pyspark_log.storage.segment.proof import batch_at, batch_size, first_size
from pyspark_log.storage.segment.scanner import SegmentWalker, Sound, Unsound
from pyspark_log.storage.segment.segment import (
    CLEANED,
    DELETED,
    INDEX,
    LOG,
    NO_OFFSET,
    SEGMENT_SUFFIXES,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    TXN_INDEX,
    SegmentReader,
    SegmentWriter,
    let_go,
    list_segments,
    read_headers,
    same_file,
    segment_path,
)
from pyspark_log.storage.segment.txn_index import AbortedTransaction, TxnIndex

__all__ = [
    "CLEANED",
    "DELETED",
    "INDEX",
    "LOG",
    "NO_OFFSET",
    "SEGMENT_SUFFIXES",
    "SNAPSHOT",
    "SWAP",
    "TIME_INDEX",
    "TXN_INDEX",
    "AbortedTransaction",
    "OffsetEntry",
    "OffsetIndex",
    "SegmentReader",
    "SegmentWalker",
    "SegmentWriter",
    "Sound",
    "TimeEntry",
    "TimeIndex",
    "TxnIndex",
    "Unsound",
    "batch_at",
    "batch_size",
    "first_size",
    "let_go",
    "list_segments",
    "read_headers",
    "same_file",
    "segment_path",
    "txn_index",
]
