"""How single records are shown: as text that keeps their bytes, or as JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

#: Names of `timestampType`, as Kafka's tools print them.
TIMESTAMP_TYPES = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}
_KINDS = pa.array([TIMESTAMP_TYPES[number] for number in sorted(TIMESTAMP_TYPES)])


@dataclass(frozen=True)
class TextLayout:
    """What precedes the value on a line, in the order and form of Kafka's console consumer."""

    timestamp: bool
    partition: bool
    offset: bool
    headers: bool
    key: bool
    separator: bytes
    null: bytes = b"null"


def text_lines(batch: pa.RecordBatch, layout: TextLayout) -> bytes:
    """Each record's value, and what the layout wants before it, then a line end; bytes stay as they are."""
    if not batch.num_rows:
        return b""
    columns = []
    if layout.timestamp:
        kinds = _KINDS.take(pc.add(batch.column("timestampType"), 1))
        times = batch.column("timestamp").cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
        columns.append(_joined(kinds, times.cast(pa.string()), b":"))
    if layout.partition:
        columns.append(_joined(b"Partition", batch.column("partition").cast(pa.string()), b":"))
    if layout.offset:
        columns.append(_joined(b"Offset", batch.column("offset").cast(pa.string()), b":"))
    if layout.headers:
        columns.append(_header_texts(batch.column("headers"), layout.null))
    for name in ("key", "value") if layout.key else ("value",):
        columns.append(batch.column(name).fill_null(layout.null).cast(pa.large_binary()))
    lines = columns[0] if len(columns) == 1 else _joined(*columns, layout.separator)
    # The entries of a column follow each other in its buffer; this one is new, and begins at its start.
    ended = _joined(lines, b"", b"\n")
    return bytes(memoryview(ended.buffers()[2])[: pc.sum(pc.binary_length(ended)).as_py()])


def _joined(*parts: pa.Array | bytes) -> pa.Array:
    """Texts joined row by row; the last part is what is between them."""
    kind = pa.large_binary()
    return pc.binary_join_element_wise(*[
        pa.scalar(part, kind) if isinstance(part, bytes) else part.cast(kind) for part in parts
    ])


def _header_texts(headers: pa.Array, null: bytes) -> pa.Array:
    """The headers of each record as Kafka's console consumer prints them: a:1,b:2, or NO_HEADERS."""
    entries = headers.flatten()
    values = pc.struct_field(entries, "value").fill_null(null)
    texts = pc.binary_join_element_wise(pc.struct_field(entries, "key").cast(pa.binary()), values, b":")
    lengths = pc.list_value_length(headers).fill_null(0)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths).cast(pa.int32())])
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, texts), b",")
    return pc.if_else(pc.equal(lengths, 0), b"NO_HEADERS", joined).cast(pa.large_binary())


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
