"""Scans a segment to its very end and separates intact batches from damage.

A reader stops at the first bad batch. This scan continues after it, at the next place with a complete batch
that can belong there: format 2, a correct CRC, and offsets between those of its neighbours.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from pyspark_log.config import INT_MAX, LONG_MAX
from pyspark_log.errors import BatchTooLargeError, CorruptRecordError
from pyspark_log.storage.fs import files
from pyspark_log.storage.record import HEADER_SIZE, LENGTH_AT, LENGTH_PREFIX, MAGIC, MAGIC_AT, BatchHeader, decode, scan
from pyspark_log.storage.segment.proof import batch_at

#: Bytes that are read at a time, unless a batch is larger.
WINDOW: Final = 4 * 1024 * 1024
# Errors of reads that a file system can refuse on its own.
_PAGE = 4096
# Bad bytes are read this often before they are reported as bad: on a shared file system the first read can return
# pages that another machine has since rewritten.
_TRIES = 3


@dataclass(frozen=True, slots=True)
class Intact:
    """Consecutive batches that are intact: bytes, offsets, and every record.

    Attributes:
        headers: theirs; positions count from the start of the file.
        data: their bytes, valid until the scan continues.
        columns: their records, as `decode` returns them, without headers.
    """

    headers: Sequence[BatchHeader]
    data: memoryview
    columns: Mapping[str, pa.Array]


@dataclass(frozen=True, slots=True)
class Damaged:
    """Bytes that are not complete batches, or offsets that are missing.

    Attributes:
        position, end: the byte range in the file; empty if something is missing.
        first_offset, next_offset: the offsets that should be there, the second exclusive.
        reason: what is wrong at `position`.
        advice: what to do about it, if it is not damage.
    """

    position: int
    end: int
    first_offset: int
    next_offset: int
    reason: str
    advice: str = ""


class SegmentScanner:
    """Scans one segment after the other with one buffer. Not thread-safe."""

    def __init__(self, max_batch_bytes: int, *, dense: bool = True) -> None:
        """Allocates nothing yet.

        Args:
            max_batch_bytes: the most that one batch may take in memory; a larger one is not examined.
            dense: whether each batch must begin where the one before it ends; else it must not begin before that.
        """
        self._max_batch_bytes = max_batch_bytes
        self._dense = dense
        self._buffer = bytearray(WINDOW)
        self._unreadable = ""

    def walk(self, file: files.File, size: int, base_offset: int, until: int | None) -> Iterator[Intact | Damaged]:
        """Yields all of a segment, in order, without a gap in bytes or offsets.

        Args:
            file: the open `.log` file.
            size: its live bytes.
            base_offset: the segment's base offset, at which its first batch begins.
            until: the offset that it must reach (if dense, else not exceed), where the next segment begins or the log
                ends; None: it is not known, the log ends where its batches do.
        """
        if len(self._buffer) > WINDOW:
            self._buffer = bytearray(WINDOW)
        limit = base_offset + INT_MAX + 1 if until is None else until
        position, offset, tries = 0, base_offset, 0
        while position < size:
            filled = self._fill(file, position, min(len(self._buffer), size - position))
            at, reason, advice = 0, "", ""
            try:
                for piece in self._sound(position, filled, offset, limit):
                    yield piece
                    at, offset, tries = piece.headers[-1].end - position, piece.headers[-1].next_offset, 0
                if at == 0 and filled > 0:
                    reason = self._make_room(filled, size - position, offset)
            except CorruptRecordError as error:
                at, reason = error.position, error.reason
                advice = error.advice if isinstance(error, BatchTooLargeError) else ""
            position += at
            if not filled:
                break
            if reason:
                tries += 1
                if tries < _TRIES:
                    continue
                reason = self._unreadable or reason
                following = self._next(file, position, size, offset, limit)
                bad = position, offset
                if following is None:
                    following = size, offset if until is None else until
                position, offset = following
                yield Damaged(bad[0], position, bad[1], offset, reason, advice)
                tries = 0
        if self._dense and until is not None and offset < until:
            yield Damaged(position, position, offset, until, f"it ends at offset {offset} and must reach {until}")

    def _sound(self, position: int, filled: int, offset: int, limit: int) -> Iterator[Intact]:
        """The intact batches at the start of the buffer, of which `filled` bytes are valid.

        Raises:
            CorruptRecordError: a bad one follows them; its position is one of the buffer.
        """
        at, stop = 0, filled
        while True:
            chunk = decode(
                self._buffer, at, stop, from_offset=0, until_offset=LONG_MAX, max_bytes=WINDOW, dense=self._dense,
                follows=offset, max_batch_bytes=self._max_batch_bytes,
            )  # fmt: skip
            if chunk.position == at:
                return
            headers = scan(self._buffer, at, chunk.position)
            beyond = next((header for header in headers if header.next_offset > limit), None)
            if beyond is not None:
                if beyond is headers[0]:
                    raise CorruptRecordError(
                        f"its offsets {beyond.base_offset} to {beyond.last_offset} reach beyond {limit}, where the "
                        "next segment begins or the log ends",
                        at, beyond.base_offset,
                    )  # fmt: skip
                stop = beyond.position
                continue
            yield Intact(
                [header._replace(position=position + header.position) for header in headers],
                memoryview(self._buffer)[at : chunk.position],
                chunk.columns,
            )
            at, offset = chunk.position, chunk.follows
            if at == stop < filled:
                stop = filled

    def _make_room(self, filled: int, left: int, offset: int) -> str:
        """Enlarges the buffer to the size of the batch at its start; or returns why there is none."""
        if filled < HEADER_SIZE:
            return f"{filled} bytes are left, less than a batch has"
        needed = _size_at(self._buffer, 0)
        base_offset = int.from_bytes(self._buffer[:LENGTH_AT], "big", signed=True)
        # By the base offset too, so that a damaged length is not followed far.
        misplaced = base_offset != offset if self._dense else base_offset < offset
        if not len(self._buffer) < needed <= left or misplaced:
            return f"no whole batch: base offset {base_offset}, {needed} bytes of {left} that are left"
        if needed > self._max_batch_bytes:
            raise BatchTooLargeError(needed, self._max_batch_bytes, 0, base_offset)
        self._buffer = bytearray(needed)
        return ""

    def _fill(self, file: files.File, position: int, size: int) -> int:
        """Fills the buffer; bytes that cannot be read are zeros in it. Returns how many bytes there were."""
        view = memoryview(self._buffer)[:size]
        self._unreadable = ""
        try:
            return file.pread_into(view, position)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            self._unreadable = f"the disk does not give the bytes: {error}"
        for at in range(0, size, _PAGE):
            page = view[at : at + _PAGE]
            try:
                file.pread_into(page, position + at)
            except OSError:
                page[:] = bytes(len(page))
        return size

    def _next(
        self, file: files.File, position: int, size: int, offset: int, limit: int
    ) -> tuple[int, int] | None:
        """The position and base offset of the next intact batch after the bad one at `position`."""
        self._fill(file, position, min(HEADER_SIZE, size - position))
        claimed = position + _size_at(self._buffer, 0)
        if claimed == size:
            return None
        if position < claimed < size and (found := self._proven(file, claimed, size, offset, limit)):
            return found
        start = position + 1
        while start + HEADER_SIZE <= size:
            filled = self._fill(file, start, min(WINDOW, size - start))
            if filled < HEADER_SIZE:
                return None
            for at in self._candidates(filled, offset, limit):
                if found := self._proven(file, start + at, size, offset, limit):
                    return found
            start += filled - HEADER_SIZE + 1
        return None

    def _candidates(self, filled: int, offset: int, limit: int) -> Iterator[int]:
        """Places in the buffer whose bytes could be a header: the magic byte, and offsets of this segment."""
        magic = bytes([MAGIC])
        at = self._buffer.find(magic, MAGIC_AT, filled)
        while at >= 0:
            start = at - MAGIC_AT
            base_offset = int.from_bytes(self._buffer[start : start + LENGTH_AT], "big")
            if offset <= base_offset < limit and start + HEADER_SIZE <= filled:
                yield start
            at = self._buffer.find(magic, at + 1, filled)

    def _proven(
        self, file: files.File, position: int, size: int, offset: int, limit: int
    ) -> tuple[int, int] | None:
        """The position and base offset of the batch at `position`, if there is one that can belong there."""
        try:
            found = batch_at(file, position, size)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return None
        if found is None or found.magic != MAGIC or not offset <= found.base_offset < found.next_offset <= limit:
            return None
        return position, found.base_offset


def _size_at(buffer: bytearray, at: int) -> int:
    """The size of the batch at a byte of a buffer, by its length field."""
    return int.from_bytes(buffer[at + LENGTH_AT : at + LENGTH_PREFIX], "big", signed=True) + LENGTH_PREFIX
