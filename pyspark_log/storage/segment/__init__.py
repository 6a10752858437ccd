"""One segment: its files and their names, its indexes, reading, appending and scanning its batches."""

from pyspark_log.storage.segment import txn_index
from pyspark_log.storage.segment.batch_stream import (
    READ_SIZE,
    BatchStream,
    batch_at,
    header_at,
    intact_batches,
    is_intact,
)
from pyspark_log.storage.segment.indexes import IndexSchedule, OffsetEntry, OffsetIndex, TimeEntry, TimeIndex
from pyspark_log.storage.segment.scanner import Damaged, Intact, SegmentScanner
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
    list_segments,
    mark_deleted,
    read_headers,
    same_file,
    segment_path,
)
from pyspark_log.storage.segment.txn_index import AbortedTransaction, TxnIndex

__all__ = [
    "CLEANED", "DELETED", "INDEX", "LOG", "NO_OFFSET", "READ_SIZE", "SEGMENT_SUFFIXES", "SNAPSHOT", "SWAP",
    "TIME_INDEX", "TXN_INDEX", "AbortedTransaction", "BatchStream", "Damaged", "IndexSchedule", "Intact", "OffsetEntry",
    "OffsetIndex", "SegmentReader", "SegmentScanner", "SegmentWriter", "TimeEntry", "TimeIndex", "TxnIndex", "batch_at",
    "header_at", "intact_batches", "is_intact", "list_segments", "mark_deleted", "read_headers", "same_file",
    "segment_path", "txn_index",
]  # fmt: skip
