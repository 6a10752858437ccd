"""The addresses of an Arrow array's buffers, for the compiled code that reads them.

Arrow arrays come from other programs (a Spark worker's stream is not validated), so sizes are
checked here and offsets in the compiled code, once for each column.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from pyspark_log.errors import InvalidRecordError

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
