"""How single records are shown as JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_log.cli.records.formats import TIMESTAMP_TYPES, data_of, joined, time_types, times, times_ms

# What JSON has another form for. The other control characters are rare.
_ESCAPED = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ANY_ESCAPED = r'["\\\n\r\t]'
_OTHER_CONTROL = r"[\x00-\x08\x0b\x0c\x0e-\x1f]"


def json_lines(batch: pa.RecordBatch) -> bytes:
    """Each record as one line of JSON."""
    lines = _plain_lines(batch)
    if lines is not None:
        return lines
    return b"".join(json.dumps(item, ensure_ascii=False).encode() + b"\n" for item in _objects(batch))


def _plain_lines(batch: pa.RecordBatch) -> bytes | None:
    """The same, a column at a time; None: some of it is no UTF-8, or has rare control characters."""
    headers = batch.column("headers")
    entries = headers.flatten()
    names, contents = (_quoted(pc.struct_field(entries, name)) for name in ("key", "value"))
    key, value = (_quoted(batch.column(name)) for name in ("key", "value"))
    if names is None or contents is None or key is None or value is None:
        return None
    objects = joined(b'{"key": ', names, b', "value": ', contents, b"}", b"").cast(pa.binary())
    lengths = pc.list_value_length(headers).fill_null(0)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths).cast(pa.int32())])
    lists = pc.binary_join(pa.ListArray.from_arrays(offsets, objects), b", ")
    return data_of(joined(
        b'{"topic": "', batch.column("topic"), b'", "partition": ', batch.column("partition").cast(pa.string()),
        b', "offset": ', batch.column("offset").cast(pa.string()), b', "timestamp": ', times(batch),
        b', "timestampType": "', time_types(batch), b'", "key": ', key, b', "value": ', value, b', "headers": [', lists,
        b"]}\n", b"",
    ))  # fmt: skip


def _quoted(column: pa.Array) -> pa.Array | None:
    """Texts as JSON has them; None: as `_plain_lines`."""
    try:
        texts = column.cast(pa.large_string())
    except pa.ArrowInvalid:
        return None
    if pc.any(pc.match_substring_regex(texts, _OTHER_CONTROL)).as_py():
        return None
    if pc.any(pc.match_substring_regex(texts, _ANY_ESCAPED)).as_py():
        for character, form in _ESCAPED.items():
            texts = pc.replace_substring(texts, character, form)
    return joined(b'"', texts, b'"', b"").fill_null(b"null")


def _objects(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    names = ("topic", "partition", "offset", "timestampType", "key", "value", "headers")
    columns = [batch.column(name).to_pylist() for name in names]
    times = times_ms(batch.column("timestamp"))
    for time, row in zip(times, zip(*columns, strict=True), strict=True):
        topic, partition, offset, kind, key, value, headers = row
        yield {
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "timestamp": time,
            "timestampType": TIMESTAMP_TYPES[kind],
            **_bytes_field("key", key),
            **_bytes_field("value", value),
            "headers": [{"key": header["key"], **_bytes_field("value", header["value"])} for header in headers or ()],
        }


def _bytes_field(name: str, data: bytes | None) -> dict[str, str | None]:
    """Bytes as a field: the text if they are UTF-8, else their base64 under another name; nothing is lost."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}
