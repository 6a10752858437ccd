"""Reads a range of offsets from one segment, chunk by chunk, to a proven end.

The end of a file is never taken for the end of a range in a dense log: each batch must begin where the one before it
ends, and the last one must reach the range's end. Anything else is an error, since rows would be missing silently:
a file can look short for a while on a shared file system, be truncated, or have a damaged base offset, which no CRC
covers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pyspark_log.errors import CorruptRecordError, LogDamagedError
from pyspark_log.storage.catalog import PartitionPath
from pyspark_log.storage.log.isolation import AbortedRanges
from pyspark_log.storage.log.missing import check_length
from pyspark_log.storage.record import LENGTH_AT, Chunk, decode
from pyspark_log.storage.segment import SWAP, SegmentReader, batch_size

#: Bytes that are read from a segment at a time, unless a batch is larger.
READ_SIZE = 1024 * 1024
# A bad batch is read this often before it is reported as damaged: on a shared file system the first read can return
# pages that another machine has since rewritten.
_TRIES = 3


class RangeReader:
    """Reads from the segments of one partition, with one buffer for all of them."""

    def __init__(
        self, place: PartitionPath, max_bytes: int, headers: bool, check_crcs: bool, max_batch_bytes: int,
        dense: bool = True,
    ) -> None:  # fmt: skip
        """Opens nothing yet.

        Args:
            place: which partition.
            max_bytes: about how many bytes of records a chunk holds, before compression.
            headers: whether to add their column.
            check_crcs: whether to verify checksums.
            max_batch_bytes: the most that one batch may take in memory; a larger one is an error.
            dense: whether each offset has a record; if not, a range may have gaps, also at its end.
        """
        self._place = place
        self._max_bytes = max_bytes
        self._headers = headers
        self._check_crcs = check_crcs
        self._max_batch_bytes = max_batch_bytes
        self._dense = dense
        self._aborted: Callable[[int, int], bool] | None = None
        self._buffer = memoryview(bytearray(READ_SIZE))

    def leave_out(self, aborted: AbortedRanges) -> None:
        """Leaves out the records of these transactions from now on."""
        self._aborted = aborted.hold if aborted else None

    def read(
        self, segment: SegmentReader, size: int, start: int, until: int, following: int | None
    ) -> Iterator[Chunk]:
        """Reads the records [start, until) of a segment.

        Args:
            segment: which one.
            size: its live bytes.
            start, until: offsets; the segment holds all records of the range.
            following: the base offset of the next segment; None: it is the active one.

        Raises:
            CorruptRecordError, LogDamagedError: as `LogReader.read`.
        """
        offset, position, tries = start, segment.position_of(start, size), 0
        follows = segment.base_offset if position == 0 else -1
        while position < size:
            filled = min(len(self._buffer), size - position)
            found = segment.log.pread_into(self._buffer[:filled], position)
            if found < filled:
                check_length(self._place, segment.log.path, position + found, size)
            at = 0
            try:
                while True:
                    chunk = decode(
                        self._buffer, at, filled, from_offset=offset, until_offset=until,
                        max_bytes=self._max_bytes, check_crcs=self._check_crcs, headers=self._headers,
                        dense=self._dense, follows=follows, max_batch_bytes=self._max_batch_bytes,
                        aborted=self._aborted,
                    )  # fmt: skip
                    moved = chunk.position > at
                    at, offset, tries = chunk.position, max(offset, chunk.next_offset), 0
                    follows = chunk.follows
                    if chunk.num_rows:
                        yield chunk
                    if offset >= until:
                        self._check_bound(segment, position + at, size, following)
                        return
                    if not moved:
                        break
            except CorruptRecordError as error:
                tries += 1
                if tries == _TRIES:
                    raise error.located(
                        position, segment.log.path, self._place.topic, self._place.partition
                    ) from None
            else:
                if at == 0:
                    self._grow(segment, position, size)
            position += at
        if not self._dense:
            return
        raise LogDamagedError(
            f"{self._place}: {segment.log.path} ends at offset {offset}, but it must reach {until}: its end is missing"
        )

    def _check_bound(self, segment: SegmentReader, position: int, size: int, following: int | None) -> None:
        """Refuses a batch that ends a range but belongs to later segments.

        No CRC covers its base offset, and in a log with gaps no batch says where the next one begins; what is after it
        would be missing silently. The cleaner merges segments, though: a cleaned one replaces those that are about to
        be deleted.
        """
        if following is None or self._dense or position >= size or segment.log.path.endswith(SWAP):
            return
        base_offset = int.from_bytes(segment.log.pread(LENGTH_AT, position), "big", signed=True)
        if base_offset >= following:
            raise LogDamagedError(
                f"{self._place}: {segment.log.path} at byte {position}: a batch has the base offset {base_offset}, "
                f"but the next segment begins at {following}. Either that field is damaged, or this is a copy that was "
                "made while the cleaner was at work: take these files from another copy"
            )

    def _grow(self, segment: SegmentReader, position: int, size: int) -> None:
        """Enlarges the buffer to the size that the batch at its start declares."""
        filled = min(len(self._buffer), size - position)
        try:
            needed = batch_size(self._buffer[:filled], size - position, self._max_batch_bytes)
        except CorruptRecordError as error:
            raise error.located(position, segment.log.path, self._place.topic, self._place.partition) from None
        self._buffer = memoryview(bytearray(needed))
