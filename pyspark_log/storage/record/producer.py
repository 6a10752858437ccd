"""Gives a batch that was built without a producer the id of one, as a part of its transaction."""

from __future__ import annotations

import struct
from typing import Final

from pyspark_log.storage.record.checksum import crc32c
from pyspark_log.storage.record.layout import ATTRIBUTES_AT, BASE_OFFSET_AT, CRC_AT, PRODUCER_ID_AT, TRANSACTIONAL

_OFFSET, _CRC, _ATTRIBUTES = struct.Struct(">q"), struct.Struct(">I"), struct.Struct(">h")
_PRODUCER: Final = struct.Struct(">qhi")  # id, epoch, base sequence


def with_producer(batch: bytearray, producer_id: int, epoch: int, sequence: int) -> None:
    """Makes a batch of format 2, in place, one of a producer's transaction, with offsets from 0.

    `sequence`: the number of its first record among those of the producer and the partition.
    """
    (attributes,) = _ATTRIBUTES.unpack_from(batch, ATTRIBUTES_AT)
    _OFFSET.pack_into(batch, BASE_OFFSET_AT, 0)
    _ATTRIBUTES.pack_into(batch, ATTRIBUTES_AT, attributes | TRANSACTIONAL)
    _PRODUCER.pack_into(batch, PRODUCER_ID_AT, producer_id, epoch, sequence)
    _CRC.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[ATTRIBUTES_AT:]))
