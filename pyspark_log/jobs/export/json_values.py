"""Values that are JSON objects, parsed into columns by Arrow, a batch at a time."""

from __future__ import annotations

import json
from typing import Any

import click
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from pyspark_log.jobs.export.parsed_values import ParsedValues


class JsonValues(ParsedValues):
    """Values that are JSON objects: fields that the schema has not are left out, and missing ones are null."""

    def parse(self, values: pa.Array) -> pa.StructArray:
        """Parses values into structs of the fields; a null has nulls. ArrowInvalid: one of them does not fit."""
        wanted = pa.struct(list(self.schema))
        return _parse(values, _read_as(wanted)).cast(wanted)


def _parse(values: pa.Array, kind: pa.DataType) -> pa.StructArray:
    """Parses values into structs of a type. ArrowInvalid: one of them does not fit.

    Each value becomes a field of an object with its number, so that a value which is none or several objects shows.
    """
    numbers = pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), len(values)))
    # Casting checks that it is UTF-8.
    texts = values.cast(pa.string()).fill_null("null")
    lines = pc.binary_join_element_wise('{"n":', numbers.cast(pa.string()), ',"v":', texts, "}\n", "")
    text = pc.binary_join(pa.ListArray.from_arrays([0, len(lines)], lines), "")[0].as_buffer()
    table = arrow_json.read_json(
        pa.BufferReader(text),
        arrow_json.ReadOptions(use_threads=False, block_size=text.size + 1),
        arrow_json.ParseOptions(
            explicit_schema=pa.schema([("n", pa.int64()), ("v", kind)]), unexpected_field_behavior="ignore"
        ),
    )
    if not table["n"].combine_chunks().equals(numbers):
        raise pa.ArrowInvalid("a value has several objects")
    parsed = table["v"].combine_chunks()
    return parsed.chunk(0) if isinstance(parsed, pa.ChunkedArray) else parsed


def _read_as(kind: pa.DataType) -> pa.DataType:
    """As what Arrow reads a type from JSON: dates are the midnights of days, as it reads times and no dates."""
    if pa.types.is_date(kind):
        return pa.timestamp("s")
    if pa.types.is_struct(kind):
        return pa.struct([one.with_type(_read_as(one.type)) for one in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_read_as(kind.value_type)))
    return kind


def json_values(schema: pa.Schema, *, bad_as_null: bool) -> JsonValues:
    """How JSON objects with the fields of a schema are parsed. click.UsageError: Arrow does not parse one of them."""
    try:
        JsonValues(schema).parse(pa.array([b"{}"]))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise click.UsageError(f"--schema: {error}") from error
    return JsonValues(schema, bad_as_null)


_TYPES = {"string": pa.string(), "integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}
_FORMATS = {"date-time": pa.timestamp("us", tz="UTC"), "date": pa.date32()}


def of_json_schema(document: dict[str, Any]) -> pa.Schema:
    """The fields of a JSON Schema (json-schema.org) of an object. click.UsageError: it has what columns have not."""
    return pa.schema([pa.field(name, _type(name, one)) for name, one in document["properties"].items()])


def _type(name: str, given: Any) -> pa.DataType:  # noqa: ANN401  (what JSON has)
    kind = given.get("type") if isinstance(given, dict) else None
    if isinstance(kind, list):
        kind = next((one for one in kind if one != "null"), None) if len(set(kind) - {"null"}) == 1 else None
    if kind == "object" and "properties" in given:
        return pa.struct(list(of_json_schema(given)))
    if kind == "array" and "items" in given:
        return pa.list_(_type(name, given["items"]))
    if kind == "string" and given.get("format") in _FORMATS:
        return _FORMATS[given["format"]]
    if kind not in _TYPES:
        raise click.UsageError(f"--schema: no column type fits {name!r}: {json.dumps(given)}")
    return _TYPES[kind]
