"""Values that are JSON objects as columns, parsed by Arrow, a batch at a time."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from pyspark_log.errors import SchemaError
from pyspark_log.schemas.json.types import arrow_schema
from pyspark_log.schemas.schema import Schema

_LAST = 2**31 - 1
_ROW = re.compile(r"in row (\d+)")
# Rows that are parsed apart from the others after a bad one, as more bad ones may come soon.
_PIECE = 2000


class JsonDecoder:
    """Decodes JSON objects into columns. Fields that the schema has not are left out, and missing ones are null.

    Attributes:
        type: the Arrow type of a value.
    """

    def __init__(self, reader: Schema) -> None:
        """SchemaError: the schema is none, or Arrow reads no such columns from JSON."""
        try:
            document = json.loads(reader.text)
        except (ValueError, RecursionError) as error:
            raise SchemaError(f"not a JSON Schema: {error}") from None
        self.type = pa.struct(list(arrow_schema(document)))
        check_json_type(self.type)

    def writer(self, schema: Schema) -> int:  # what JSON is needs no schema
        """The number of any writer."""
        return 0

    def left_out(self, values: Mapping[int, int]) -> dict[tuple[str, ...], int]:
        """Nothing is known of what writers have."""
        return {}

    def decode(self, values: pa.Array, prefix: int, which: pa.Array | None) -> tuple[pa.Array, list[tuple[int, str]]]:
        """Decodes values; arguments and result as those of AvroDecoder."""
        if which is not None:
            values = pc.if_else(pc.greater_equal(which, 0), values, None)
        # Without an end Arrow fails if values are shorter than the prefix, on average.
        return parse_all_json(pc.binary_slice(values, prefix, _LAST) if prefix else values, self.type)


def parse_all_json(values: pa.Array, kind: pa.DataType) -> tuple[pa.Array, list[tuple[int, str]]]:
    """Parses values into structs of a type; what is none is null, with its row and the reason.

    A bad one is found by the row that the error names, or by halves; what is around it is parsed together.
    """
    parts, bad = list[pa.Array](), list[tuple[int, str]]()
    rest = [(values, 0)]
    while rest:
        values, begin = rest.pop()
        try:
            parts.append(_parse_json(values, kind))
        except pa.ArrowInvalid as error:
            if len(values) == 1:
                bad.append((begin, str(error)))
                parts.append(pa.nulls(1, kind))
                continue
            row = _ROW.search(str(error))
            at = int(row[1]) if row and int(row[1]) < len(values) else len(values) // 2
            edges = [0, at, at + 1, at + _PIECE, len(values)]
            rest += [(values[first:end], begin + first) for first, end in pairwise(edges) if first < end][::-1]
    return pa.concat_arrays(parts) if len(parts) != 1 else parts[0], bad


def _parse_json(values: pa.Array, kind: pa.DataType) -> pa.StructArray:
    """Parses values into structs of a type; null gives null. ArrowInvalid: one of them does not fit."""
    if not len(values):
        return pa.nulls(0, kind)
    return _parse(values, _read_as(kind)).cast(kind)


def check_json_type(kind: pa.DataType) -> None:
    """Refuses a type that Arrow does not read from JSON. SchemaError."""
    try:
        _parse_json(pa.array([b"{}"]), kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaError(str(error)) from error


def _parse(values: pa.Array, kind: pa.StructType) -> pa.StructArray:
    """Parses values as the lines of one text.

    Each begins and ends with a brace. So the brace at the end of a line can only end an object that is within no other:
    what follows it is neither a comma nor an end, nor may a text have a line break. As many objects as values are one
    object a value, then.
    """
    # Casting checks that it is UTF-8.
    texts = values.cast(pa.string())
    if _not_in_braces(texts) >= 0:
        texts = pc.utf8_trim(texts, " \t\r\n")
        texts = pc.if_else(pc.equal(texts, "null"), None, texts)
        if (row := _not_in_braces(texts)) >= 0:
            raise pa.ArrowInvalid(f"it is no JSON object in row {row}")
    lines = pc.binary_join(pa.ListArray.from_arrays([0, len(texts)], texts.fill_null("{}")), "\n")[0].as_buffer()
    table = arrow_json.read_json(
        pa.BufferReader(lines),
        arrow_json.ReadOptions(use_threads=False, block_size=lines.size + 1),
        arrow_json.ParseOptions(explicit_schema=pa.schema(list(kind)), unexpected_field_behavior="ignore"),
    )
    if table.num_rows != len(texts):
        raise pa.ArrowInvalid("a value has several objects")
    columns = [column.combine_chunks() for column in table.columns]
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=texts.is_null())


def _not_in_braces(texts: pa.Array) -> int:
    """The first row that does not begin and end with a brace; -1: there is none."""
    return int(pc.index(pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}")), value=False).as_py())


def _read_as(kind: pa.DataType) -> pa.DataType:
    """As what Arrow reads a type from JSON: dates are the midnights of days, as it reads times and no dates."""
    if pa.types.is_date(kind):
        return pa.timestamp("s")
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_read_as(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_read_as(kind.value_type)))
    return kind
