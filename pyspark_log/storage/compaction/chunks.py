"""Reads all batches of segments, piece by piece, for the log cleaner."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pyspark_log.errors import CorruptRecordError, LogDamagedError
from pyspark_log.storage.catalog import PartitionPath
from pyspark_log.storage.segment import SegmentReader, batch_size

_READ_SIZE = 1024 * 1024

#: Called with the number of bytes read or written; may wait before it returns.
Throttle = Callable[[int], None]


class Source(NamedTuple):
    """An open segment, and how many of its bytes count."""

    segment: SegmentReader
    size: int


class LogChunks:
    """Reads segments of one partition into a reusable buffer."""

    def __init__(self, place: PartitionPath, max_batch_bytes: int, throttle: Throttle) -> None:
        """Reads nothing yet.

        Args:
            place: which partition.
            max_batch_bytes: the most that one batch may have; a larger one is an error.
            throttle: called with the number of bytes read.
        """
        self._place = place
        self._max_batch_bytes = max_batch_bytes
        self._throttle = throttle
        self._buffer = memoryview(bytearray(_READ_SIZE))

    def read(self, source: Source, position: int, take: Callable[[memoryview, int], int | None]) -> None:
        """Hands a segment's bytes to `take`, until it has enough.

        Args:
            source: which segment.
            position: where to begin, in bytes; a batch begins there.
            take: gets a buffer and how many of its bytes count; the first is that of a batch. It returns where the
                last batch ends that it has taken, in bytes, or None if it has enough. Errors that it raises count
                from the buffer's start.

        Raises:
            CorruptRecordError: of `take`, with the place; or the segment ends within a batch.
            LogDamagedError: the file is shorter than it was.
        """
        file = source.segment.log
        while position < source.size:
            filled = min(len(self._buffer), source.size - position)
            if file.pread_into(self._buffer[:filled], position) < filled:
                raise LogDamagedError(f"{self._place}: {file.path} ends before byte {source.size}, which it once held")
            self._throttle(filled)
            try:
                taken = take(self._buffer, filled)
                if taken == 0:
                    needed = batch_size(self._buffer[:filled], source.size - position, self._max_batch_bytes)
                    self._buffer = memoryview(bytearray(needed))
            except CorruptRecordError as error:
                raise error.located(position, file.path, self._place.topic, self._place.partition) from None
            if taken is None:
                return
            position += taken
