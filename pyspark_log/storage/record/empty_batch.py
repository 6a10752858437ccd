"""Fills a gap in a log's offsets with a record batch without records.

Kafka's cleaner leaves such batches too, so its readers skip them. With them every batch of a log begins
where the one before it ends, and any other place is damaged.
"""

from __future__ import annotations

from pyspark_log.storage.record.checksum import crc32c
from pyspark_log.storage.record.layout import ATTRIBUTES_AT, CRC_AT, HEADER, HEADER_SIZE, LENGTH_PREFIX, MAGIC
from pyspark_log.types import NO_TIMESTAMP


def empty_batch(base_offset: int, next_offset: int, leader_epoch: int) -> bytes:
    """Encodes an empty batch of format 2 that takes the offsets [base_offset, next_offset), 2^31 of them at most."""
    batch = bytearray(HEADER.pack(
        base_offset, HEADER_SIZE - LENGTH_PREFIX, leader_epoch, MAGIC, 0, 0, next_offset - 1 - base_offset,
        NO_TIMESTAMP, NO_TIMESTAMP, -1, -1, -1, 0,
    ))  # fmt: skip
    batch[CRC_AT:ATTRIBUTES_AT] = crc32c(batch[ATTRIBUTES_AT:]).to_bytes(4, "big")
    return bytes(batch)
