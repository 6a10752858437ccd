"""Compares a segment's two indexes with those that its writer would make, batch by batch as the log is walked through.

Indexes are sparse, so this compares for truth: each entry must be proven by the log, and where the writer's schedule
has one there must be one. Entries closer together are right as well: `index.interval.bytes` may have been less, or a
Kafka broker has made them. So are entries further apart at the beginning of a segment, if one larger interval explains
them all: it has been lowered since. However long the indexes are, and whatever they hold, only a few of their entries
are in memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import islice

from pyspark_log.config import LONG_MAX
from pyspark_log.storage.fs import files
from pyspark_log.storage.maintenance.verify.findings import Finding
from pyspark_log.storage.record import BatchHeader
from pyspark_log.storage.record.layout import SMALLEST_MESSAGE
from pyspark_log.storage.segment.file_names import INDEX, TIME_INDEX, segment_path
from pyspark_log.storage.segment.indexes import OffsetEntry, OffsetIndex, TimeEntry, TimeIndex
from pyspark_log.storage.segment.segment import IndexSchedule
from pyspark_log.types import NO_TIMESTAMP

#: Makes a finding of a path, what is wrong, and the byte in the file, or -1.
MakeFinding = Callable[[str, str, int], Finding]

# How often, and how long apart (s), a writer is given time to add the entries of what it has just written.
_ATTEMPTS = 5
_PAUSE = 0.01
# The end of an index: no entry has an offset that large.
_NO_ENTRY = OffsetEntry(LONG_MAX + 1, -1)
# A writer never lags by more entries than this, so no more missing entries need be kept.
_MOST_BEHIND = 1000


class IndexCheck:
    """The check of one segment's indexes: give it each batch in order, then ask for `findings`."""

    def __init__(self, folder: str, base_offset: int, interval: int, size: int, end: int | None) -> None:
        """Opens the indexes.

        Args:
            folder, base_offset: which segment.
            interval: index.interval.bytes.
            size: how many bytes of its log count.
            end: for the active segment, the log end: entries beyond it are skipped, as another process may be adding
                them. None: the segment is inactive.
        """
        self._inactive = end is None
        self._schedule = IndexSchedule(base_offset, interval)
        self._larger = _LargerInterval()
        self._entered = NO_TIMESTAMP  # the last time that has an entry, or should have one
        # Each entry is for a batch of its own; what an index has beyond that is not checked.
        most = size // SMALLEST_MESSAGE + 1
        self._offsets = _Track(OffsetIndex, segment_path(folder, base_offset, INDEX), base_offset, most, end)
        self._times = _Track(TimeIndex, segment_path(folder, base_offset, TIME_INDEX), base_offset, most, end)

    def take(self, batch: BatchHeader) -> None:
        """Compares what the indexes say of the next batch."""
        due, last = self._schedule.take(batch), batch.last_offset
        if self._times.next_offset <= last and self._times.has(self._schedule.largest, last):
            self._entered = self._schedule.largest.timestamp
        entry = OffsetEntry(last, batch.position)
        found = (due or self._offsets.next_offset <= last) and self._offsets.has(entry, last)
        if found:
            self._schedule.note_entry(batch)
        elif due:
            self._offsets.lacks(entry)
        if not self._larger.ended:
            self._larger.take(batch.size, has_entry=found, lacks_entry=due and not found)
            if self._larger.ended and self._larger.explains:
                self._offsets.missing_are_right()
        if found or (due and self._larger.ended):
            self._time_is_due()

    def _time_is_due(self) -> None:
        if self._schedule.largest.timestamp > self._entered:
            self._times.lacks(self._schedule.largest)
            self._entered = self._schedule.largest.timestamp

    def findings(self, found: MakeFinding) -> Iterator[Finding]:
        """What is wrong; all batches have been taken."""
        # Each interval explains an index without entries; but then the only time entry is the one at the segment's end.
        is_lost = not self._offsets.exists or self._offsets.count == 0 < self._times.count - 1
        if not self._larger.ended and self._larger.explains and not is_lost:
            self._offsets.missing_are_right()
        if self._inactive:
            self._time_is_due()
        yield from self._offsets.findings(found, self._inactive)
        yield from self._times.findings(found, self._inactive)


class _LargerInterval:
    """Whether `index.interval.bytes` may have been larger while the first batches of a segment were appended.

    Attributes:
        ended: whether a gap between two entries is no larger than by the current interval.
    """

    def __init__(self) -> None:
        self.ended = False
        self._lowest, self._highest = 0, LONG_MAX  # It was from the one to below the other.
        self._since_entry = 0  # bytes of batches
        self._gap_is_larger = False

    def take(self, size: int, *, has_entry: bool, lacks_entry: bool) -> None:
        """Takes in the next batch: its bytes, whether it has an entry, or would have one by the current interval."""
        self._gap_is_larger |= lacks_entry
        if not has_entry:
            self._lowest = max(self._lowest, self._since_entry)
            self._since_entry += size
            return
        if self._gap_is_larger:
            self._highest = min(self._highest, self._since_entry)
        else:
            self.ended = True
        self._since_entry, self._gap_is_larger = size, False

    @property
    def explains(self) -> bool:
        """Whether one larger interval explains each gap before that."""
        return self._lowest < self._highest


class _Track:
    """The entries of one index, and how far they were compared.

    Attributes:
        exists: whether there is such a file.
        count: how many entries were compared.
    """

    def __init__(
        self, kind: type[OffsetIndex] | type[TimeIndex], path: str, base_offset: int, most: int, end: int | None
    ) -> None:
        self._kind, self._path, self._base, self._most = kind, path, base_offset, most
        self.exists = True
        self._entries = (entry for entry in self._read() if end is None or entry.offset < end)
        self._ahead: OffsetEntry | TimeEntry = next(self._entries, _NO_ENTRY)  # the first that is not compared yet
        self.count = 0
        self._unproven = 0
        self._first_unproven: tuple[int, OffsetEntry | TimeEntry] | None = None
        self._missing: list[OffsetEntry | TimeEntry] = []  # the first ones
        self._missing_count = 0

    def _read(self) -> Iterator[OffsetEntry | TimeEntry]:
        try:
            file = files.open_read(self._path)
        except FileNotFoundError:
            self.exists = False
            return
        with file:
            yield from islice(self._kind(file, self._base).entries(), self._most)

    @property
    def next_offset(self) -> int:
        """The offset of the first entry that is not compared yet; beyond all offsets if there is none."""
        return self._ahead.offset

    def has(self, entry: OffsetEntry | TimeEntry, last_offset: int) -> bool:
        """Whether `entry` is next; entries up to the batch that ends at `last_offset` are done with."""
        found = False
        while self._ahead.offset <= last_offset:
            if self._ahead == entry:
                found = True
            else:
                self._unproven += 1
                self._first_unproven = self._first_unproven or (self.count, self._ahead)
            self.count += 1
            self._ahead = next(self._entries, _NO_ENTRY)
        return found

    def lacks(self, entry: OffsetEntry | TimeEntry) -> None:
        """Notes a missing entry."""
        self._missing_count += 1
        if len(self._missing) < _MOST_BEHIND:
            self._missing.append(entry)

    def missing_are_right(self) -> None:
        """Forgets the missing entries so far."""
        self._missing.clear()
        self._missing_count = 0

    def findings(self, found: MakeFinding, inactive: bool) -> Iterator[Finding]:
        """What is wrong with the index, one finding of each kind."""
        self.has(_NO_ENTRY, LONG_MAX)
        # Entries are added after the end has moved: what was missing at first may have come since, or come now.
        for attempt in range(1 if inactive else _ATTEMPTS):
            if not 0 < self._missing_count <= _MOST_BEHIND:
                break
            time.sleep(_PAUSE * attempt)
            still = set(self._missing).difference(self._read())
            self._missing = [entry for entry in self._missing if entry in still]
            self._missing_count = len(self._missing)
        width = self._kind.WIDTH
        if self._first_unproven is not None:
            number, entry = self._first_unproven
            what = f"{self._unproven} of {self.count} entries are not what the log says, the first is {entry}"
            yield found(self._path, what, number * width)
        try:
            size = files.size_of(self._path)
        except FileNotFoundError:
            if inactive or self._missing:
                yield found(self._path, "the file is missing", -1)
            return
        if self._missing:
            what = f"{self._missing_count} entries are missing, the first is {self._missing[0]}"
            yield found(self._path, what, -1)
        if inactive and size // width > self._most:
            what = f"it has {size // width} entries, and the log has no more batches than {self._most}"
            yield found(self._path, what, self._most * width)
        if size % width:
            yield found(self._path, "it ends inside an entry", size - size % width)
