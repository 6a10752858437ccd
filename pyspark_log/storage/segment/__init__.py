"""One segment: its files and their names, its indexes, reading, appending and scanning its batches."""

from pyspark_log.storage.segment.batch_stream import BatchStream
from pyspark_log.storage.segment.segment import NO_OFFSET, SegmentReader, SegmentWriter, read_headers
from pyspark_log.storage.segment.txn_index import AbortedTransaction

__all__ = ["NO_OFFSET", "AbortedTransaction", "BatchStream", "SegmentReader", "SegmentWriter", "read_headers"]
