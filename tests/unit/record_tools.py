"""Records as plain values, and the way between them and the codec's columns."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from pyspark_log.storage.record import layout
from pyspark_log.storage.record.builder import BatchBuilder, RecordColumns
from pyspark_log.storage.record.checksum import crc32c
from pyspark_log.storage.record.decoding.decoder import Chunk, decode

HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
EVERYTHING = {"from_offset": 0, "until_offset": 1 << 62, "max_bytes": 1 << 30}
NOW = 1_700_000_000_000


@dataclass(frozen=True)
class Record:
    key: bytes | None = None
    value: bytes | None = None
    timestamp: int = NOW
    headers: tuple[tuple[str, bytes | None], ...] = ()
    offset: int = 0
    timestamp_type: int = 0


def columns_of(records: list[Record]) -> RecordColumns:
    return RecordColumns(
        pa.array([r.key for r in records], pa.binary()),
        pa.array([r.value for r in records], pa.binary()),
        pa.array([r.timestamp for r in records], pa.int64()),
        pa.array([[{"key": k, "value": v} for k, v in r.headers] or None for r in records], HEADERS_TYPE),
        NOW,
    )


def build(records: list[Record], codec: str = "none", **fields) -> bytes:
    """One batch that holds all records."""
    builder = BatchBuilder(1 << 30, 1 << 30, codec)
    assert builder.append(columns_of(records), None, 0, len(records)) == len(records)
    return builder.seal(**fields)


def rows_of(chunk: Chunk) -> list[Record]:
    """The rows of a chunk that was decoded with headers."""
    for column in chunk.columns.values():
        column.validate(full=True)
        assert len(column) == chunk.num_rows
    plain = dict(chunk.columns, timestamp=chunk.columns["timestamp"].cast(pa.int64()))
    return [
        Record(
            row["key"],
            row["value"],
            row["timestamp"] // 1000,
            tuple((h["key"], h["value"]) for h in row["headers"] or ()),
            row["offset"],
            row["timestampType"],
        )
        for row in pa.table(plain).to_pylist()
    ]


def read(data: bytes, **changes) -> list[Record]:
    """All rows of the batches in `data`, which must be consumed to the end."""
    position, rows = 0, []
    while position < len(data):
        chunk = decode(data, position, len(data), headers=True, **{**EVERYTHING, **changes})
        assert chunk.position > position
        position = chunk.position
        rows += rows_of(chunk)
    return rows


def with_crc(data: bytes) -> bytes:
    """One batch with its length field and CRC set to what its bytes are."""
    fixed = bytearray(data)
    fixed[layout.LENGTH_AT : layout.LEADER_EPOCH_AT] = (len(data) - layout.LENGTH_PREFIX).to_bytes(4, "big")
    crc = crc32c(bytes(fixed[layout.ATTRIBUTES_AT :]))
    fixed[layout.CRC_AT : layout.ATTRIBUTES_AT] = crc.to_bytes(4, "big")
    return bytes(fixed)


def stream_of(records: list[Record]) -> bytes:
    """The bytes of records, without a batch's header."""
    return build(records)[layout.HEADER_SIZE :]


def framed(codec: str, records: list[Record], frame: bytes, **fields) -> bytes:
    """A batch whose records are in a frame of a codec."""
    header = build(records, **fields)[: layout.HEADER_SIZE]
    return with_crc(patched(header, layout.ATTRIBUTES_AT, 2, layout.CODECS.index(codec)) + frame)


def patched(data: bytes, at: int, width: int, value: int) -> bytes:
    """One batch with a number of its header changed, and the CRC that fits."""
    changed = bytearray(data)
    changed[at : at + width] = value.to_bytes(width, "big", signed=True)
    return with_crc(bytes(changed))
