"""The control record that ends a transaction (Kafka's EndTransactionMarker, KIP-98).

A marker's key is `version int16, type int16` (0 abort, 1 commit), its value `version int16, coordinator
epoch int32`; fields that a later version adds after them are skipped. The batch's header has the producer whose
transaction it ends.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from pyspark_log.errors import CorruptRecordError
from pyspark_log.storage.record.builder import BatchBuilder, RecordColumns
from pyspark_log.storage.record.codecs.compression import decompress
from pyspark_log.storage.record.layout import HEADER_SIZE, BatchHeader

_ABORT, _COMMIT = 0, 1
_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
# Far more than any control record has. Brokers do not compress these batches, but may read them so.
_MAX_RECORD_BYTES = 64 * 1024
#: This many bytes of a control batch are enough to read its record.
MAX_MARKER_BYTES = HEADER_SIZE + _MAX_RECORD_BYTES


class ControlRecordError(CorruptRecordError):
    """A whole control batch of a producer, whose record is no control record."""


class EndTxnMarker(NamedTuple):
    """The end of a transaction: `commit` or abort, written by the coordinator of that epoch."""

    commit: bool
    coordinator_epoch: int


def encode_end_txn_marker(marker: EndTxnMarker, producer_id: int, producer_epoch: int, now: int) -> bytes:
    """The control batch that ends a producer's transaction, at the time `now` (ms)."""
    key, value = _KEY.pack(0, _COMMIT if marker.commit else _ABORT), _VALUE.pack(0, marker.coordinator_epoch)
    builder = BatchBuilder(HEADER_SIZE, _MAX_RECORD_BYTES)
    builder.append(RecordColumns.of_pairs([key], [value], now), None, 0, 1)
    return builder.seal(producer_id=producer_id, producer_epoch=producer_epoch, transactional=True, control=True)


def decode_end_txn_marker(data: bytes | memoryview, header: BatchHeader) -> EndTxnMarker | None:
    """Decodes the marker in a control batch.

    Args:
        data: the whole batch.
        header: its header; a control batch.

    Returns:
        None for a batch whose marker the cleaner removed, and for control records of other types.

    Raises:
        ControlRecordError: not a control record; its position is the header's.
    """
    if header.count == 0:
        return None
    try:
        return _parse(bytes(decompress(header.codec, data[HEADER_SIZE : header.size], _MAX_RECORD_BYTES)))
    except (ValueError, IndexError, struct.error, CorruptRecordError) as error:
        raise ControlRecordError(f"not a valid control record: {error}", header.position, header.base_offset) from error


def _parse(record: bytes) -> EndTxnMarker | None:
    _, at = _varint(record, 0)
    at += 1  # attributes, unused
    for _ in ("timestamp", "offset"):
        _, at = _varint(record, at)
    key, at = _field(record, at)
    value, at = _field(record, at)
    _, kind = _KEY.unpack_from(key)
    if kind not in (_ABORT, _COMMIT):
        return None
    _, coordinator_epoch = _VALUE.unpack_from(value)
    return EndTxnMarker(kind == _COMMIT, coordinator_epoch)


def _field(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _varint(data, at)
    if not 0 <= size <= len(data) - at:
        raise ValueError(f"a field of {size} bytes where {len(data) - at} are left")
    return data[at : at + size], at + size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Decodes a zigzag varint; returns it and the position after it. The longest has ten bytes."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise ValueError("a varint of more than ten bytes")
