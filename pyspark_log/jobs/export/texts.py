"""Records as text, a column at a time: keys and values as UTF-8 or base64, and whole records as JSON."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_log.cli.records.formats import TIMESTAMP_TYPES
from pyspark_log.jobs.support import JobError, joined_lists, quoted

_BYTES = ("key", "value")
_ALPHABET = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
_KINDS = pa.array([json.dumps(TIMESTAMP_TYPES[number]) for number in sorted(TIMESTAMP_TYPES)])
_FIRST_KIND = min(TIMESTAMP_TYPES)


def name_of(column: str, *, base64: bool) -> str:
    """The name under which a column is written."""
    return f"{column}_base64" if base64 and column in _BYTES else column


def text_of(column: pa.Array, name: str, *, base64: bool) -> pa.Array:
    """Bytes as strings; nulls stay. JobError: they are not UTF-8."""
    if base64:
        return base64_of(column)
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid as error:
        what = f"a {name} is not text in UTF-8; --encoding base64 writes any bytes"
        raise JobError(what, "PYLOG_BAD_VALUE") from error


def base64_of(column: pa.Array) -> pa.Array:
    """The base64 of each value of a binary column, as strings; nulls stay."""
    sizes = pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    groups = (sizes + 2) // 3
    ends, group_ends = np.cumsum(sizes), np.cumsum(groups)
    # Each value begins with a group of its own: three bytes, of which the last can be missing.
    data = pc.binary_join(pa.ListArray.from_arrays([0, len(column)], column.fill_null(b"")), b"")[0].as_buffer()
    padded = np.zeros(3 * int(groups.sum()), np.uint8)
    shift = 3 * (group_ends - groups) - (ends - sizes)
    padded[np.arange(data.size) + np.repeat(shift, sizes)] = np.frombuffer(data, np.uint8)
    first, second, third = padded.reshape(-1, 3).T
    codes = np.stack([first >> 2, (first & 3) << 4 | second >> 4, (second & 15) << 2 | third >> 6, third & 63], axis=1)
    texts = _ALPHABET[codes].reshape(-1)
    missing = 3 * groups - sizes
    texts[4 * group_ends[missing >= 1] - 1] = ord("=")
    texts[4 * group_ends[missing == 2] - 2] = ord("=")
    offsets = np.concatenate([[0], 4 * group_ends]).astype(np.int32)
    valid = column.is_valid()
    return pc.if_else(valid, pa.StringArray.from_buffers(len(column), pa.py_buffer(offsets), pa.py_buffer(texts)), None)


def json_of(batch: pa.RecordBatch, *, base64: bool) -> pa.Array:
    """Each record as a JSON object, with the fields of `pylog consume --format json`. JobError: as `text_of`."""
    parts: list[pa.Array | str] = []
    for name in batch.schema.names:
        parts += [f'{", " if parts else "{"}"{name_of(name, base64=base64)}": ', _field(batch, name, base64=base64)]
    return pc.binary_join_element_wise(*parts, "}", "")


def _field(batch: pa.RecordBatch, name: str, *, base64: bool) -> pa.Array:
    column = batch.column(name)
    if name in _BYTES:
        return quoted(text_of(column, name, base64=base64)).fill_null("null")
    if name == "topic":
        return quoted(column)
    if name == "timestamp":
        return pc.divide(column.cast(pa.int64()), 1000).cast(pa.string()).fill_null("null")
    if name == "timestampType":
        return _KINDS.take(pc.subtract(column, _FIRST_KIND))
    return _headers(column, base64=base64) if name == "headers" else column.cast(pa.string())


def _headers(column: pa.Array, *, base64: bool) -> pa.Array:
    each = column.flatten()
    value = quoted(text_of(pc.struct_field(each, "value"), "value of a header", base64=base64)).fill_null("null")
    objects = pc.binary_join_element_wise(
        '{"key": ', quoted(pc.struct_field(each, "key")), f', "{name_of("value", base64=base64)}": ', value, "}", ""
    )
    return joined_lists(column, objects, ", ")
