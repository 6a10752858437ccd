"""Lines that people and programs send to `pylog produce`, as columns of records."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as arrow_json

from pyspark_log.cli.producing.bad_json import what_is_wrong
from pyspark_log.cli.producing.base64_column import decoded

_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
_NO_HEADERS = pa.scalar([], pa.list_(_HEADER))
# What `pylog consume --format json` prints. The store sets topic, offset and timestampType.
_OBJECT = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("timestampType", pa.string()),
        ("key", pa.string()),
        ("key_base64", pa.string()),
        ("value", pa.string()),
        ("value_base64", pa.string()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.string()), ("value_base64", pa.string())]))),
    ]
)

#: The columns of records by name.
Columns = dict[str, pa.Array]


class BadLineError(ValueError):
    """A line that is no record.

    Attributes:
        line: its number among those that were given, from 0; None: it is not known which.
    """

    def __init__(self, what: str, line: int | None = None) -> None:
        """`what` follows the number of the line in a message."""
        super().__init__(what)
        self.line = line


@dataclass(frozen=True)
class LineLayout:
    """What a line of text consists of, in the order and form of Kafka's console producer.

    Attributes:
        key_separator: what is between key and value; None: there is no key.
        parse_headers: whether headers come first.
        headers_delimiter, headers_separator, headers_key_separator: what is after the headers, between two of them,
            and between the name and the value of one.
        null_marker: the text that means null as a key, a value or the value of a header; None: no text does.
    """

    key_separator: str | None
    parse_headers: bool
    headers_delimiter: str
    headers_separator: str
    headers_key_separator: str
    null_marker: str | None

    @property
    def has_empty_separator(self) -> bool:
        """Whether a text between two others is none."""
        return "" in (self.key_separator, self.headers_delimiter, self.headers_separator, self.headers_key_separator)


def from_text(lines: bytes, layout: LineLayout) -> Columns:
    """The records of lines of text. BadLineError."""
    columns: Columns = {}
    values = pc.split_pattern(pa.array([lines], pa.large_binary()), b"\n").flatten()
    if layout.parse_headers:
        texts, values = _split(values, layout.headers_delimiter, "headers delimiter")
        columns["headers"] = _headers(texts, layout)
    if layout.key_separator is not None:
        keys, values = _split(values, layout.key_separator, "key separator")
        columns["key"] = _with_nulls(keys, layout.null_marker)
    return {**columns, "value": _with_nulls(values, layout.null_marker)}


def from_json(lines: bytes, encoded: Callable[[Columns], Columns] = lambda columns: columns) -> Columns:
    """The records of lines with a JSON object each, as `pylog consume --format json` prints them.

    BadLineError; `encoded` may raise it, too, with the number of a record.
    """
    begin = lines.lstrip()
    if not begin:
        return {"value": pa.array([], pa.binary())}
    if begin.startswith(b"null"):  # Arrow 26 crashes.
        raise _bad_line(lines, "null")
    try:
        return encoded(_from_objects(lines))
    except pa.ArrowInvalid as error:
        raise _bad_line(lines, str(error)) from None
    except BadLineError as error:
        # Empty lines are no records.
        numbers = [number for number, line in enumerate(lines.split(b"\n")) if line.strip()]
        if error.line is not None and error.line < len(numbers):
            error.line = numbers[error.line]
        raise


def _from_objects(lines: bytes) -> Columns:
    read = arrow_json.read_json(
        io.BytesIO(lines),
        arrow_json.ReadOptions(use_threads=False, block_size=len(lines) + 1),
        arrow_json.ParseOptions(explicit_schema=_OBJECT, unexpected_field_behavior="error"),
    )
    columns = {name: read.column(name).combine_chunks() for name in read.column_names}
    headers = columns["headers"]
    entries = headers.flatten()
    names = pc.struct_field(entries, "key")
    if names.null_count:
        raise BadLineError("has a header without a key", _first(headers, names.is_null()))
    values = _bytes(pc.struct_field(entries, "value"), pc.struct_field(entries, "value_base64"), "value of a header")
    structs = pa.StructArray.from_arrays([names, values.cast(pa.binary())], fields=list(_HEADER))
    return {
        "key": _bytes(columns["key"], columns["key_base64"], "key"),
        "value": _bytes(columns["value"], columns["value_base64"], "value"),
        "headers": pa.ListArray.from_arrays(_offsets(headers), structs),
        "timestamp": columns["timestamp"],
        "partition": columns["partition"],
    }


def _bad_line(lines: bytes, error: str) -> BadLineError:
    """What is wrong with the first line that is no record; else as Arrow has it."""
    for number, line in enumerate(lines.split(b"\n")):
        if line.strip() and (wrong := what_is_wrong(line, _OBJECT)) is not None:
            return BadLineError(wrong, number)
    return BadLineError(f"is no record: {error}")


def with_headers(columns: Columns, more: Sequence[tuple[str, bytes | None]]) -> Columns:
    """The records with some more headers, the same for each, after their own."""
    count = len(columns["value"])
    if not more:
        return columns
    own = columns.get("headers", pa.repeat(_NO_HEADERS, count))
    rows = pa.array(range(count), pa.int64())
    entries = [pa.repeat(pa.scalar({"key": key, "value": value}, _HEADER), count) for key, value in more]
    parents = pa.concat_arrays([pc.list_parent_indices(own), *[rows] * len(more)])
    order = pc.array_sort_indices(parents)  # It is stable.
    values = pa.concat_arrays([own.flatten(), *entries]).take(order)
    return {**columns, "headers": pa.ListArray.from_arrays(_offsets(own, len(more)), values)}


def _split(texts: pa.Array, separator: str, name: str) -> tuple[pa.Array, pa.Array]:
    """What comes before and after the first separator of each text. BadLineError: one has none."""
    pairs = pc.split_pattern(texts, separator.encode(), max_splits=1)
    without = pc.index(pc.list_value_length(pairs), 1).as_py()
    if without >= 0:
        raise BadLineError(f"has no {name} {separator!r}", without)
    return pc.list_element(pairs, 0), pc.list_element(pairs, 1)


def _headers(texts: pa.Array, layout: LineLayout) -> pa.Array:
    """The headers of each text: `a:1,b:2`, or nothing."""
    some = pc.if_else(pc.equal(pc.binary_length(texts), 0), None, texts)
    lists = pc.split_pattern(some, layout.headers_separator.encode())
    pairs = pc.split_pattern(lists.flatten(), layout.headers_key_separator.encode(), max_splits=1)
    single = pc.equal(pc.list_value_length(pairs), 1)
    if pc.any(single).as_py():
        raise BadLineError(f"has a header without {layout.headers_key_separator!r}", _first(lists, single))
    try:
        keys = pc.list_element(pairs, 0).cast(pa.string())
    except pa.ArrowInvalid:
        raise BadLineError("has a header whose name is no UTF-8") from None
    values = _with_nulls(pc.list_element(pairs, 1), layout.null_marker).cast(pa.binary())
    return pa.ListArray.from_arrays(_offsets(lists), pa.StructArray.from_arrays([keys, values], fields=list(_HEADER)))


def _first(lists: pa.Array, which: pa.Array) -> int:
    """The number of the list that has the first of the entries for which `which` is true."""
    row: int = pc.list_parent_indices(lists)[pc.index(which, True).as_py()].as_py()
    return row


def _offsets(lists: pa.Array, more: int = 0) -> pa.Array:
    """The offsets of lists whose entries follow each other, without those of null lists; `more` entries in each."""
    lengths = pc.add(pc.list_value_length(lists).fill_null(0), more)
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths).cast(pa.int32())])


def _with_nulls(texts: pa.Array, marker: str | None) -> pa.Array:
    if marker is None:
        return texts
    return pc.if_else(pc.equal(texts, pa.scalar(marker.encode(), texts.type)), None, texts)


def _bytes(texts: pa.Array, base64: pa.Array, name: str) -> pa.Array:
    """The bytes that are given as a text, or as base64."""
    if base64.null_count == len(base64):
        return texts.cast(pa.binary())
    if pc.any(pc.and_(texts.is_valid(), base64.is_valid())).as_py():
        raise BadLineError(f"has the {name} twice, as text and as base64")
    try:
        return pc.coalesce(texts.cast(pa.large_binary()), decoded(base64))
    except ValueError as error:
        raise BadLineError(f"has a {name} that cannot be read: {error}") from None


def constant(columns: Mapping[str, pa.Array], value: int) -> pa.Array:
    """A column of a whole number, the same for each record."""
    return pa.repeat(pa.scalar(value, pa.int64()), len(columns["value"]))
