"""One partition of a topic, for readers: where its log starts and ends, and the records between.

Readers take no lock. The end comes from the state file; below it every byte counts, beyond it none
does, whatever stands in the files.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_log.storage import state_file
from pyspark_log.storage.errors import LogDamagedError, OffsetOutOfRangeError, UnknownTopicError
from pyspark_log.storage.place import PartitionPlace
from pyspark_log.storage.range_reader import READ_SIZE, RangeReader, missing_is_damage
from pyspark_log.storage.records import Chunk
from pyspark_log.storage.segment import LOG, SegmentReader, list_segments, segment_path
from pyspark_log.storage.state_file import Flags, PartitionState
from pyspark_log.storage.types import OffsetAndTimestamp


class Partition:
    """The reader's view of one partition. Safe to use from several threads."""

    def __init__(self, place: PartitionPlace) -> None:
        self.place = place
        self._segments: tuple[int, list[int]] = (-1, [])

    def state(self) -> PartitionState:
        """The partition's state at this moment.

        Raises:
            UnknownTopicError: the topic was deleted.
            LogDamagedError: there are segments but no state file.
        """
        loaded = state_file.read(self.place.state_path)
        if loaded is None and list_segments(self.place.folder):
            # Perhaps it was made between the two looks; files are made with the first write, the state first.
            loaded = state_file.read(self.place.state_path)
            if loaded is None:
                raise LogDamagedError(
                    f"{self.place}: {self.place.folder} holds segments, but its state file "
                    f"{self.place.state_path} is missing: restore it from a copy of the store"
                )
        state = state_file.EMPTY if loaded is None else loaded.state
        if state.flags & Flags.DEAD:
            raise UnknownTopicError(f"{self.place}: the topic was deleted")
        return state

    def segments(self, state: PartitionState) -> list[int]:
        """The base offsets of the segments that count in `state`, ascending.

        A newer file is one whose making was not finished, so readers do not see it.
        """
        generation, bases = self._segments
        if generation != state.generation:
            bases = [base for base in list_segments(self.place.folder) if base <= state.active_base]
            if bases and bases[-1] == state.active_base:
                self._segments = (state.generation, bases)
        return bases

    def size(self) -> int:
        """Bytes of the `.log` files that count."""
        state = self.state()
        closed = [base for base in self.segments(state) if base != state.active_base]
        with missing_is_damage(self.place):
            return state.position + sum(
                os.path.getsize(segment_path(self.place.folder, base, LOG)) for base in closed
            )

    def read(
        self, start: int, end: int, *, max_bytes: int, headers: bool = False, check_crcs: bool = True
    ) -> Iterator[Chunk]:
        """The records of [start, end) in order, in chunks of some `max_bytes` before compression.

        Raises:
            OffsetOutOfRangeError: `start` below the log start, or `end` above the log end.
            CorruptRecordError: a damaged batch, with its place. What stands before it was given out.
            LogDamagedError: a segment is missing or shorter than it was.
        """
        state = self.state()
        if not state.log_start <= start <= state.next_offset:
            raise self._out_of_range(start, state)
        if end > state.next_offset:
            raise self._out_of_range(end, state)
        reader = RangeReader(self.place, max_bytes, headers, check_crcs)
        position = start
        while position < end:
            base, following = self._segment_of(position, state)
            until = end if following is None else min(end, following)
            yield from reader.read(base, state.position if following is None else None, position, until)
            # The segment was read to a proven end, so what is missing up to here was compacted away.
            position = until

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

    def find_timestamp(self, timestamp: int) -> OffsetAndTimestamp | None:
        """The first record, in offset order, whose time is `timestamp` (ms) or later, if there is one."""
        state = self.state()
        if state.log_start == state.next_offset:
            return None
        bases = self.segments(state)
        for base, following in zip(bases, [*bases[1:], None], strict=False):
            if following is not None and following <= state.log_start:
                continue
            with missing_is_damage(self.place):
                reader = SegmentReader(self.place.folder, base)
            try:
                size = state.position if following is None else reader.log.size()
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

    def _out_of_range(self, offset: int, state: PartitionState) -> OffsetOutOfRangeError:
        return OffsetOutOfRangeError(
            self.place.topic, self.place.partition, offset, state.log_start, state.next_offset
        )
