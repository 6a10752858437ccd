"""Topics with all that records can have, in several segments, and what a reader of them must find."""

import random
import struct
from typing import NamedTuple

import pyarrow as pa

from pyspark_log.storage.record.builder import BatchBuilder, RecordColumns
from pyspark_log.types import EARLIEST, READ_UNCOMMITTED

CODECS = ("uncompressed", "gzip", "snappy", "lz4", "zstd")
SEGMENTED = {"segment.bytes": "6000", "index.interval.bytes": "300", "retention.ms": "-1"}
NOW = 1_700_000_000_000
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class Row(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def write(store, topic, *, partitions=2, batches=40, configs=()):
    """Makes a topic and fills it; returns the rows of each partition."""
    store.create_topic(topic, partitions, SEGMENTED | dict(configs))
    return [extend(store, topic, partition, batches) for partition in range(partitions)]


def extend(store, topic, partition, batches=1, *, keyless=True):
    """Appends batches of three to nineteen records, some without a key if they may; returns their rows."""
    chance = random.Random(f"{topic} {partition}")
    rows = []
    for _ in range(batches):
        first = store.latest_offset(topic, partition)
        batch = [_row(chance, first + number) for number in range(chance.randrange(3, 20))]
        batch = [row if keyless or row.key is not None else row._replace(key=b"a key") for row in batch]
        append(store, topic, partition, batch)
        rows += batch
    return rows


def append(store, topic, partition, rows):
    """Appends rows."""
    store.append(topic, _columns(rows), partition=partition)


def send(store, topic, partition, rows, producer, **fields):
    """Appends rows as one batch of a producer that numbers them."""
    with store.logs.writer(topic, partition).hold() as held:
        held.append(bytearray(_batch(rows, producer_id=producer, producer_epoch=0, **fields)), sync=False)


def end_transaction(store, topic, partition, producer, *, commit):
    """Appends the marker of a coordinator; it takes an offset."""
    marker = Row(-1, NOW, struct.pack(">hh", 0, commit), struct.pack(">hi", 0, 0), ())
    send(store, topic, partition, [marker], producer, transactional=True, control=True)


def _batch(rows, **fields):
    columns = _columns(rows)
    builder = BatchBuilder(1 << 20, 1 << 20)
    builder.append(RecordColumns(*(columns[name] for name in columns.schema.names), NOW), None, 0, len(rows))
    return builder.seal(**fields)


def read(store, topic, partition=0, level=READ_UNCOMMITTED, start=EARLIEST):
    """All rows that we read, and the offset after them."""
    end = store.latest_offset(topic, partition, isolation_level=level)
    rows = []
    for batch in store.read(topic, partition, start, end, headers=True, isolation_level=level):
        columns = [batch[name].to_pylist() for name in ("offset", "key", "value", "headers")]
        times = [time // 1000 for time in batch["timestamp"].cast("int64").to_pylist()]
        for time_ms, (offset, key, value, headers) in zip(times, zip(*columns, strict=True), strict=True):
            rows.append(Row(offset, time_ms, key, value, tuple((h["key"], h["value"]) for h in headers or ())))
    return rows, end


def _row(chance, offset):
    key = chance.choice([None, b"", "ключ".encode(), f"key {offset % 7}".encode()])
    value = chance.choice([None, b"", b"x" * 200, chance.randbytes(60).hex().encode(), f"value {offset}".encode()])
    headers = chance.choice([(), (), (("h", b"1"), ("h", None)), (("größe", b""), ("h", b"\x00\xff"))])
    return Row(offset, NOW + offset * 10 + chance.randrange(-500, 500), key, value, headers)


def _columns(rows):
    return pa.record_batch(
        {
            "key": pa.array([row.key for row in rows], pa.binary()),
            "value": pa.array([row.value for row in rows], pa.binary()),
            "timestamp": pa.array([row.timestamp for row in rows], pa.int64()),
            "headers": pa.array([[{"key": k, "value": v} for k, v in row.headers] or None for row in rows], _HEADERS),
        }
    )
