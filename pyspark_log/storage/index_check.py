"""Compares a segment's two indexes with its log, batch by batch as the log is walked through.

Each entry must be proven by the log, and where a rebuild would make one there must be one. Entries closer together
than `index.interval.bytes` asks for are right as well: the setting may have been another one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pyspark_log.storage import files
from pyspark_log.storage.batch import BatchHeader
from pyspark_log.storage.segment import INDEX, TIME_INDEX, segment_path
from pyspark_log.storage.sparse_index import OffsetEntry, OffsetIndex, TimeEntry, TimeIndex
from pyspark_log.storage.types import NO_TIMESTAMP

# How often, and how long apart (s), a writer is given time to add the entries of what it has just written.
_LOOKS = 5
_PAUSE = 0.01


class IndexFault(NamedTuple):
    """Something wrong with an index.

    Attributes:
        path: its file.
        position: the byte in it; -1: the file as a whole.
        what: what is wrong.
    """

    path: str
    position: int
    what: str


def _offset_entries(path: str, base_offset: int) -> list[OffsetEntry]:
    try:
        file = files.open_read(path)
    except FileNotFoundError:
        return []
    with file:
        index = OffsetIndex(file, base_offset)
        return [index.entry(number) for number in range(index.count)]


def _time_entries(path: str, base_offset: int) -> list[TimeEntry]:
    try:
        file = files.open_read(path)
    except FileNotFoundError:
        return []
    with file:
        index = TimeIndex(file, base_offset)
        return [index.entry(number) for number in range(index.count)]


class IndexCheck:
    """The check of one segment's indexes: give it each batch in order, then ask for `faults`."""

    def __init__(self, folder: str, base_offset: int, interval: int, end: int | None) -> None:
        """Reads the indexes.

        Args:
            folder, base_offset: which segment.
            interval: index.interval.bytes.
            end: for the active segment, the log end: entries for what is behind it are left out, as another
                process may be adding them. None: the segment is closed.
        """
        self._paths = [segment_path(folder, base_offset, suffix) for suffix in (INDEX, TIME_INDEX)]
        self._base = base_offset
        self._interval = interval
        self._closed = end is None
        offsets, times = self._read()
        self._offsets = _Track(entry for entry in offsets if end is None or entry.offset < end)
        self._times = _Track(entry for entry in times if end is None or entry.offset < end)
        self._since_entry = 0
        self._largest = TimeEntry(NO_TIMESTAMP, base_offset)
        self._entered = NO_TIMESTAMP  # the last time that has an entry, or should have one

    def _read(self) -> tuple[list[OffsetEntry], list[TimeEntry]]:
        return _offset_entries(self._paths[0], self._base), _time_entries(self._paths[1], self._base)

    def take(self, batch: BatchHeader) -> None:
        """Compares what the indexes say of the next batch. As in SegmentWriter, its time counts first."""
        if batch.max_timestamp > self._largest.timestamp:
            self._largest = TimeEntry(batch.max_timestamp, batch.last_offset)
        if self._times.has(self._largest, batch.last_offset):
            self._entered = self._largest.timestamp
        entry = OffsetEntry(batch.last_offset, batch.position)
        found = self._offsets.has(entry, batch.last_offset)
        if found or self._since_entry > self._interval:
            if not found:
                self._offsets.missing.append(entry)
            self._time_is_due()
            self._since_entry = 0
        self._since_entry += batch.size

    def _time_is_due(self) -> None:
        if self._largest.timestamp > self._entered:
            self._times.missing.append(self._largest)
            self._entered = self._largest.timestamp

    def faults(self) -> Iterator[IndexFault]:
        """What is wrong; all batches have been taken."""
        if self._closed:
            self._time_is_due()
        # Entries are added after the end has moved: what was missing at first may have come since, or come now.
        for look in range(_LOOKS):
            if not (self._offsets.missing or self._times.missing) or (look and self._closed):
                break
            time.sleep(_PAUSE * look)
            offsets, times = self._read()
            self._offsets.came(offsets)
            self._times.came(times)
        yield from self._offsets.faults(self._paths[0], OffsetIndex.WIDTH, self._closed)
        yield from self._times.faults(self._paths[1], TimeIndex.WIDTH, self._closed)


class _Track:
    """The entries of one index, and how far they were compared."""

    def __init__(self, entries: Iterable[OffsetEntry] | Iterable[TimeEntry]) -> None:
        self._entries: list[OffsetEntry | TimeEntry] = list(entries)
        self._next = 0
        self._unproven: list[int] = []
        self.missing: list[OffsetEntry | TimeEntry] = []

    def has(self, entry: OffsetEntry | TimeEntry, last_offset: int) -> bool:
        """Whether `entry` is next; entries up to the batch that ends at `last_offset` are done with."""
        found = False
        while self._next < len(self._entries) and self._entries[self._next].offset <= last_offset:
            if self._entries[self._next] == entry:
                found = True
            else:
                self._unproven.append(self._next)
            self._next += 1
        return found

    def came(self, entries: Iterable[OffsetEntry] | Iterable[TimeEntry]) -> None:
        """Strikes entries off the missing ones."""
        present = set[OffsetEntry | TimeEntry](entries)
        self.missing = [entry for entry in self.missing if entry not in present]

    def faults(self, path: str, width: int, closed: bool) -> Iterator[IndexFault]:
        """What is wrong with the index, one fault of each kind."""
        count = len(self._entries)
        unproven = [*self._unproven, *range(self._next, count)]
        if unproven:
            yield IndexFault(
                path, unproven[0] * width,
                f"{len(unproven)} of {count} entries are not what the log says, the first is "
                f"{self._entries[unproven[0]]}",
            )  # fmt: skip
        try:
            size = os.path.getsize(path)
        except FileNotFoundError:
            if closed or self.missing:
                yield IndexFault(path, -1, "the file is missing")
            return
        if self.missing:
            yield IndexFault(
                path, -1, f"{len(self.missing)} entries are missing, the first is {self.missing[0]}"
            )
        if size % width:
            yield IndexFault(path, size - size % width, "it ends inside an entry")
