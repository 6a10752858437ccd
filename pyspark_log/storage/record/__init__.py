"""Kafka's record batches, formats 0 to 2: bytes to Arrow and back, without I/O.

The face is what works without Arrow, which a server does not load: `decoder`, `builder` and `rows` need it.
"""

from pyspark_log.storage.record.checksum import crc32c
from pyspark_log.storage.record.headers import assign_offsets, headers_in, scan
from pyspark_log.storage.record.layout import BatchHeader
from pyspark_log.storage.record.producer import with_producer

__all__ = ["BatchHeader", "assign_offsets", "crc32c", "headers_in", "scan", "with_producer"]
