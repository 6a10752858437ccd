"""The two sparse indexes of a segment: `.index` (offsets) and `.timeindex` (timestamps).

Entries are of fixed width and increase, as in Kafka's OffsetIndex and TimeIndex. An index is a cache:
it has no checksum and is never trusted over the log. A reader uses an entry only after the log has
confirmed it (see segment.py); a file that is missing, truncated or damaged costs time, not correctness.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from pyspark_log.config import LONG_MAX
from pyspark_log.storage.fs import files
from pyspark_log.types import NO_TIMESTAMP

#: Returned for an entry that cannot be read: the file was truncated after it was counted. No log confirms it.
_GONE = -1

_OFFSET_ENTRY = struct.Struct(">iI")
_TIME_ENTRY = struct.Struct(">qi")
# This many entries are read at a time when all of them are needed.
_BLOCK = 4096
# This many are read at once in a search, which costs less than to read the nine of them that it looks at.
_NEAR = 512


def _unpacked(file: files.File, layout: struct.Struct) -> Iterator[tuple[int, int]]:
    position = 0
    while data := file.pread(_BLOCK * layout.size, position):
        position += len(data)
        yield from layout.iter_unpack(data[: len(data) - len(data) % layout.size])


class OffsetEntry(NamedTuple):
    """The batch that starts at byte `position` of the log has the last offset `offset`."""

    offset: int
    position: int


class TimeEntry(NamedTuple):
    """`timestamp` (ms) is the largest of the segment up to and with `offset`."""

    timestamp: int
    offset: int


class OffsetIndex:
    """One `.index` file: 8-byte entries (offset less the segment's base, position)."""

    WIDTH = _OFFSET_ENTRY.size

    def __init__(self, file: files.File, base_offset: int) -> None:
        self._file = file
        self._base = base_offset
        #: The number of complete entries in the file.
        self.count = file.size() // self.WIDTH

    def entry(self, number: int) -> OffsetEntry:
        """The entry with that number, from 0."""
        data = self._file.pread(self.WIDTH, number * self.WIDTH)
        if len(data) < self.WIDTH:
            return OffsetEntry(_GONE, _GONE)
        relative, position = _OFFSET_ENTRY.unpack(data)
        return OffsetEntry(self._base + relative, position)

    def entries(self) -> Iterator[OffsetEntry]:
        """All complete entries that the file holds now, in order; a few at a time are in memory."""
        for relative, position in _unpacked(self._file, _OFFSET_ENTRY):
            yield OffsetEntry(self._base + relative, position)

    def floor(self, offset: int) -> int:
        """The number of the last entry with an offset of at most `offset`; -1 if there is none."""
        return self._last(0, offset - self._base)

    def floor_by_position(self, position: int) -> int:
        """The number of the last entry at `position` (bytes) or before it; -1 if there is none."""
        return self._last(1, position)

    def _last(self, field: int, most: int) -> int:
        """The number of the last entry of which a field, as it is stored, is at most `most`; -1 if there is none."""
        low, high, width = -1, self.count - 1, self.WIDTH
        while high - low > _NEAR:
            middle = (low + high + 1) // 2
            if _is_at_most(self._file.pread(width, middle * width), 0, field, most):
                low = middle
            else:
                high = middle - 1
        data, first = self._file.pread((high - low) * width, (low + 1) * width), low + 1
        while low < high:
            middle = (low + high + 1) // 2
            if _is_at_most(data, (middle - first) * width, field, most):
                low = middle
            else:
                high = middle - 1
        return low

    def append(self, *entries: OffsetEntry) -> None:
        """Appends entries."""
        data = b"".join([_OFFSET_ENTRY.pack(offset - self._base, position) for offset, position in entries])
        self._file.pwrite(data, self.count * self.WIDTH)
        self.count += len(entries)

    def cut(self, count: int) -> None:
        """Truncates to the first `count` entries."""
        if self._file.size() != count * self.WIDTH:
            self._file.truncate(count * self.WIDTH)
        self.count = count

    def sync(self) -> None:
        """Makes the entries durable."""
        self._file.sync()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def _is_at_most(data: bytes, at: int, field: int, most: int) -> bool:
    """Whether an entry is there of which a field is at most `most`."""
    if at + _OFFSET_ENTRY.size > len(data):
        return False  # The file was truncated after its entries were counted.
    entry = _OFFSET_ENTRY.unpack_from(data, at)
    # No entry is of the base itself: those are the zeros after the last one, in a preallocated file.
    return bool(entry[0] > 0 and entry[field] <= most)


class TimeIndex:
    """One `.timeindex` file: 12-byte entries (timestamp, offset less the segment's base)."""

    WIDTH = _TIME_ENTRY.size

    def __init__(self, file: files.File, base_offset: int) -> None:
        self._file = file
        self._base = base_offset
        # What follows the last entry of a file that Kafka has preallocated.
        self._zeros = TimeEntry(0, base_offset)
        #: The number of complete entries in the file.
        self.count = file.size() // self.WIDTH
        self._newest: int | None = None  # the last entry's timestamp; None: not known

    def entry(self, number: int) -> TimeEntry:
        """The entry with that number, from 0."""
        data = self._file.pread(self.WIDTH, number * self.WIDTH)
        if len(data) < self.WIDTH:
            return TimeEntry(_GONE, _GONE)
        timestamp, relative = _TIME_ENTRY.unpack(data)
        return TimeEntry(timestamp, self._base + relative)

    def entries(self) -> Iterator[TimeEntry]:
        """All complete entries that the file holds now, in order; a few at a time are in memory."""
        for timestamp, relative in _unpacked(self._file, _TIME_ENTRY):
            yield TimeEntry(timestamp, self._base + relative)

    def last(self) -> TimeEntry | None:
        """The last entry, if there is one."""
        return self.entry(self.count - 1) if self.count else None

    def last_before_zeros(self) -> TimeEntry | None:
        """The last entry before the free space that a broker has preallocated, if there is one."""
        last = self.last()
        if last != self._zeros:
            return last
        number = self.floor(LONG_MAX)
        return self.entry(number) if number >= 0 else None

    def floor(self, timestamp: int) -> int:
        """The number of the last entry with a timestamp of at most `timestamp`; -1 if there is none."""
        low, high = -1, self.count - 1
        while low < high:
            middle = (low + high + 1) // 2
            entry = self.entry(middle)
            if entry.timestamp <= timestamp and entry != self._zeros:
                low = middle
            else:
                high = middle - 1
        return low

    def append(self, *entries: TimeEntry) -> None:
        """Appends entries, without those for which the last one before has that timestamp or a larger one already."""
        if self._newest is None:
            last = self.last()
            self._newest = NO_TIMESTAMP if last is None else last.timestamp
        data = bytearray()
        for timestamp, offset in entries:
            if timestamp > self._newest:
                self._newest = timestamp
                data += _TIME_ENTRY.pack(timestamp, offset - self._base)
        if data:
            self._file.pwrite(data, self.count * self.WIDTH)
            self.count += len(data) // self.WIDTH

    def cut(self, offset: int) -> None:
        """Truncates to the entries of offsets below `offset`."""
        self._newest = None
        while self.count and self.entry(self.count - 1).offset >= offset:
            self.count -= 1
        if self._file.size() != self.count * self.WIDTH:
            self._file.truncate(self.count * self.WIDTH)

    def clear(self) -> None:
        """Removes all entries, whatever they are."""
        self.count, self._newest = 0, None
        if self._file.size():
            self._file.truncate(0)

    def sync(self) -> None:
        """Makes the entries durable."""
        self._file.sync()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
