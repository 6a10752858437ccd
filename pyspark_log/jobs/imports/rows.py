"""Reads files into Arrow, and makes records of their rows, without a loop over rows."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

from pyspark_log.jobs.imports.json_rows import json_of, json_of_rows
from pyspark_log.jobs.support import JobError

# The smallest block, in bytes, in which lines of JSON are parsed; a line must fit into a block.
_BLOCK = 1 << 20
_UTC = pa.timestamp("us", "UTC")
_BAD = "PYLOG_BAD_VALUE"
_OBJECT = r"^\s*\{.*\}\s*$"
_REFUSED = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError)


class RecordFields(NamedTuple):
    """Which columns become what; None: no key, the whole row as value, the time of the import."""

    key: str | None
    value: str | None
    timestamp: str | None


def rows_of_text(data: bytes, fields: RecordFields) -> pa.RecordBatch:
    """A record for each line that is not empty. JobError: columns are wanted."""
    if any(fields):
        raise JobError("lines of text have no columns: leave out --key, --value and --timestamp", "PYLOG_NO_COLUMN")
    return pa.record_batch({"value": pa.array(_lines(data), pa.binary())})


def rows_of_json(data: bytes, fields: RecordFields) -> pa.RecordBatch:
    """A record for each line that is not empty, a JSON object. JobError: it is none, or a column is of mixed types."""
    lines = list(filter(bytes.strip, _lines(data)))
    values = pa.array(lines, pa.binary())
    if not lines:
        return pa.record_batch({"value": values})
    try:
        if not pc.all(pc.match_substring_regex(values.cast(pa.string()), _OBJECT)).as_py():
            raise JobError("a line is not a JSON object", _BAD)
    except pa.ArrowInvalid:
        raise JobError("not text in UTF-8: it may be compressed", _BAD) from None
    text = b"\n".join(lines)
    block = max(_BLOCK, 2 * pc.max(pc.binary_length(values)).as_py())
    # Only the fields that are wanted, each in its own type; the others may be anything, and of any types.
    columns = {name: _json_field(text, name, block, len(lines)) for name in fields if name is not None}
    if not columns:
        _parsed_json(text, pa.string(), "", block, len(lines))  # to find what is no JSON
    return _records(pa.table(columns or {"": values}), fields, values)


def _json_field(text: bytes, name: str, block: int, count: int) -> pa.Array:
    """A field of each line: text as it is written, whole numbers, or what Arrow makes of it. JobError."""
    for kind in (pa.string(), pa.int64(), None):
        try:
            column = _parsed_json(text, kind, name, block, count)
        except JobError:
            if kind is None:
                raise
            continue
        if pa.types.is_floating(column.type):
            raise JobError(
                f"column {name!r} has numbers with a fraction, or with more than 64 bits, which have more than one "
                "form as text: store them as text in the file",
                _BAD,
            )
        return column
    raise AssertionError("unreachable")


def _parsed_json(text: bytes, kind: pa.DataType | None, name: str, block: int, count: int) -> pa.Array:
    if kind is None:
        options = pyarrow.json.ParseOptions()
    else:
        options = pyarrow.json.ParseOptions(
            explicit_schema=pa.schema([(name, kind)]), unexpected_field_behavior="ignore"
        )
    try:
        table = pyarrow.json.read_json(io.BytesIO(text), pyarrow.json.ReadOptions(block_size=block), options)
    except pa.ArrowInvalid as error:
        raise JobError(f"a line is not a JSON object, or column {name!r} has several types: {error}", _BAD) from error
    if table.num_rows != count:
        raise JobError(f"{count} lines have {table.num_rows} JSON objects", _BAD)
    return _column(table, name)


def rows_of_csv(data: bytes, fields: RecordFields, delimiter: str) -> pa.RecordBatch:
    """A record for each row, all columns text; the first line has their names. JobError: it is malformed.

    A cell without anything is null, one with "" is empty text.
    """
    form = pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    try:
        with pyarrow.csv.open_csv(io.BytesIO(data), parse_options=form) as first:
            names = first.schema.names
        texts = pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        table = pyarrow.csv.read_csv(io.BytesIO(data), parse_options=form, convert_options=texts)
    except pa.ArrowInvalid as error:
        raise JobError(f"not CSV: {error}", _BAD) from error
    return records_of(table, fields)


def rows_of_parquet(path: str, row_groups: Sequence[int], fields: RecordFields) -> Iterator[pa.RecordBatch]:
    """Records of some row groups, one after the other. JobError: it is no Parquet file."""
    try:
        with pq.ParquetFile(path) as file:
            for group in row_groups:
                yield records_of(file.read_row_group(group), fields)
    except pa.ArrowInvalid as error:
        raise JobError(f"not Parquet: {error}", _BAD) from error


def records_of(table: pa.Table, fields: RecordFields) -> pa.RecordBatch:
    """Records of rows. JobError: a column is missing, or cannot become what it is to be."""
    return _records(table, fields, json_of_rows(table) if fields.value is None else None)


def _records(table: pa.Table, fields: RecordFields, whole: pa.Array | pa.ChunkedArray | None) -> pa.RecordBatch:
    columns = {"value": whole if fields.value is None else _bytes(table, fields.value)}
    if fields.key is not None:
        columns["key"] = _bytes(table, fields.key)
    if fields.timestamp is not None:
        columns["timestamp"] = _times(table, fields.timestamp)
    return pa.record_batch({name: _one(column) for name, column in columns.items()})


def _one(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _lines(data: bytes) -> list[bytes]:
    return list(filter(None, data.replace(b"\r\n", b"\n").split(b"\n")))


def _column(table: pa.Table, name: str) -> pa.Array:
    if name not in table.column_names:
        raise JobError(f"there is no column {name!r}; these are: {', '.join(table.column_names)}", "PYLOG_NO_COLUMN")
    column = _one(table[name])
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _bytes(table: pa.Table, name: str) -> pa.Array:
    """A column as keys or values: text and bytes as they are, numbers and times as text, the rest as JSON."""
    column = _column(table, name)
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return column
    if pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return column.cast(pa.binary())
    if pa.types.is_nested(kind):
        return pc.if_else(column.is_valid(), json_of(column), None)
    try:
        return column.cast(pa.string())
    except _REFUSED as error:
        raise JobError(f"column {name!r} of type {kind} cannot be converted to bytes: {error}", _BAD) from error


def _times(table: pa.Table, name: str) -> pa.Array:
    """A column as times: whole numbers are ms, and times or text without a zone are UTC."""
    column = _column(table, name)
    kind = column.type
    try:
        if pa.types.is_integer(kind):
            return column.cast(pa.int64())
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return _parsed(column.cast(pa.string()))
        if pa.types.is_timestamp(kind):
            return column.cast(_UTC, safe=False)  # of nanoseconds only the last digits are lost
        return column.cast(pa.timestamp("us")).cast(_UTC)
    except _REFUSED as error:
        raise JobError(f"column {name!r} of type {kind} cannot be converted to timestamps: {error}", _BAD) from error


def _parsed(text: pa.Array) -> pa.Array:
    try:
        return text.cast(_UTC)
    except pa.ArrowInvalid:
        return text.cast(pa.timestamp("us")).cast(_UTC)  # none of them names a zone
