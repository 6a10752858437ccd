"""Reads a range of offsets from one segment, chunk by chunk, to a proven end.

The end of a file is never taken for the end of a range in a dense log: each batch must begin where the one before it
ends, and the last one must reach the range's end. Anything else is an error, since rows would be missing silently:
a file can seem short for a while on a shared file system, be truncated, or have a damaged base offset, which no CRC
covers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Generic, Protocol, TypeVar

from pyspark_log.errors import LogDamagedError
from pyspark_log.storage.catalog import PartitionPath
from pyspark_log.storage.log.read.isolation import AbortedRanges
from pyspark_log.storage.record.layout import LENGTH_AT
from pyspark_log.storage.segment import BatchStream, SegmentReader
from pyspark_log.storage.segment.batch_stream import READ_SIZE
from pyspark_log.storage.segment.file_names import SWAP

# A bad batch is read this often before it is reported as damaged: on a shared file system the first read can return
# pages that another machine has since rewritten.
_TRIES = 3


class Piece(Protocol):
    """Records of one or more batches: a Chunk of `decode`, or Pairs."""

    @property
    def num_rows(self) -> int:
        """How many."""

    @property
    def position(self) -> int:
        """Where the last batch ends, in bytes from the start of the buffer."""

    @property
    def next_offset(self) -> int:
        """The offset after that batch."""

    @property
    def follows(self) -> int:
        """The argument `follows` for what comes next."""


_P = TypeVar("_P", bound=Piece)
_P_co = TypeVar("_P_co", bound=Piece, covariant=True)


class Decode(Protocol[_P_co]):
    """Decodes batches: `decoder.decode` with what its caller wants of it, or `walk.read_pairs`."""

    def __call__(
        self, buffer: memoryview, start: int, end: int, /, *, from_offset: int, until_offset: int, follows: int,
        dense: bool, max_batch_bytes: int, aborted: Callable[[int, int], bool] | None,
    ) -> _P_co:  # fmt: skip
        """As `decode`."""


class RangeReader(Generic[_P]):
    """Reads from the segments of one partition, with one buffer for all of them."""

    def __init__(
        self, place: PartitionPath, decode: Decode[_P], max_bytes: int, max_batch_bytes: int, dense: bool,
        aborted: AbortedRanges | None,
    ) -> None:  # fmt: skip
        """Opens nothing yet.

        Args:
            place: which partition.
            decode: decodes the batches.
            max_bytes: about how many bytes of records a piece holds, before compression.
            max_batch_bytes: the most that one batch may take in memory; a larger one is an error.
            dense: whether each offset has a record; if not, a range may have gaps, also at its end.
            aborted: transactions whose records are left out.
        """
        self._place = place
        self._dense = dense
        self._decode = partial(
            decode, dense=dense, max_batch_bytes=max_batch_bytes, aborted=aborted.hold if aborted else None
        )
        # A look-up should read little; after that, as much as a piece may hold.
        later = max(READ_SIZE, max_bytes)
        self._stream = BatchStream(max_batch_bytes, place.topic, place.partition, later=later, tries=_TRIES)

    def read(
        self, segment: SegmentReader, size: int, start: int, until: int, following: int | None, begin: int | None = None
    ) -> Iterator[_P]:
        """Reads the records [start, until) of a segment.

        Args:
            segment: which one.
            size: its live bytes.
            start, until: offsets; the segment holds all records of the range.
            following: the base offset of the next segment; None: it is the active one.
            begin: the byte at which the batch of `start` begins; None: it is found by the index.

        Raises:
            CorruptRecordError, LogDamagedError: as `LogReader.read`.
        """
        position = segment.position_of(start, size) if begin is None else begin
        offset, follows = start, segment.base_offset if position == 0 else -1

        def take(buffer: memoryview, at: int, filled: int) -> tuple[int, _P]:
            chunk = self._decode(buffer, at, filled, from_offset=offset, until_offset=until, follows=follows)
            return chunk.position, chunk

        for chunk in self._stream.read(segment.log, position, size, take):
            offset, follows = max(offset, chunk.next_offset), chunk.follows
            if chunk.num_rows:
                yield chunk
            if offset >= until:
                if not self._dense and following is not None:
                    self._check_bound(segment, size, following)
                return
        if not self._dense:
            return
        raise LogDamagedError(
            f"{self._place}: {segment.log.path} ends at offset {offset}, but it must reach {until}: its end is missing"
        )

    def _check_bound(self, segment: SegmentReader, size: int, following: int) -> None:
        """Refuses a batch that ends a range but belongs to later segments.

        No CRC covers its base offset, and in a log with gaps no batch says where the next one begins; what is after it
        would be missing silently. The cleaner merges segments, though: a cleaned one replaces those that are about to
        be deleted.
        """
        position = self._stream.position
        if position >= size or segment.log.path.endswith(SWAP):
            return
        base_offset = int.from_bytes(segment.log.pread(LENGTH_AT, position), "big", signed=True)
        if base_offset >= following:
            raise LogDamagedError(
                f"{self._place}: {segment.log.path} at byte {position}: a batch has the base offset {base_offset}, "
                f"but the next segment begins at {following}. Either that field is damaged, or this copy was made "
                "while the cleaner was at work: restore these files from another copy"
            )
