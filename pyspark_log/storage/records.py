"""Records to bytes and back: the names of the compiled modules that others use.

`record_writer` makes batches of format 2 from Arrow columns, `record_reader` makes columns from batches of any
format, and `batch_headers` finds and changes their headers. `key_offsets`, `batch_filter` and `cleaned_output` are
those of the log cleaner.
"""

from __future__ import annotations

from pyspark_log.storage.batch_filter import BatchFilter
from pyspark_log.storage.batch_headers import headers_in, restamp, scan, stamp
from pyspark_log.storage.cleaned_output import CleanedOutput
from pyspark_log.storage.config import MAX_BATCH_BYTES
from pyspark_log.storage.key_offsets import KeyOffsets
from pyspark_log.storage.record_reader import Chunk, decode
from pyspark_log.storage.record_writer import BatchBuilder, RecordColumns

__all__ = [
    "MAX_BATCH_BYTES", "BatchBuilder", "BatchFilter", "Chunk", "CleanedOutput", "KeyOffsets", "RecordColumns", "decode",
    "headers_in", "restamp", "scan", "stamp",
]
