"""Where each part of a value goes: a tree of slots for an Arrow type, one a column, each with its number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from pyspark_log.errors import InvalidRecordError

# What a column stores, as arrow_columns.pxd has it.
_NULLS, _BITS, _FIXED, _TEXT, _LIST, _STRUCT = range(6)


@dataclass(frozen=True)
class Slot:
    """One column, and those of its parts.

    Attributes:
        number: counted through the tree, each column before its parts.
        type: the Arrow type of its values.
        kind: what it stores.
        width: bytes of a value of fixed size; else 0.
        children: a struct's fields; a list's items; a map's entries, which are structs of key and value.
        after: the number after those of its parts.
    """

    number: int
    type: pa.DataType
    kind: int
    width: int
    children: tuple[Slot, ...]
    after: int

    def flat(self) -> list[Slot]:
        """This slot and all of its parts, by their numbers."""
        return list(self._walk())

    def _walk(self) -> Iterator[Slot]:
        yield self
        for child in self.children:
            yield from child.flat()


def slot_of(kind: pa.DataType, number: int = 0) -> Slot:
    """The slots of a type that the decoders have.

    Args:
        kind: the type.
        number: that of the first one.
    """
    parts: list[pa.DataType] = []
    if pa.types.is_struct(kind):
        stored, parts = _STRUCT, [field.type for field in kind]
    elif pa.types.is_map(kind):
        stored, parts = _LIST, [pa.struct([kind.key_field, kind.item_field])]
    elif pa.types.is_list(kind):
        stored, parts = _LIST, [kind.value_type]
    elif pa.types.is_null(kind):
        stored = _NULLS
    elif pa.types.is_boolean(kind):
        stored = _BITS
    else:
        stored = _TEXT if pa.types.is_binary(kind) or pa.types.is_string(kind) else _FIXED
    children, after = list[Slot](), number + 1
    for part in parts:
        children.append(slot_of(part, after))
        after = children[-1].after
    width = kind.bit_width // 8 if stored == _FIXED else 0
    return Slot(number, kind, stored, width, tuple(children), after)


def cast_columns(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Columns as the schema has them in Arrow: fields in its order, those that are not there as nulls."""
    if not pa.types.is_struct(kind):
        return values if values.type == kind else values.cast(kind)
    places = {values.type.field(at).name: at for at in range(values.type.num_fields)}
    parts = values.flatten()
    fields = [
        cast_columns(parts[places[field.name]], field.type)
        if field.name in places
        else pa.nulls(len(values), field.type)
        for field in kind
    ]
    return pa.StructArray.from_arrays(fields, fields=list(kind), mask=values.is_null() if values.null_count else None)


def arrays_of(values: pa.Array, slot: Slot) -> list[tuple[pa.Array, int] | None]:
    """Values as the type of a slot: the arrays of it and its parts by their numbers, each with its width in bytes.

    InvalidRecordError: they do not fit the type.
    """
    try:
        fitting = cast_columns(values, slot.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise InvalidRecordError(f"values do not fit their schema: {error}") from None
    arrays: list[tuple[pa.Array, int] | None] = [None] * slot.after
    _collect(fitting, slot, arrays)
    return arrays


def _collect(array: pa.Array, slot: Slot, to: list[tuple[pa.Array, int] | None]) -> None:
    """The arrays of a slot and its parts, by their numbers."""
    to[slot.number] = (array, slot.width)
    if pa.types.is_struct(slot.type):
        for at, child in enumerate(slot.children):
            _collect(array.field(at), child, to)
    elif pa.types.is_map(slot.type):
        key, item = slot.children[0].children
        _collect(array.keys, key, to)
        _collect(array.items, item, to)
    elif pa.types.is_list(slot.type):
        _collect(array.values, slot.children[0], to)
