"""Rows of any columns as JSON objects, a column at a time."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_log.jobs.support import JobError, joined_lists, quoted


def json_of_rows(table: pa.Table) -> pa.ChunkedArray:
    """Each row as a JSON object; as Spark's to_json, but that fields without a value are null.

    Times are ISO-8601 (UTC if the column has a zone), decimals and dates text. NaN and infinity, which JSON lacks, are
    null.

    Raises:
        JobError: a column is of a type that has no JSON, as bytes that are not UTF-8.
    """
    if not table.num_columns:
        raise JobError("rows without columns cannot become values", "PYLOG_NO_COLUMN")
    return pa.chunked_array([_of_struct(batch.to_struct_array()) for batch in table.to_batches()], pa.string())


def json_of(column: pa.Array) -> pa.Array:
    """Each value as JSON, null as null. JobError: as `json_of_rows`."""
    kind = column.type
    if pa.types.is_struct(kind):
        text = _of_struct(column)
    elif pa.types.is_map(kind):
        text = _of_map(column)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        text = _of_list(column, json_of(column.flatten()))
    elif pa.types.is_dictionary(kind):
        return json_of(column.dictionary_decode())
    elif pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        text = column.cast(pa.string())
    elif pa.types.is_floating(kind):
        text = pc.if_else(pc.is_finite(column), column.cast(pa.float64()).cast(pa.string()), None)
    elif pa.types.is_timestamp(kind):
        text = _of_times(column)
    else:
        text = quoted(_text(column))
    return text.fill_null("null")


def _of_struct(column: pa.StructArray) -> pa.Array:
    parts: list[pa.Array | str] = []
    for number, field in enumerate(column.type):
        before = ("," if parts else "{") + json.dumps(field.name, ensure_ascii=False) + ":"
        parts += [before, json_of(pc.struct_field(column, [number]))]
    objects = pc.binary_join_element_wise(*parts, "}", "") if parts else pa.array(["{}"] * len(column))
    return pc.if_else(column.is_valid(), objects, None)


def _of_list(column: pa.ListArray, texts: pa.Array) -> pa.Array:
    return pc.if_else(column.is_valid(), joined_lists(column, texts, ","), None)


def _of_map(column: pa.MapArray) -> pa.Array:
    entries = column.cast(pa.list_(pa.struct([("key", column.type.key_type), ("value", column.type.item_type)])))
    flat = entries.flatten()
    pairs = pc.binary_join_element_wise(
        quoted(_text(pc.struct_field(flat, "key"))), json_of(pc.struct_field(flat, "value")), ":"
    )
    lists = _of_list(entries, pairs)
    return pc.replace_substring_regex(pc.replace_substring_regex(lists, r"^\[", "{"), r"\]$", "}")


def _of_times(column: pa.Array) -> pa.Array:
    times = column.cast(pa.timestamp(column.type.unit, column.type.tz and "UTC"))
    text = pc.strftime(times, format="%Y-%m-%dT%H:%M:%S")
    return pc.binary_join_element_wise('"', text, 'Z"' if column.type.tz else '"', "")


def _text(column: pa.Array) -> pa.Array:
    try:
        return column.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        problem = f"a column of type {column.type} cannot be written as JSON: {error}"
        raise JobError(problem, "PYLOG_BAD_VALUE") from error
