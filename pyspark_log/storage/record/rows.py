"""The columns of records: as they are read, as they are passed in to be written, and as the compiled code reads them.

Arrow arrays come from other programs (a Spark worker's stream is not validated), so the sizes of their buffers are
checked here and offsets in the compiled code, once for each column.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_log.errors import InvalidConfigError, InvalidRecordError
from pyspark_log.near_names import did_you_mean
from pyspark_log.storage.record.builder import RecordColumns

# By number, as asking for each type by name takes longer than all else for a batch of a few rows.
_WIDE = {pa.large_binary().id, pa.large_string().id, pa.large_list(pa.int8()).id}
#: The types of columns of bytes or text that have offsets.
BYTES_TYPES = {pa.binary().id, pa.string().id, pa.large_binary().id, pa.large_string().id}
#: Those of times in ms.
TIMES = (pa.int64(), pa.timestamp("ms"))


class View(NamedTuple):
    """Addresses of an array's buffers; 0 for a missing buffer.

    Attributes:
        array: the array, to keep the buffers alive.
        rows: its length.
        first: the slot of its first row in the buffers (slices share them).
        validity: bitmap; 0 if there are no nulls.
        offsets: int32 or int64 edges of the values, of a column of bytes or lists.
        wide: whether the edges are int64.
        data: the bytes of a column of bytes, or the numbers of a column of numbers.
        size: bytes at `data`, or the number of values that a list's edges may point to.
    """

    array: pa.Array
    rows: int
    first: int
    validity: int
    offsets: int
    wide: bool
    data: int
    size: int


def bytes_view(array: pa.Array, column: str) -> View | None:
    """Returns the buffers of a column of bytes or text; None for the null type, which has none.

    Args:
        array: binary or string in any of Arrow's layouts.
        column: its name, for the error.

    Raises:
        InvalidRecordError: another type, or buffers that are too short for the array.
    """
    kind = array.type
    if kind.id not in BYTES_TYPES:
        if pa.types.is_null(kind):
            return None
        # These have no offsets, so they are converted; Spark does not send them.
        if pa.types.is_fixed_size_binary(kind) or pa.types.is_binary_view(kind):
            array = array.cast(pa.large_binary())
        elif pa.types.is_string_view(kind):
            array = array.cast(pa.large_string())
        else:
            raise InvalidRecordError(f"column {column} must be binary or string, not {kind}")
    data = array.buffers()[2]
    return _with_offsets(array, column, _address(data), 0 if data is None else data.size)


def list_view(array: pa.Array, column: str) -> View:
    """Returns the buffers of a list column; `size` is the number of values of all its lists.

    Raises:
        InvalidRecordError: another type, or buffers that are too short for the array.
    """
    if not (pa.types.is_list(array.type) or pa.types.is_large_list(array.type)):
        raise InvalidRecordError(f"column {column} must be list<struct<key: string, value: binary>>, not {array.type}")
    return _with_offsets(array, column, 0, len(array.values))


def fixed_view(array: pa.Array, column: str, kinds: tuple[pa.DataType, ...]) -> View:
    """Returns the buffers of a column of numbers of one of the types `kinds`.

    Raises:
        InvalidRecordError: another type, or buffers that are too short for the array.
    """
    if array.type not in kinds:
        raise InvalidRecordError(f"column {column} must be {' or '.join(map(str, kinds))}, not {array.type}")
    data = array.buffers()[1]
    size = 0 if data is None else data.size
    if size < (array.offset + len(array)) * (kinds[0].bit_width // 8):
        raise _too_short(column)
    return View(array, len(array), array.offset, _validity(array, column), 0, False, _address(data), size)


def struct_view(array: pa.StructArray, column: str) -> View:
    """Returns the validity of a struct column.

    Raises:
        InvalidRecordError: a bitmap that is too short for the array.
    """
    return View(array, len(array), array.offset, _validity(array, column), 0, False, 0, 0)


def _with_offsets(array: pa.Array, column: str, data: int, size: int) -> View:
    wide = array.type.id in _WIDE
    offsets = array.buffers()[1]
    needed = (array.offset + len(array) + 1) * (8 if wide else 4)
    # An empty array may come without offsets.
    if len(array) and (offsets is None or offsets.size < needed):
        raise _too_short(column)
    return View(array, len(array), array.offset, _validity(array, column), _address(offsets), wide, data, size)


def _validity(array: pa.Array, column: str) -> int:
    bitmap = array.buffers()[0]
    if bitmap is not None and bitmap.size * 8 < array.offset + len(array):
        raise _too_short(column)
    return _address(bitmap) if array.null_count else 0


def _address(buffer: pa.Buffer | None) -> int:
    return 0 if buffer is None else int(buffer.address)


def _too_short(column: str) -> InvalidRecordError:
    return InvalidRecordError(f"column {column}: its buffers are too short for its rows")


class ArrowStream(Protocol):
    """Data that can be read as Arrow: tables, batches and readers of pyarrow, data frames of Polars, pandas, DuckDB."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """A capsule with the data, as Arrow's PyCapsule interface defines it."""


#: Rows to append: Arrow data, or dicts.
Rows: TypeAlias = ArrowStream | Sequence[Mapping[str, Any]]

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

#: The columns of a read: those of Spark's Kafka connector.
ROW_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
    ]
)
_ROW_SCHEMA_WITH_HEADERS = ROW_SCHEMA.append(pa.field("headers", HEADERS))


def row_schema(headers: bool = False, columns: Sequence[str] | None = None) -> pa.Schema:
    """The columns of a read, with or without the column of headers; or `columns` of them, in their order.

    Raises:
        InvalidConfigError: there is no such column.
    """
    schema = _ROW_SCHEMA_WITH_HEADERS if headers else ROW_SCHEMA
    if not columns:
        return schema
    unknown = [name for name in columns if name not in schema.names]
    if unknown:
        raise InvalidConfigError(f"columns: no column {unknown[0]!r}; these are: {', '.join(schema.names)}")
    return pa.schema([schema.field(name) for name in columns])


class RowBuilder:
    """Adds topic and partition number to a partition's columns."""

    def __init__(self, topic: str, partition: int, schema: pa.Schema) -> None:
        """For rows of `schema`, as `row_schema` returns it."""
        self._schema = schema
        # By their buffers: pa.array and pa.scalar import pandas if it is installed, which takes a third of a second.
        number = pa.Array.from_buffers(pa.int32(), 1, [None, pa.py_buffer(array("i", [partition]))])
        name = topic.encode()
        text = pa.Array.from_buffers(
            pa.string(), 1, [None, pa.py_buffer(array("i", [0, len(name)])), pa.py_buffer(name)]
        )
        constants = {"topic": text[0], "partition": number[0]}
        self._constants = {name: value for name, value in constants.items() if name in schema.names}
        self._columns: dict[str, pa.Array] = {}
        self._rows = 0

    def rows(self, columns: Mapping[str, pa.Array], count: int) -> pa.RecordBatch:
        """A batch of `count` rows in the schema."""
        if count > self._rows:
            # As few as that at first: for a batch of one row, 64 Ki rows would take most of the time.
            self._rows = max(count, 2 * self._rows)
            self._columns = {name: pa.repeat(value, self._rows) for name, value in self._constants.items()}
        arrays = [
            self._columns[name].slice(0, count) if name in self._columns else columns[name]
            for name in self._schema.names
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def to_arrow(rows: Rows) -> pa.RecordBatch | pa.Table:
    """Converts rows to Arrow data.

    Args:
        rows: Arrow data in any form, a pandas DataFrame, or a sequence of dicts. The headers of a dict are pairs of
            name and value, or dicts with `key` and `value`.

    Raises:
        InvalidConfigError: they are no rows.
        InvalidRecordError: a value cannot be converted.
    """
    if isinstance(rows, (pa.RecordBatch, pa.Table)):
        return rows
    try:
        if hasattr(rows, "iloc"):  # Before its Arrow stream, in which the index is a column.
            return pa.Table.from_pandas(rows, preserve_index=False)
        if hasattr(rows, "__arrow_c_stream__"):
            return pa.table(rows)
        if isinstance(rows, Sequence) and all(isinstance(row, Mapping) for row in rows):
            return _table(rows)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise InvalidRecordError(f"the rows cannot be converted to Arrow data: {error}") from error
    if isinstance(rows, Mapping):
        raise InvalidConfigError("rows: expected a list of dicts, got one dict; write [{...}] to append one row")
    got = type(rows).__name__
    if isinstance(rows, list):
        other = next(row for row in rows if not isinstance(row, Mapping))
        got = f"a list with a {type(other).__name__}, {other!r:.80}"
    raise InvalidConfigError(
        f"rows: expected Arrow data (pyarrow, Polars, DuckDB), a pandas DataFrame or a list of dicts, got {got}"
    )


def _table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Dicts as a table. A column that is missing in a dict is null there; a name that is none is refused."""
    columns = {name: [row.get(name) for row in rows] for name in dict.fromkeys(name for row in rows for name in row)}
    for name in columns.keys() - set(_ROW_SCHEMA_WITH_HEADERS.names):
        number = next(number for number, row in enumerate(rows) if name in row)
        near = did_you_mean(name, _ROW_SCHEMA_WITH_HEADERS.names)
        raise InvalidRecordError(f"row {number} has {name!r}, which is no column{near}")
    headers = columns.pop("headers", None)
    arrays = {name: pa.array(values) for name, values in columns.items()}
    if headers is not None:
        arrays["headers"] = pa.array([None if one is None else _pairs(one) for one in headers], HEADERS)
    return pa.table(arrays)


def _pairs(headers: Iterable[object]) -> list[tuple[object, ...]]:
    """The headers of a record as pairs of name and value."""
    if isinstance(headers, Mapping):
        raise TypeError("headers: expected pairs of a name and a value, got a mapping: pass its items()")
    return [(one["key"], one.get("value")) if isinstance(one, Mapping) else _pair(one) for one in headers]


def _pair(header: object) -> tuple[object, ...]:
    if isinstance(header, (tuple, list)) and len(header) == 2:
        return tuple(header)
    raise TypeError(f"headers: expected a pair of a name and a value, got {header!r:.80}")


class WriteColumns:
    """The columns of records to be written, found by name and converted to the types that the kernels take.

    Attributes:
        records: key, value, headers and time.
        key, value: their arrays; `key` is None if there is no such column.
        partition: the partition of each row (null: to be chosen), or None.
        timestamp: the time of each row in ms (null: none), or None.
    """

    __slots__ = ("key", "partition", "records", "timestamp", "value")

    def __init__(self, data: pa.RecordBatch, now: int, *, keys_required: bool, where: str) -> None:
        """Reads the columns `value` (required), `key`, `headers`, `timestamp` and `partition`.

        Args:
            data: the records; other columns are ignored.
            now: the time in ms of records without one.
            keys_required: refuses a null key, as a compacted topic must.
            where: the topic, for errors.

        Raises:
            InvalidRecordError: a column is missing or of a wrong type, or a key is null.
        """
        columns = dict(zip(data.schema.names, data.columns, strict=True))
        if "value" not in columns:
            raise InvalidRecordError(f"{where}: there is no column 'value'; there are {data.schema.names}")
        self.value = _bytes(columns["value"], "value", where)
        self.key = _bytes(columns["key"], "key", where) if "key" in columns else None
        if keys_required and (self.key is None or self.key.null_count):
            raise InvalidRecordError(
                f"{where}: a record without a key; the topic is compacted (cleanup.policy), which requires keys"
            )
        self.partition = _cast(columns["partition"], pa.int32(), "partition", where) if "partition" in columns else None
        self.timestamp = _timestamp(columns["timestamp"], where) if "timestamp" in columns else None
        headers = _cast(columns["headers"], HEADERS, "headers", where) if "headers" in columns else None
        self.records = RecordColumns(self.key, self.value, self.timestamp, headers, now)
        if "timestamp" in columns and self.records.oldest <= 0:
            _check_since_1970(columns["timestamp"], where)


def _bytes(array: pa.Array, name: str, where: str) -> pa.Array:
    kind = array.type
    if kind.id in BYTES_TYPES:
        return array
    if pa.types.is_string_view(kind):
        return _cast(array, pa.string(), name, where)
    if pa.types.is_fixed_size_binary(kind) or pa.types.is_binary_view(kind) or pa.types.is_null(kind):
        return _cast(array, pa.binary(), name, where)
    raise InvalidRecordError(f"{where}: column '{name}' is of type {kind}; it must be binary or string")


def _timestamp(array: pa.Array, where: str) -> pa.Array:
    if pa.types.is_timestamp(array.type):
        # Finer times are truncated to ms; seconds may overflow.
        exact = array.type.unit == "s"
        try:
            return array.cast(pa.timestamp("ms", tz=array.type.tz), safe=exact).cast(pa.int64())
        except pa.ArrowInvalid as error:
            raise InvalidRecordError(f"{where}: column 'timestamp': {error}") from None
    return _cast(array, pa.int64(), "timestamp", where)


def _check_since_1970(times: pa.Array, where: str) -> None:
    """Refuses times before 1970 that are 0 or -1 once they are truncated to ms; but -1 ms itself is "no time"."""
    no_time = {"us": -1_000, "ns": -1_000_000}.get(getattr(times.type, "unit", "ms"))
    if no_time is None:
        return
    numbers = times.cast(pa.int64())
    row = pc.index(pc.and_(pc.less(numbers, 0), pc.not_equal(numbers, no_time)), True).as_py()
    if row >= 0:
        raise InvalidRecordError(f"{where}: row {row} has the time {numbers[row]} {times.type.unit}, before 1970")


def _cast(array: pa.Array, kind: pa.DataType, name: str, where: str) -> pa.Array:
    if array.type == kind:
        return array
    try:
        return pc.cast(array, kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidRecordError(
            f"{where}: column '{name}' is of type {array.type}; it must be {kind} ({error})"
        ) from None
