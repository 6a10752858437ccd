"""One segment: a `.log` file of record batches and its two indexes, for reading and for appending.

The indexes only say where to begin. An entry counts only if a complete batch with exactly that last offset and a
correct CRC is at its position; else the entry before it is tried, and finally the segment's start.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pyspark_log.config import INT_MAX, TopicConfig
from pyspark_log.errors import CorruptRecordError
from pyspark_log.storage.fs import files
from pyspark_log.storage.fs.clock import Clock, now_ms
from pyspark_log.storage.record import BatchHeader, crc32c, headers_in
from pyspark_log.storage.segment.batch_stream import batch_at
from pyspark_log.storage.segment.file_names import INDEX, LOG, TIME_INDEX, segment_path
from pyspark_log.storage.segment.indexes import OffsetEntry, OffsetIndex, TimeEntry, TimeIndex
from pyspark_log.types import NO_TIMESTAMP

#: For a segment of which it is not known where the next one begins.
NO_OFFSET = -1

# Headers are read this many bytes at a time: many small batches in one read, and little waste on large ones.
_HEADER_WINDOW = 16 * 1024
# After this many entries that the log does not confirm, an index is considered damaged and is not used further.
_MAX_DOUBTS = 8
# After how many more bytes the disk begins to write what was appended.
_WRITE_BACK = 8 * 1024 * 1024
# The most index entries that are written at once.
_MOST_DUE = 1024


def read_headers(file: files.File, start: int, end: int, until: int = NO_OFFSET) -> Iterator[BatchHeader]:
    """The headers of the batches in [start, end) of a log file, of any format. Does not check CRCs.

    Args:
        file: the log.
        start, end: in bytes.
        until: the batch that ends at this offset is the last one, whatever follows it.

    Raises:
        CorruptRecordError: the bytes are not a chain of complete batches that ends at `end` or `until`.
    """
    position = start
    while position < end:
        window = file.pread(min(_HEADER_WINDOW, end - position), position)
        try:
            headers = headers_in(window, position, end)
        except CorruptRecordError as error:
            raise error.located(0, file.path, "", -1) from None
        if not headers:
            raise CorruptRecordError(f"no whole batch in the {end - position} bytes left", position, file=file.path)
        for header in headers:
            yield header
            if header.next_offset == until:
                return
        position = headers[-1].end


def _open_index(path: str) -> files.File | None:
    try:
        return files.open_read(path)
    except FileNotFoundError:
        return None


class SegmentReader:
    """A segment that is open for reading; the files stay readable when they are renamed or deleted.

    Attributes:
        base_offset: its first possible offset.
        until: the base offset of the segment after it; NO_OFFSET: it is the active one, or that is not known. What
            follows the batch that ends there does not count: on a shared file system, a writer that had lost the
            partition's lock wrote it too late.
        log: the open `.log` file.
    """

    def __init__(self, folder: str, base_offset: int, name: str = "", *, until: int = NO_OFFSET) -> None:
        """Opens it; `name` is that of the log, if it differs from the base offset's. FileNotFoundError."""
        self._folder = folder
        self.base_offset = base_offset
        self.until = until
        self.log = files.open_read(f"{folder}/{name}" if name else segment_path(folder, base_offset, LOG))

    def __enter__(self) -> SegmentReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def headers(self, start: int, end: int) -> Iterator[BatchHeader]:
        """The headers of the live batches in [start, end), as `read_headers`."""
        return read_headers(self.log, start, end, self.until)

    def size_up_to(self, offset: int) -> int:
        """The size in bytes of the batches below an offset; the whole size, if no batch reaches it."""
        end = self.log.size()
        # Readers will report the damage.
        with contextlib.suppress(CorruptRecordError):
            for header in self.headers(self.position_of(offset - 1, end), end):
                if header.next_offset >= offset:
                    return header.end
        return end

    def position_of(self, offset: int, end: int) -> int:
        """A byte in the log from which reading forward meets all batches from `offset` on.

        Args:
            offset: the offset that is sought.
            end: the live bytes of the log.
        """
        if offset <= self.base_offset:
            return 0
        file = _open_index(segment_path(self._folder, self.base_offset, INDEX))
        if file is None:
            return 0
        try:
            index = OffsetIndex(file, self.base_offset)
            # An entry names its batch's last offset, so the batch of the entry for `offset` itself counts too.
            number = index.floor(offset)
            for doubted in range(number, max(number - _MAX_DOUBTS, -1), -1):
                entry = index.entry(doubted)
                if entry.offset <= offset and _proven(self.log, entry, end):
                    return entry.position
        finally:
            file.close()
        return 0

    def batch_before(self, position: int, end: int, *, is_whole: bool = False) -> BatchHeader | None:
        """The last batch with an index entry that begins at `position` or before it; None if no entry has one.

        Args:
            position: in bytes.
            end: the live bytes of the log.
            is_whole: the batch also ends at `position` or before it.
        """
        file = _open_index(segment_path(self._folder, self.base_offset, INDEX))
        if file is None:
            return None
        with file:
            index = OffsetIndex(file, self.base_offset)
            number = index.floor_by_position(position)
            for doubted in range(number, max(number - _MAX_DOUBTS, -1), -1):
                entry = index.entry(doubted)
                header = batch_at(self.log, entry.position, min(position, end) if is_whole else end)
                if entry.position <= position and header is not None and header.last_offset == entry.offset:
                    return header
        return None

    def since(self, timestamp: int, offset: int, end: int) -> Iterator[BatchHeader]:
        """The batches that reach `offset` and have a record of `timestamp` (ms) or later, in order."""
        for header in self.headers(self._start_by_time(timestamp, offset, end), end):
            if header.last_offset >= offset and header.max_timestamp >= timestamp:
                yield header

    def _start_by_time(self, timestamp: int, offset: int, end: int) -> int:
        """Where to start the search for `timestamp`: no batch before it that reaches `offset` has it."""
        by_offset = self.position_of(offset, end)
        file = _open_index(segment_path(self._folder, self.base_offset, TIME_INDEX))
        if file is None:
            return by_offset
        try:
            index = TimeIndex(file, self.base_offset)
            number = index.floor(timestamp)
            if number < 0:
                return by_offset
            entry = index.entry(number)
        finally:
            file.close()
        header = self._batch_of_entry(entry, end)
        return by_offset if header is None else max(by_offset, header.position)

    def _batch_of_entry(self, entry: TimeEntry, end: int) -> BatchHeader | None:
        """The batch that a time entry is of, if there is one.

        The entry says that up to its offset nothing is later than its time. Its own batch must confirm that.
        """
        return _batch_of(entry, self.headers(self.position_of(entry.offset, end), end))

    def largest_timestamp(self, end: int) -> int:
        """The largest time (ms) of a record in the first `end` bytes; NO_TIMESTAMP if none has one.

        By the last time entry and the batches after it; by all batches if the log does not confirm the entry.

        Raises:
            CorruptRecordError: the bytes are not a chain of complete batches.
        """
        start, largest = 0, NO_TIMESTAMP
        file = _open_index(segment_path(self._folder, self.base_offset, TIME_INDEX))
        if file is not None:
            with file:
                entry = TimeIndex(file, self.base_offset).last_before_zeros()
            header = None if entry is None else self._batch_of_entry(entry, end)
            if header is not None:
                start = header.position
        for header in self.headers(start, end):
            largest = max(largest, header.max_timestamp)
        return largest

    def close(self) -> None:
        """Closes the file."""
        self.log.close()


def _batch_of(entry: TimeEntry, headers: Iterable[BatchHeader]) -> BatchHeader | None:
    """The batch that has the offset of a time entry, if it has its time too."""
    for header in headers:
        if header.last_offset >= entry.offset:
            return header if (header.last_offset, header.max_timestamp) == (entry.offset, entry.timestamp) else None
    return None


def _proven(log: files.File, entry: OffsetEntry, end: int) -> bool:
    header = batch_at(log, entry.position, end)
    return header is not None and header.last_offset == entry.offset


def _created(folder: str, base_offset: int) -> int:
    """When a segment was created, in ms; used only if its records have no time.

    The time index is created with it, and is not written to before a record has a time.
    """
    try:
        return files.status_of(segment_path(folder, base_offset, TIME_INDEX)).st_mtime_ns // 1_000_000
    except FileNotFoundError:
        return files.status_of(segment_path(folder, base_offset, LOG)).st_mtime_ns // 1_000_000


class SegmentLimits(NamedTuple):
    """Up to where a segment can be appended to: its bytes, the offset after its last record, a record's time (ms)."""

    position: int
    next_offset: int
    timestamp: int


_NO_LIMITS = SegmentLimits(0, 0, NO_TIMESTAMP)


class IndexSchedule:
    """Which batches of a segment get entries in its indexes, as in Kafka's LogSegment.append.

    Attributes:
        largest: the largest time so far, and the offset of the first batch that has it: the time entry that is due
            with an offset entry, and when the segment ends.
    """

    def __init__(self, base_offset: int, interval: int) -> None:
        """Begins at the segment's first batch; `interval` is index.interval.bytes."""
        self.largest = TimeEntry(NO_TIMESTAMP, base_offset)
        self._interval = interval
        self._since_entry = 0

    def take(self, batch: BatchHeader) -> bool:
        """Takes in the next batch; returns whether it gets an offset entry."""
        if batch.max_timestamp > self.largest.timestamp:
            self.largest = TimeEntry(batch.max_timestamp, batch.last_offset)
        if self._since_entry > self._interval:
            self._since_entry = batch.size
            return True
        self._since_entry += batch.size
        return False

    def note_entry(self, batch: BatchHeader) -> None:
        """Notes that the batch that was taken last has an offset entry, though none was due."""
        self._since_entry = batch.size


class SegmentWriter:
    """The active segment, open for appending. The caller holds the partition's lock.

    Attributes:
        base_offset: its first possible offset.
        log: the open `.log` file.
        position: bytes of the log that are written and indexed.
        limits: bounds within which an append cannot roll the segment (see `must_roll`).
    """

    def __init__(
        self, folder: str, base_offset: int, position: int, config: TopicConfig, clock: Clock = now_ms
    ) -> None:
        """Opens a segment with `position` live bytes, and continues its indexes where they end.

        Missing entries (of a writer that was killed before it wrote them) are added, so that the
        indexes are those that a rebuild would give.
        """
        self.base_offset = base_offset
        self._config = config
        self._clock = clock
        self._created = _created(folder, base_offset) if position else clock()
        self._first_timestamp: int | None = None
        # By the segment's name, so that all processes that append to it agree.
        name = segment_path(os.path.basename(folder), base_offset, "")
        self._jitter = crc32c(name.encode()) % max(1, min(config.segment_jitter_ms, config.segment_ms))
        self.log = files.open_write(segment_path(folder, base_offset, LOG))
        self._index = OffsetIndex(files.open_or_create(segment_path(folder, base_offset, INDEX)), base_offset)
        self._times = TimeIndex(files.open_or_create(segment_path(folder, base_offset, TIME_INDEX)), base_offset)
        self._schedule = IndexSchedule(base_offset, config.index_interval_bytes)
        self._due: list[tuple[TimeEntry, OffsetEntry]] = []
        self._asked = -1, -1  # the last position for `offset_at`, and its answer
        self.limits = _NO_LIMITS
        self._given = position  # what is before it the disk was asked to write, or others have appended
        self._resume(position)

    def resume(self, position: int) -> None:
        """Takes in what another process has appended since, up to `position`.

        That process has written the same index entries; writing them again changes nothing.
        """
        self.enter(read_headers(self.log, self.position, position))

    def _resume(self, position: int) -> None:
        entry, last, start = self._last_proven(position), None, 0
        if entry is not None:
            self._times.cut(entry.offset + 1)
            last, start = self._times.last(), entry.position
        if last is None or not self._is_confirmed(last, position):
            # No time reached the time index, or it is lost, or is wrong: the log has it.
            self._index.cut(0)
            self._times.clear()
            last, start = None, 0
        if last is not None:
            self._schedule.largest = last
        self.position = start
        self.enter(read_headers(self.log, start, position))

    def _last_proven(self, end: int) -> OffsetEntry | None:
        for number in range(self._index.count - 1, max(self._index.count - 1 - _MAX_DOUBTS, -1), -1):
            entry = self._index.entry(number)
            # No entry is of the first batch: an entry that says so is zeros of a write that was lost.
            if entry.position and _proven(self.log, entry, end):
                self._index.cut(number + 1)
                return entry
        self._index.cut(0)
        return None

    def _is_confirmed(self, entry: TimeEntry, end: int) -> bool:
        """Whether the log has a batch that a time entry is of."""
        number = self._index.floor(entry.offset)
        try:
            start = self._index.entry(number).position if number >= 0 else 0
            return _batch_of(entry, read_headers(self.log, start, end)) is not None
        except CorruptRecordError:
            return True  # Nothing can be rebuilt from a damaged log, and others can still be appended.

    def _write_due(self) -> None:
        """Writes index entries: those of times first, so that the next resume finds no gap if only they are written."""
        due, self._due = self._due, []
        self._times.append(*[time for time, _ in due])
        self._index.append(*[entry for _, entry in due])
        self._find_limits()

    def offset_at(self, position: int) -> int:
        """The base offset of the batch at byte `position`; the last answer is cached.

        Raises:
            CorruptRecordError: there is no batch.
        """
        if self._asked[0] != position:
            self._asked = position, next(read_headers(self.log, position, self.position)).base_offset
        return self._asked[1]

    def must_roll(self, size: int, last_offset: int, timestamp: int) -> bool:
        """Whether an append needs a new segment (LogSegment.shouldRoll).

        Args:
            size: its bytes.
            last_offset: the offset of its last record.
            timestamp: the largest time of its records, in ms; NO_TIMESTAMP if they have none.
        """
        if self.position == 0:
            return last_offset - self.base_offset > INT_MAX
        return (
            self.position > self._config.segment_bytes - size
            or self._waited(timestamp) > self._config.segment_ms - self._jitter
            or last_offset - self.base_offset > INT_MAX
            or self.indexes_are_full
        )

    def _find_limits(self) -> None:
        first, config = self._first_timestamp, self._config
        if first is None or first < 0 or self.indexes_are_full:
            self.limits = _NO_LIMITS
        else:
            self.limits = SegmentLimits(
                config.segment_bytes, self.base_offset + INT_MAX + 1, first + config.segment_ms - self._jitter
            )

    @property
    def indexes_are_full(self) -> bool:
        """Whether another segment must begin, as an index has no place left."""
        most = self._config.segment_index_bytes
        # One place of the time index is kept for the closing entry.
        return self._index.count >= most // OffsetIndex.WIDTH or self._times.count >= most // TimeIndex.WIDTH - 1

    def _waited(self, timestamp: int) -> int:
        """How long the segment has been active (ms): by the times of its records, else by the clock.

        So records that are loaded with the times of their events are split into segments by these.
        """
        if self._first_timestamp is None:
            try:
                self._first_timestamp = next(read_headers(self.log, 0, self.position)).max_timestamp
            except CorruptRecordError:
                self._first_timestamp = NO_TIMESTAMP  # Readers will report the damage.
            self._find_limits()
        first = self._first_timestamp
        return timestamp - first if first >= 0 else self._clock() - self._created

    def enter(self, headers: Iterable[BatchHeader]) -> None:
        """Takes in and indexes batches that were written at `position` and that readers see already."""
        base, takes = self.base_offset, self._schedule.take
        try:
            for header in headers:
                first, last, size = header.base_offset, header.last_offset, header.size
                if not base <= first <= last <= base + INT_MAX:
                    raise CorruptRecordError(
                        f"its offsets {first} to {last} do not belong to this segment",
                        header.position,
                        first,
                        self.log.path,
                    )
                if self.position == 0:
                    self._first_timestamp = header.max_timestamp
                    self._find_limits()
                if takes(header):
                    self._due.append((self._schedule.largest, OffsetEntry(last, self.position)))
                    if len(self._due) == _MOST_DUE:
                        self._write_due()
                self.position += size
        finally:
            if self._due:
                self._write_due()
        if self.position - self._given >= _WRITE_BACK:
            # So that the sync with which the segment ends has little left: appends wait for it.
            self.log.begin_sync(self._given, self.position - self._given)
            self._given = self.position

    def finish(self) -> None:
        """Adds the closing time entry, the segment's largest time, and makes the indexes durable.

        The active segment's are rebuilt after a power loss, those of an inactive one are not checked.
        """
        self._times.append(self._schedule.largest)
        self._index.sync()
        self._times.sync()

    def cut(self, position: int, next_offset: int) -> None:
        """Truncates the log and both indexes to `position`."""
        if self.log.size() > position:
            self.log.truncate(position)
        while self._index.count and self._index.entry(self._index.count - 1).position >= position:
            self._index.cut(self._index.count - 1)
        self._times.cut(next_offset)

    def close(self) -> None:
        """Closes the files."""
        self.log.close()
        self._index.close()
        self._times.close()
