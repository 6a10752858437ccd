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

# Lines of JSON are parsed in blocks of so many bytes at least; a line must fit into one.
_BLOCK = 1 << 20
_UTC = pa.timestamp("us", "UTC")
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
    """A record for each line that is not empty, a JSON object. JobError: it is none, or lacks what is wanted."""
    lines = _lines(data)
    values = pa.array(lines, pa.binary())
    if not any(fields) or not lines:
        return pa.record_batch({"value": values})
    longest = pc.max(pc.binary_length(values)).as_py()
    options = pyarrow.json.ReadOptions(block_size=max(_BLOCK, 2 * longest))
    try:
        table = pyarrow.json.read_json(io.BytesIO(b"\n".join(lines)), options)
    except pa.ArrowInvalid as error:
        raise JobError(f"a line is no JSON object: {error}", "PYLOG_BAD_VALUE") from error
    if table.num_rows != len(lines):
        raise JobError(f"{len(lines)} lines have {table.num_rows} JSON objects", "PYLOG_BAD_VALUE")
    return _records(table, fields, values)


def rows_of_csv(data: bytes, fields: RecordFields, delimiter: str) -> pa.RecordBatch:
    """A record for each row; the first line has the names of the columns. JobError: it is malformed."""
    form = pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    try:
        return records_of(pyarrow.csv.read_csv(io.BytesIO(data), parse_options=form), fields)
    except pa.ArrowInvalid as error:
        raise JobError(f"not CSV: {error}", "PYLOG_BAD_VALUE") from error


def rows_of_parquet(path: str, row_groups: Sequence[int], fields: RecordFields) -> Iterator[pa.RecordBatch]:
    """Records of some row groups, one after the other. JobError: it is no Parquet file."""
    try:
        with pq.ParquetFile(path) as file:
            for group in row_groups:
                yield records_of(file.read_row_group(group), fields)
    except pa.ArrowInvalid as error:
        raise JobError(f"not Parquet: {error}", "PYLOG_BAD_VALUE") from error


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
    return _one(table[name])


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
        raise JobError(f"column {name!r} of type {kind} has no form as bytes: {error}", "PYLOG_BAD_VALUE") from error


def _times(table: pa.Table, name: str) -> pa.Array:
    """A column as times: whole numbers are ms, and times or text without a zone are UTC."""
    column = _column(table, name)
    kind = column.type
    try:
        if pa.types.is_integer(kind):
            return column.cast(pa.int64())
        if pa.types.is_string(kind):
            return _parsed(column)
        return column.cast(_UTC) if pa.types.is_timestamp(kind) else column.cast(pa.timestamp("us")).cast(_UTC)
    except _REFUSED as error:
        raise JobError(f"column {name!r} of type {kind} has no times: {error}", "PYLOG_BAD_VALUE") from error


def _parsed(text: pa.Array) -> pa.Array:
    try:
        return text.cast(_UTC)
    except pa.ArrowInvalid:
        return text.cast(pa.timestamp("us")).cast(_UTC)  # none of them names a zone
