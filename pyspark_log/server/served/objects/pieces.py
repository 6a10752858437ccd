"""The bytes of pieces of partitions, read from an object store and kept in memory, as many as fit."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from pyspark_log.storage.fs import side_by_side
from pyspark_log.storage.objects import Objects
from pyspark_log.storage.publish_log.reading import bytes_of, with_offsets
from pyspark_log.storage.publish_log.state import Piece
from pyspark_log.storage.record import scan
from pyspark_log.types import TopicPartition

# What is kept at most, and how much is read at a time, where the next pieces are small; in bytes.
_KEPT, _AT_ONCE = 256 * 1024 * 1024, 8 * 1024 * 1024
# How many objects are read at the same time.
_SIDE_BY_SIDE = 8


class Loaded:
    """A piece with its bytes.

    Attributes:
        data: its record batches, with their offsets.
    """

    def __init__(self, data: memoryview) -> None:
        self.data = data
        headers = scan(data, 0, len(data))
        self._next_offsets = [header.next_offset for header in headers]
        self._ends = [header.end for header in headers]

    def cut(self, start: int, max_bytes: int) -> tuple[memoryview, int | None]:
        """The batches from the one that has `start` on, within `max_bytes`, but the first one.

        There are none if compaction has removed them.

        Returns:
            Their bytes, and the offset after them; None: these are the last ones.
        """
        first, count = bisect_right(self._next_offsets, start), len(self._ends)
        if first == count:
            return self.data[:0], None
        position = self._ends[first - 1] if first else 0
        after = max(bisect_right(self._ends, position + max_bytes), first + 1)
        return self.data[position : self._ends[after - 1]], None if after == count else self._next_offsets[after - 1]


class Pieces:
    """Those that were read last; safe to use from several threads.

    Attributes:
        objects: where they are read from.
    """

    def __init__(self, objects: Objects) -> None:
        """Has none yet."""
        self.objects, self._lock = objects, threading.Lock()
        self._loaded: OrderedDict[Piece, Loaded] = OrderedDict()
        self._size = 0

    def near(self, piece: Piece) -> Loaded | None:
        """A piece that is in memory; None: it is not."""
        with self._lock:
            loaded = self._loaded.get(piece)
            if loaded is not None:
                self._loaded.move_to_end(piece)
            return loaded

    def take(self, at: TopicPartition, pieces: Iterable[Piece], read: Mapping[str, memoryview]) -> None:
        """Keeps pieces whose objects were read just now, as far as `read` has their bytes. Errors as `load`."""
        for piece in pieces:
            data = read.get(piece.object, b"")[piece.position : piece.position + piece.size]
            if len(data) == piece.size:
                self._keep(piece, with_offsets(self.objects, at, piece, memoryview(bytearray(data))))

    def load(self, at: TopicPartition, pieces: Sequence[Piece]) -> Loaded:
        """The first of some pieces that follow each other; small ones after it are read, too. As reading.bytes_of."""
        first = self.near(pieces[0])
        if first is not None:
            return first
        together, size = list[Piece](), 0
        for piece in pieces:
            if together and (size + piece.size > _AT_ONCE or self.near(piece) is not None):
                break
            together.append(piece)
            size += piece.size
        objects = [list(group) for _, group in groupby(together, key=lambda piece: piece.object)]

        def read(group: Sequence[Piece]) -> list[memoryview]:
            return bytes_of(self.objects, group[0].object, [(at, piece) for piece in group])

        loaded = list[Loaded]()
        for group, parts in zip(objects, side_by_side(read, objects, _SIDE_BY_SIDE), strict=True):
            loaded += [self._keep(piece, data) for piece, data in zip(group, parts, strict=True)]
        return loaded[0]

    def _keep(self, piece: Piece, data: memoryview) -> Loaded:
        loaded = Loaded(data)
        with self._lock:
            if piece not in self._loaded:
                self._loaded[piece] = loaded
                self._size += piece.size
            while self._size > _KEPT and len(self._loaded) > 1:
                oldest, _ = self._loaded.popitem(last=False)
                self._size -= oldest.size
        return loaded
