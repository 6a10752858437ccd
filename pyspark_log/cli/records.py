"""How single records are shown: as text that keeps their bytes, or as JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

#: Names of `timestampType`, as Kafka's tools print them.
TIMESTAMP_TYPES = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}
#: A null key or value in text, as in Kafka's console consumer.
NULL = b"null"


@dataclass(frozen=True)
class TextLayout:
    """What precedes the value on a line, in the order and form of Kafka's console consumer."""

    timestamp: bool
    partition: bool
    offset: bool
    key: bool
    separator: bytes


def text_lines(batch: pa.RecordBatch, layout: TextLayout) -> bytes:
    """Each record's value, and what the layout wants before it, then a line end; bytes stay as they are."""
    if not batch.num_rows:
        return b""
    columns = []
    if layout.timestamp:
        kinds, times = batch.column("timestampType").to_pylist(), times_ms(batch.column("timestamp"))
        columns.append([
            f"{TIMESTAMP_TYPES[kind]}:{time}".encode() for kind, time in zip(kinds, times, strict=True)
        ])
    if layout.partition:
        columns.append([f"Partition:{number}".encode() for number in batch.column("partition").to_pylist()])
    if layout.offset:
        columns.append([f"Offset:{number}".encode() for number in batch.column("offset").to_pylist()])
    for name in ("key", "value") if layout.key else ("value",):
        columns.append(batch.column(name).fill_null(NULL).to_pylist())
    lines = columns[0] if len(columns) == 1 else map(layout.separator.join, zip(*columns, strict=True))
    return b"\n".join(lines) + b"\n"


def json_lines(batch: pa.RecordBatch) -> bytes:
    """Each record as one line of JSON."""
    return b"".join(json.dumps(item, ensure_ascii=False).encode() + b"\n" for item in _objects(batch))


def _objects(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    names = ("topic", "partition", "offset", "timestampType", "key", "value", "headers")
    columns = [batch.column(name).to_pylist() for name in names]
    times = times_ms(batch.column("timestamp"))
    for time, row in zip(times, zip(*columns, strict=True), strict=True):
        topic, partition, offset, kind, key, value, headers = row
        yield {
            "topic": topic, "partition": partition, "offset": offset,
            "timestamp": time, "timestampType": TIMESTAMP_TYPES[kind],
            **_bytes_field("key", key), **_bytes_field("value", value),
            "headers": [
                {"key": header["key"], **_bytes_field("value", header["value"])} for header in headers or ()
            ],
        }


def _bytes_field(name: str, data: bytes | None) -> dict[str, str | None]:
    """Bytes as a field: the text if they are UTF-8, else their base64 under another name; nothing is lost."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def times_ms(column: pa.Array) -> list[int]:
    """The times of a timestamp column in ms."""
    return [micros // 1000 for micros in column.cast(pa.int64()).to_pylist()]
