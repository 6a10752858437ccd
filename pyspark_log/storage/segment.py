"""One segment: a `.log` file of record batches and its two indexes, for reading and for appending.

The indexes only say where to begin. An entry counts once a whole batch with that very last offset and a
right CRC stands at its position; else the entry before it is tried, and at last the segment's start.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

from pyspark_log.storage import files
from pyspark_log.storage.batch import HEADER, HEADER_SIZE, LENGTH_PREFIX, MAGIC, BatchHeader
from pyspark_log.storage.config import INT_MAX, TopicConfig
from pyspark_log.storage.errors import CorruptRecordError
from pyspark_log.storage.records import scan
from pyspark_log.storage.sparse_index import OffsetEntry, OffsetIndex, TimeIndex
from pyspark_log.storage.types import NO_TIMESTAMP

LOG, INDEX, TIME_INDEX = ".log", ".index", ".timeindex"

_LOG_NAME = re.compile(r"(\d{20})\.log")
# Headers are read this many bytes at a time: many small batches in one read, and little waste on large ones.
_HEADER_WINDOW = 16 * 1024
# After this many entries that the log does not prove, an index is garbage and is not asked further.
_MAX_DOUBTS = 8


def segment_path(folder: str, base_offset: int, suffix: str) -> str:
    """The name of a segment's file: 20 digits of its base offset and a suffix."""
    return f"{folder}/{base_offset:020d}{suffix}"


def list_segments(folder: str) -> list[int]:
    """The base offsets of the segments in a partition's folder, ascending; none if there is no folder."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted(int(match.group(1)) for name in names if (match := _LOG_NAME.fullmatch(name)))


def read_headers(file: files.File, start: int, end: int) -> Iterator[BatchHeader]:
    """The headers of the batches in [start, end) of a log file. CRCs are not looked at.

    Raises:
        CorruptRecordError: the bytes are no chain of whole batches of format 2 that ends at `end`.
    """
    position, window, window_start = start, b"", start
    while position < end:
        at = position - window_start
        if at + HEADER_SIZE > len(window):
            window = file.pread(min(_HEADER_WINDOW, end - position), position)
            window_start, at = position, 0
            if len(window) < HEADER_SIZE:
                raise CorruptRecordError("the last batch is not whole", position, file=file.path)
        base_offset, length, *rest = HEADER.unpack_from(window, at)
        header = BatchHeader(position, base_offset, length + LENGTH_PREFIX, *rest)
        if header.size < HEADER_SIZE or header.magic != MAGIC or header.end > end:
            raise CorruptRecordError(
                f"no whole batch of format {MAGIC}: magic {header.magic}, {header.size} bytes of "
                f"{end - position} that are left",
                position, base_offset, file.path,
            )  # fmt: skip
        yield header
        position = header.end


def batch_at(file: files.File, position: int, end: int) -> BatchHeader | None:
    """The whole batch with a right CRC that starts at `position` and ends by `end`, if there is one."""
    if not 0 <= position <= end - HEADER_SIZE:
        return None
    length = int.from_bytes(file.pread(4, position + 8), "big", signed=True)
    if not HEADER_SIZE <= length + LENGTH_PREFIX <= end - position:
        return None
    data = file.pread(length + LENGTH_PREFIX, position)
    try:
        found = scan(data, 0, len(data), check_crcs=True)
    except CorruptRecordError:
        return None
    return found[0]._replace(position=position) if len(found) == 1 else None


def _open_index(path: str) -> files.File | None:
    try:
        return files.open_read(path)
    except FileNotFoundError:
        return None


class SegmentReader:
    """A segment that is open for reading; the files stay readable when they are renamed or deleted.

    Attributes:
        base_offset: its first possible offset.
        log: the open `.log` file.
    """

    def __init__(self, folder: str, base_offset: int) -> None:
        self._folder = folder
        self.base_offset = base_offset
        self.log = files.open_read(segment_path(folder, base_offset, LOG))

    def position_of(self, offset: int, end: int) -> int:
        """A byte in the log from which reading forward meets all batches from `offset` on.

        Args:
            offset: the offset that is looked for.
            end: the bytes of the log that count.
        """
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

    def since(self, timestamp: int, offset: int, end: int) -> Iterator[BatchHeader]:
        """The batches that reach `offset` and have a record of `timestamp` (ms) or later, in order."""
        for header in read_headers(self.log, self._start_by_time(timestamp, offset, end), end):
            if header.last_offset >= offset and header.max_timestamp >= timestamp:
                yield header

    def _start_by_time(self, timestamp: int, offset: int, end: int) -> int:
        """Where to begin to look for `timestamp`: no batch before it that reaches `offset` has it."""
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
        # The entry says that up to its offset nothing is later than its time. Its own batch must bear that out.
        position = self.position_of(entry.offset, end)
        for header in read_headers(self.log, position, end):
            if header.last_offset >= entry.offset:
                if (header.last_offset, header.max_timestamp) == (entry.offset, entry.timestamp):
                    return max(by_offset, header.position)
                break
        return by_offset

    def close(self) -> None:
        """Closes the file."""
        self.log.close()


def _proven(log: files.File, entry: OffsetEntry, end: int) -> bool:
    header = batch_at(log, entry.position, end)
    return header is not None and header.last_offset == entry.offset


class SegmentWriter:
    """The active segment, open for appending. Whoever uses it holds the partition's lock.

    Attributes:
        base_offset: its first possible offset.
        log: the open `.log` file.
        position: bytes of the log that are written and indexed.
    """

    def __init__(self, folder: str, base_offset: int, position: int, config: TopicConfig) -> None:
        """Opens a segment whose log counts up to `position`, and takes its indexes up where they end.

        Entries that are missing (their writer was killed before it came to them) are added, so that the
        indexes are those that a rebuild would give.
        """
        self.base_offset = base_offset
        self._config = config
        self.log = files.open_write(segment_path(folder, base_offset, LOG))
        self._index = OffsetIndex(files.open_or_create(segment_path(folder, base_offset, INDEX)), base_offset)
        self._times = TimeIndex(
            files.open_or_create(segment_path(folder, base_offset, TIME_INDEX)), base_offset
        )
        self._since_entry = 0
        self._take_up(position)

    def resume(self, position: int) -> None:
        """Counts what another process has appended since, up to `position`.

        That process has made the same index entries; writing them again changes nothing.
        """
        for header in read_headers(self.log, self.position, position):
            self._count(header, index=True)

    def _take_up(self, position: int) -> None:
        entry = self._last_proven(position)
        start, keep_below = (entry.position, entry.offset + 1) if entry else (0, self.base_offset)
        self._times.cut(keep_below)
        last = self._times.last()
        if entry is not None and last is None:
            # No time reached the time index, or the time index is lost: the log knows.
            self._index.cut(0)
            entry, start = None, 0
        self._max_timestamp, self._max_timestamp_offset = last or (NO_TIMESTAMP, self.base_offset)
        self.position = start
        for header in read_headers(self.log, start, position):
            self._count(header, index=header.position != start or entry is None)

    def _last_proven(self, end: int) -> OffsetEntry | None:
        for number in range(self._index.count - 1, max(self._index.count - 1 - _MAX_DOUBTS, -1), -1):
            entry = self._index.entry(number)
            if _proven(self.log, entry, end):
                self._index.cut(number + 1)
                return entry
        self._index.cut(0)
        return None

    def _count(self, header: BatchHeader, *, index: bool) -> None:
        """Counts a batch that stands at `self.position`, and enters it in the indexes where one is due."""
        if not self.base_offset <= header.base_offset <= header.last_offset <= self.base_offset + INT_MAX:
            raise CorruptRecordError(
                f"its offsets {header.base_offset} to {header.last_offset} are not of this segment",
                header.position, header.base_offset, self.log.path,
            )  # fmt: skip
        if header.max_timestamp > self._max_timestamp:
            self._max_timestamp, self._max_timestamp_offset = header.max_timestamp, header.last_offset
        if index and self._since_entry > self._config.index_interval_bytes:
            # The time entry first: if only one of the two is written, the next resume finds no gap.
            self._add_time_entry()
            self._index.append(header.last_offset, self.position)
            self._since_entry = 0
        self._since_entry += header.size
        self.position += header.size

    def _add_time_entry(self) -> None:
        if self._max_timestamp != NO_TIMESTAMP:
            self._times.append(self._max_timestamp, self._max_timestamp_offset)

    def must_roll(self, size: int, last_offset: int) -> bool:
        """Whether an append of `size` bytes that ends at `last_offset` needs a new segment (LogSegment.shouldRoll)."""
        if self.position == 0 and last_offset - self.base_offset <= INT_MAX:
            return False
        return (
            self.position > self._config.segment_bytes - size
            or last_offset - self.base_offset > INT_MAX
            or self._index.count >= self._config.segment_index_bytes // OffsetIndex.WIDTH
            # One place of the time index is kept for the closing entry.
            or self._times.count >= self._config.segment_index_bytes // TimeIndex.WIDTH - 1
        )

    def enter(self, headers: Sequence[BatchHeader]) -> None:
        """Counts and indexes batches that were written at `position` and that readers see by now."""
        for header in headers:
            self._count(header, index=True)

    def finish(self) -> None:
        """Adds the closing time entry, the segment's largest time, and makes the indexes durable.

        The active segment's are made again after a power loss, those of a closed one are not looked at.
        """
        self._add_time_entry()
        self._index.sync()
        self._times.sync()

    def cut(self, position: int, next_offset: int) -> None:
        """Removes what stands behind `position`, in the log and in both indexes."""
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
