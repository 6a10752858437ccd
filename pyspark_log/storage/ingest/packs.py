"""How many bytes of records are taken together: encoded, kept, or appended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

_Item = TypeVar("_Item")

#: Bytes of batches that `BatchEncoder.pieces` yields at once: few enough to be in the processor's cache.
PIECE_SIZE = 2 * 1024 * 1024

#: Memory (bytes) of batches that are being filled, over all partitions; beyond it they are sealed as they are.
FILLING_BYTES = 64 * 1024 * 1024


def grouped(items: Iterable[_Item], most: int, size_of: Callable[[_Item], int]) -> Iterator[list[_Item]]:
    """Items in order, in lists of at most `most` bytes, or of one larger item."""
    found, size = list[_Item](), 0
    for item in items:
        if found and size + size_of(item) > most:
            yield found
            found, size = [], 0
        found.append(item)
        size += size_of(item)
    if found:
        yield found


def packed(batches: Iterable[bytes], size: int) -> Iterator[bytearray]:
    """Joins batches in order for few appends: each of at most `size` bytes, or of one larger batch."""
    return (bytearray().join(group) for group in grouped(batches, size, len))
