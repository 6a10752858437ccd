"""One partition of a topic, for readers: where its log starts and ends, and the records between.

Readers take no lock. The end comes from the state file; below it every byte counts, beyond it none
does, whatever stands in the files.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_log.storage import state_file
from pyspark_log.storage.errors import LogDamagedError, OffsetOutOfRangeError, UnknownTopicError
from pyspark_log.storage.missing import missing_is_damage, no_state
from pyspark_log.storage.place import PartitionPlace
from pyspark_log.storage.range_reader import READ_SIZE, RangeReader
from pyspark_log.storage.records import Chunk
from pyspark_log.storage.segment import LOG, SegmentReader, list_segments, segment_path
from pyspark_log.storage.state_file import Flags, PartitionState
from pyspark_log.storage.types import OffsetAndTimestamp

_T = TypeVar("_T")


class Partition:
    """The reader's view of one partition. Safe to use from several threads."""

    def __init__(self, place: PartitionPlace) -> None:
        self.place = place
        self._written = False  # whether it ever had a state file
        self._segments: tuple[int, list[int]] = (-1, [])
        # The largest time of closed segments, by leader epoch (a truncation begins another) and base offset; once
        # known a look-up need not open them.
        self._largest_times: dict[tuple[int, int], int] = {}

    def state(self) -> PartitionState:
        """The partition's state at this moment.

        Raises:
            UnknownTopicError: the topic was deleted.
            LogDamagedError: there are segments but no state file.
        """
        loaded = state_file.read(self.place.state_path)
        if loaded is None and (self._written or list_segments(self.place.folder)):
            # Perhaps it was made between the two looks; files are made with the first write, the state first.
            loaded = state_file.read(self.place.state_path)
            if loaded is None:
                raise no_state(self.place)
        if loaded is None:
            return state_file.EMPTY
        self._written = True
        if loaded.state.flags & Flags.DEAD:
            raise UnknownTopicError(f"{self.place}: the topic was deleted")
        return loaded.state

    def segments(self, state: PartitionState) -> list[int]:
        """The base offsets of the segments that count in `state`, ascending.

        A newer file is one whose making was not finished, and one that lies below the log start is about to go.
        """
        generation, bases = self._segments
        if generation != state.generation:
            bases = [base for base in list_segments(self.place.folder) if base <= state.active_base]
            if bases and bases[-1] == state.active_base:
                self._segments = (state.generation, bases)
        return bases[max(bisect_right(bases, state.log_start) - 1, 0) :]

    def size(self) -> int:
        """Bytes of the `.log` files that count."""

        def look(state: PartitionState) -> int:
            closed = [base for base in self.segments(state) if base != state.active_base]
            with missing_is_damage(self.place):
                return state.position + sum(
                    os.path.getsize(segment_path(self.place.folder, base, LOG)) for base in closed
                )

        return self._settled(look)

    def _settled(self, look: Callable[[PartitionState], _T]) -> _T:
        """What `look` finds. Segments may go while it looks; then it looks again."""
        while True:
            state = self.state()
            try:
                return look(state)
            except (LogDamagedError, OffsetOutOfRangeError):
                now = self.state()
                if (now.generation, now.log_start) == (state.generation, state.log_start):
                    raise

    def read(
        self, start: int, end: int, *, max_bytes: int, headers: bool = False, check_crcs: bool = True
    ) -> Iterator[Chunk]:
        """The records of [start, end) in order, in chunks of some `max_bytes` before compression.

        Raises:
            OffsetOutOfRangeError: `start` below the log start, or `end` above the log end; or records of
                the range were deleted before they were read.
            UnknownTopicError: the topic was deleted.
            CorruptRecordError: a damaged batch, with its place. What stands before it was given out.
            LogDamagedError: a segment is missing or shorter than it was.
        """
        state = self.state()
        self._check_range(start, end, state)
        reader = RangeReader(self.place, max_bytes, headers, check_crcs)
        position = start
        while position < end:
            try:
                base, following = self._segment_of(position, state)
                until = end if following is None else min(end, following)
                segment = self._open(base)
                try:
                    size = state.position if following is None else segment.log.size()
                    for chunk in reader.read(segment, size, position, until):
                        yield chunk
                        position = max(position, chunk.next_offset)
                finally:
                    segment.close()
                # The segment was read to a proven end, so what is missing up to here was compacted away.
                position = until
            except LogDamagedError:
                # Not if what was looked for was deleted meanwhile, or lies in other files by now.
                now = self.state()
                self._check_range(position, end, now)
                if now.generation == state.generation:
                    raise
                state = now

    def _check_range(self, start: int, end: int, state: PartitionState) -> None:
        for offset in (start, end):
            if not state.log_start <= offset <= state.next_offset:
                raise OffsetOutOfRangeError(
                    self.place.topic, self.place.partition, offset, state.log_start, state.next_offset
                )

    def _segment_of(self, offset: int, state: PartitionState) -> tuple[int, int | None]:
        """The base of the segment in which `offset` is, and of the one behind it (None: it is active)."""
        bases = self.segments(state)
        number = bisect_right(bases, offset) - 1
        if number < 0 or bases[-1] != state.active_base:
            raise LogDamagedError(
                f"{self.place}: no segment for offset {offset} in {self.place.folder} (log start "
                f"{state.log_start}, active segment {state.active_base}): files were removed or moved"
            )
        return bases[number], bases[number + 1] if number + 1 < len(bases) else None

    def _open(self, base: int) -> SegmentReader:
        with missing_is_damage(self.place):
            segment = SegmentReader(self.place.folder, base)
        # The folder may belong to a newer topic of the same name by now; but not if this one still lives.
        self.state()
        return segment

    def find_timestamp(self, timestamp: int) -> OffsetAndTimestamp | None:
        """The first record, in offset order, whose time is `timestamp` (ms) or later, if there is one."""
        return self._settled(lambda state: self._find_timestamp(timestamp, state))

    def _find_timestamp(self, timestamp: int, state: PartitionState) -> OffsetAndTimestamp | None:
        if state.log_start == state.next_offset:
            return None
        for base in self.segments(state):
            active, key = base == state.active_base, (state.leader_epoch, base)
            if not active and self._largest_times.get(key, timestamp) < timestamp:
                continue
            reader = self._open(base)
            try:
                size = state.position if active else reader.log.size()
                if not active:
                    self._largest_times[key] = reader.largest_timestamp(size)
                    if self._largest_times[key] < timestamp:
                        continue
                for header in reader.since(timestamp, state.log_start, size):
                    start = max(header.base_offset, state.log_start)
                    found = self._first_at_or_after(timestamp, start, header.next_offset)
                    if found is not None:
                        return found
            finally:
                reader.close()
        return None

    def _first_at_or_after(self, timestamp: int, start: int, end: int) -> OffsetAndTimestamp | None:
        for chunk in self.read(start, end, max_bytes=READ_SIZE):
            times = chunk.columns["timestamp"].cast(pa.int64())
            row = pc.index(pc.greater_equal(times, timestamp * 1000), True).as_py()
            if row >= 0:
                return OffsetAndTimestamp(chunk.columns["offset"][row].as_py(), times[row].as_py() // 1000)
        return None
