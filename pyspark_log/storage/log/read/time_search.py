"""Looks for records of one partition by their times."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from pyspark_log.errors import BatchTooLargeError, CorruptRecordError
from pyspark_log.storage.catalog import PartitionPath
from pyspark_log.storage.log.state.partition_state import PartitionState
from pyspark_log.storage.record import BatchHeader
from pyspark_log.storage.record.walk import record_times
from pyspark_log.storage.segment import SegmentReader
from pyspark_log.types import NO_TIMESTAMP, OffsetAndTimestamp


class TimeSearch(NamedTuple):
    """A search in the log of a partition.

    Attributes:
        place: the partition.
        state: its state, which says which records are readable.
        max_batch_bytes: the most that one batch may take in memory; a larger one is refused.
        segments_from: returns the segments from an offset on, each open, with its live bytes.
        start_of: returns an offset before which no readable record is of a time (ms) or later.
    """

    place: PartitionPath
    state: PartitionState
    max_batch_bytes: int
    segments_from: Callable[[int], Iterator[tuple[SegmentReader, int]]]
    start_of: Callable[[int], int]

    def find(self, timestamp: int, *, control: bool = False) -> OffsetAndTimestamp | None:
        """The first record, in offset order, whose time is `timestamp` (ms) or later.

        `control` says whether a transaction marker counts as a record.
        """
        for segment, size in self.segments_from(self.start_of(timestamp)):
            for header in segment.since(timestamp, self.state.log_start, size):
                if header.base_offset >= self.state.high_watermark:
                    return None
                if header.is_control and control:
                    return OffsetAndTimestamp(header.base_offset, header.max_timestamp)
                offsets, times = self._times(segment, header)
                for offset, time in zip(offsets, times, strict=True):
                    if time >= timestamp:
                        return OffsetAndTimestamp(offset, time)
        return None

    def find_max(self, largest: int, start: int) -> OffsetAndTimestamp | None:
        """The record with the largest time, of several the first. A transaction marker counts as a record.

        Args:
            largest: no record before `start` has a later time (ms).
            start: an offset.
        """
        for segment, size in self.segments_from(start):
            largest = max(largest, segment.largest_timestamp(size))
        if largest == NO_TIMESTAMP:
            return None
        # Records that were deleted or compacted away may have had it.
        return self.find(largest, control=True) or self._scan_for_max()

    def _scan_for_max(self) -> OffsetAndTimestamp | None:
        """The same, found by reading all batches."""
        state, best = self.state, OffsetAndTimestamp(-1, NO_TIMESTAMP)
        for segment, size in self.segments_from(state.log_start):
            for header in segment.since(NO_TIMESTAMP + 1, state.log_start, size):
                if header.max_timestamp <= best.timestamp or header.base_offset >= state.high_watermark:
                    continue
                if header.is_control:
                    best = OffsetAndTimestamp(header.base_offset, header.max_timestamp)
                offsets, times = self._times(segment, header)
                largest = max(times, default=NO_TIMESTAMP)
                if largest > best.timestamp:
                    best = OffsetAndTimestamp(offsets[times.index(largest)], largest)
        return None if best.offset < 0 else best

    def _times(self, segment: SegmentReader, header: BatchHeader) -> tuple[Sequence[int], Sequence[int]]:
        """The offsets and the times (ms) of the readable records of a batch; a marker is none."""
        if header.is_control:
            return (), ()
        try:
            if header.size > self.max_batch_bytes:
                raise BatchTooLargeError(header.size, self.max_batch_bytes, 0, header.base_offset)
            offsets, times = record_times(segment.log.pread(header.size, header.position), self.max_batch_bytes)
        except CorruptRecordError as error:
            place = self.place
            raise error.located(header.position, segment.log.path, place.topic, place.partition) from None
        first, end = bisect_left(offsets, self.state.log_start), bisect_left(offsets, self.state.high_watermark)
        return offsets[first:end], times[first:end]
