"""Where each part of a value goes: a tree of slots for an Arrow type, one a column, each with its number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

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
