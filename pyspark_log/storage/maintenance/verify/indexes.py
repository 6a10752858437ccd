"""Compares a segment's two indexes with its log, batch by batch as the log is walked through.

Each entry must be proven by the log, and where a rebuild would make one there must be one. Entries closer together
than `index.interval.bytes` asks for are right as well: the setting may have been another one. However long the
indexes are, and whatever they hold, only a few of their entries are in memory.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from pyspark_log.storage.fs import files
from pyspark_log.storage.record import SMALLEST_MESSAGE, BatchHeader
from pyspark_log.storage.segment import INDEX, TIME_INDEX, OffsetEntry, OffsetIndex, TimeEntry, TimeIndex, segment_path
from pyspark_log.types import NO_TIMESTAMP

# How often, and how long apart (s), a writer is given time to add the entries of what it has just written.
_LOOKS = 5
_PAUSE = 0.01
# A writer never lags by more entries than this, so no more missing entries need be kept.
_MOST_BEHIND = 1000


class IndexFault(NamedTuple):
    """Something wrong with an index.

    Attributes:
        path: its file.
        position: the byte in it; -1: the whole file.
        what: what is wrong.
    """

    path: str
    position: int
    what: str


class IndexCheck:
    """The check of one segment's indexes: give it each batch in order, then ask for `faults`."""

    def __init__(self, folder: str, base_offset: int, interval: int, size: int, end: int | None) -> None:
        """Opens the indexes.

        Args:
            folder, base_offset: which segment.
            interval: index.interval.bytes.
            size: how many bytes of its log count.
            end: for the active segment, the log end: entries beyond it are skipped, as another process may be adding
                them. None: the segment is inactive.
        """
        self._interval = interval
        self._closed = end is None
        # Each entry is for a batch of its own; what an index has beyond that is not looked at.
        most = size // SMALLEST_MESSAGE + 1
        self._offsets = _Track(OffsetIndex, segment_path(folder, base_offset, INDEX), base_offset, most, end)
        self._times = _Track(TimeIndex, segment_path(folder, base_offset, TIME_INDEX), base_offset, most, end)
        self._since_entry = 0
        self._largest = TimeEntry(NO_TIMESTAMP, base_offset)
        self._entered = NO_TIMESTAMP  # the last time that has an entry, or should have one

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
                self._offsets.lacks(entry)
            self._time_is_due()
            self._since_entry = 0
        self._since_entry += batch.size

    def _time_is_due(self) -> None:
        if self._largest.timestamp > self._entered:
            self._times.lacks(self._largest)
            self._entered = self._largest.timestamp

    def faults(self) -> Iterator[IndexFault]:
        """What is wrong; all batches have been taken."""
        if self._closed:
            self._time_is_due()
        tracks = (self._offsets, self._times)
        # Entries are added after the end has moved: what was missing at first may have come since, or come now.
        for look in range(_LOOKS):
            if not any(track.may_come for track in tracks) or (look and self._closed):
                break
            time.sleep(_PAUSE * look)
            for track in tracks:
                track.look_again()
        for track in tracks:
            yield from track.faults(self._closed)


class _Track:
    """The entries of one index, and how far they were compared."""

    def __init__(
        self, kind: type[OffsetIndex] | type[TimeIndex], path: str, base_offset: int, most: int, end: int | None
    ) -> None:
        self._kind, self._path, self._base, self._most = kind, path, base_offset, most
        self._entries = (entry for entry in self._read() if end is None or entry.offset < end)
        self._ahead = next(self._entries, None)  # the first that is not compared yet
        self._count = 0  # of those that are
        self._unproven = 0
        self._first_unproven: tuple[int, OffsetEntry | TimeEntry] | None = None
        self._missing: list[OffsetEntry | TimeEntry] = []
        self._missing_count = 0

    def _read(self) -> Iterator[OffsetEntry | TimeEntry]:
        try:
            file = files.open_read(self._path)
        except FileNotFoundError:
            return
        with file:
            yield from islice(self._kind(file, self._base).entries(), self._most)

    def has(self, entry: OffsetEntry | TimeEntry, last_offset: int) -> bool:
        """Whether `entry` is next; entries up to the batch that ends at `last_offset` are done with."""
        found = False
        while self._ahead is not None and self._ahead.offset <= last_offset:
            if self._ahead == entry:
                found = True
            else:
                self._doubt(self._ahead)
            self._advance()
        return found

    def _advance(self) -> None:
        self._count += 1
        self._ahead = next(self._entries, None)

    def _doubt(self, entry: OffsetEntry | TimeEntry) -> None:
        self._unproven += 1
        self._first_unproven = self._first_unproven or (self._count, entry)

    def lacks(self, entry: OffsetEntry | TimeEntry) -> None:
        """Notes a missing entry."""
        self._missing_count += 1
        if len(self._missing) <= _MOST_BEHIND:
            self._missing.append(entry)

    @property
    def may_come(self) -> bool:
        """Whether a writer may be about to add all that is missing."""
        return 0 < self._missing_count <= _MOST_BEHIND

    def look_again(self) -> None:
        """Strikes what has come since off the missing entries."""
        if self.may_come:
            still = set(self._missing)
            still.difference_update(self._read())
            self._missing = [entry for entry in self._missing if entry in still]
            self._missing_count = len(self._missing)

    def faults(self, closed: bool) -> Iterator[IndexFault]:
        """What is wrong with the index, one fault of each kind."""
        while self._ahead is not None:
            self._doubt(self._ahead)
            self._advance()
        width = self._kind.WIDTH
        if self._first_unproven is not None:
            number, entry = self._first_unproven
            yield IndexFault(
                self._path, number * width,
                f"{self._unproven} of {self._count} entries are not what the log says, the first is {entry}",
            )  # fmt: skip
        try:
            size = files.size_of(self._path)
        except FileNotFoundError:
            if closed or self._missing:
                yield IndexFault(self._path, -1, "the file is missing")
            return
        if self._missing:
            yield IndexFault(
                self._path, -1, f"{self._missing_count} entries are missing, the first is {self._missing[0]}"
            )
        if closed and size // width > self._most:
            yield IndexFault(
                self._path, self._most * width, f"it has {size // width} entries, and the log has no more batches than "
                f"{self._most}",
            )  # fmt: skip
        if size % width:
            yield IndexFault(self._path, size - size % width, "it ends inside an entry")
