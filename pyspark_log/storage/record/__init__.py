"""Kafka's record batches, formats 0 to 2: bytes to Arrow and back, without I/O."""

from pyspark_log.storage.record.checksum import crc32c
from pyspark_log.storage.record.decoder import Chunk, decode
from pyspark_log.storage.record.headers import assign_offsets, headers_in, scan
from pyspark_log.storage.record.layout import BatchHeader
from pyspark_log.storage.record.rows import RowBuilder, Rows, to_arrow

__all__ = [
    "BatchHeader",
    "Chunk",
    "RowBuilder",
    "Rows",
    "assign_offsets",
    "crc32c",
    "decode",
    "headers_in",
    "scan",
    "to_arrow",
]
