"""Scans a segment to its very end and separates intact batches from damage.

A reader stops at the first bad batch. This scan continues after it, at the next place with a complete batch
that can belong there: format 2, a correct CRC, and offsets between those of its neighbours.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark_log.config import INT_MAX, LONG_MAX
from pyspark_log.errors import BatchTooLargeError, CorruptRecordError
from pyspark_log.storage.fs import files
from pyspark_log.storage.record import BatchHeader, scan
from pyspark_log.storage.record.decoding.decoder import decode
from pyspark_log.storage.record.layout import HEADER_SIZE, LENGTH_AT, LENGTH_PREFIX, MAGIC, MAGIC_AT
from pyspark_log.storage.segment.batch_stream import BatchStream, batch_at

if TYPE_CHECKING:
    import pyarrow as pa

#: Bytes that are read at a time, unless a batch is larger.
WINDOW: Final = 4 * 1024 * 1024
# Errors of reads that a file system can refuse on its own.
_PAGE = 4096
# Bad bytes are read this often before they are reported as bad.
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
        self._stream = BatchStream(max_batch_bytes, window=WINDOW, tries=_TRIES)

    def walk(self, file: files.File, size: int, base_offset: int, until: int | None) -> Iterator[Intact | Damaged]:
        """Yields all of a segment, in order, without a gap in bytes or offsets.

        Args:
            file: the open `.log` file.
            size: its live bytes; the file may have fewer.
            base_offset: the segment's base offset, at which its first batch begins.
            until: the offset that it must reach (if dense, else not exceed), where the next segment begins or the log
                ends; None: it is not known, the log ends where its batches do.
        """
        limit = base_offset + INT_MAX + 1 if until is None else until
        size = min(size, file.size())
        source, position, offset = _ZeroFilled(file), 0, base_offset

        def take(buffer: memoryview, at: int, filled: int) -> tuple[int, Intact | None]:
            return self._take(buffer, at, filled, offset, limit)

        while position < size:
            try:
                for piece in self._stream.read(source, position, size, take):
                    if piece is not None:
                        shift = self._stream.position - piece.headers[-1].end
                        headers = [header._replace(position=shift + header.position) for header in piece.headers]
                        yield Intact(headers, piece.data, piece.columns)
                        offset = headers[-1].next_offset
                break
            except CorruptRecordError as error:
                bad, reason = error.position, source.fault or error.reason
                advice = error.advice if isinstance(error, BatchTooLargeError) else ""
                following = self._next(source, bad, size, offset, limit) or (size, offset if until is None else until)
                yield Damaged(bad, following[0], offset, following[1], reason, advice)
                position, offset = following
        if self._dense and until is not None and offset < until:
            yield Damaged(size, size, offset, until, f"it ends at offset {offset} and must reach {until}")

    def _take(self, buffer: memoryview, at: int, end: int, offset: int, limit: int) -> tuple[int, Intact | None]:
        """Where the intact batches end that begin at `at`, and these; None: the first one is incomplete.

        Raises:
            CorruptRecordError: the first one is bad, or would be even if it were complete.
        """
        chunk = decode(
            buffer, at, end, from_offset=0, until_offset=LONG_MAX, max_bytes=WINDOW, dense=self._dense,
            follows=offset, max_batch_bytes=self._max_batch_bytes,
        )  # fmt: skip
        if chunk.position == at:
            base_offset = int.from_bytes(buffer[:LENGTH_AT], "big", signed=True)
            # So that a damaged length is not followed far.
            if at == 0 and (base_offset != offset if self._dense else base_offset < offset):
                raise CorruptRecordError(f"no whole batch: base offset {base_offset}, not {offset}", 0, base_offset)
            return at, None
        headers = scan(buffer, at, chunk.position)
        beyond = next((header for header in headers if header.next_offset > limit), None)
        if beyond is None:
            return chunk.position, Intact(headers, buffer[at : chunk.position], chunk.columns)
        if beyond is not headers[0]:
            return self._take(buffer, at, beyond.position, offset, limit)
        raise CorruptRecordError(
            f"its offsets {beyond.base_offset} to {beyond.last_offset} reach beyond {limit}, where the next segment "
            "begins or the log ends",
            at,
            beyond.base_offset,
        )

    def _next(self, source: _ZeroFilled, position: int, size: int, offset: int, limit: int) -> tuple[int, int] | None:
        """The position and base offset of the next intact batch after the bad one at `position`."""
        header = source.read(position, min(HEADER_SIZE, size - position))
        claimed = position + int.from_bytes(header[LENGTH_AT:LENGTH_PREFIX], "big", signed=True) + LENGTH_PREFIX
        if claimed == size:
            return None
        if position < claimed < size and (found := _proven(source.file, claimed, size, offset, limit)):
            return found
        start = position + 1
        while start + HEADER_SIZE <= size:
            data = source.read(start, min(WINDOW, size - start))
            for at in _candidates(data, offset, limit):
                if found := _proven(source.file, start + at, size, offset, limit):
                    return found
            start += len(data) - HEADER_SIZE + 1
        return None


class _ZeroFilled:
    """A log file in which bytes that cannot be read are zeros.

    Attributes:
        fault: why bytes of the last read could not be read; "": all could.
    """

    def __init__(self, file: files.File) -> None:
        self.file, self.path, self.fault = file, file.path, ""

    def pread_into(self, buffer: memoryview, position: int) -> int:
        """Fills all of `buffer`. OSError, except for what a disk refuses."""
        self.fault = ""
        try:
            found = self.file.pread_into(buffer, position)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            self.fault = f"the disk does not give the bytes: {error}"
            found = len(buffer)
            for at in range(0, found, _PAGE):
                page = buffer[at : at + _PAGE]
                try:
                    self.file.pread_into(page, position + at)
                except OSError:
                    page[:] = bytes(len(page))
        buffer[found:] = bytes(len(buffer) - found)
        return len(buffer)

    def read(self, position: int, size: int) -> bytearray:
        """The bytes at a position."""
        data = bytearray(size)
        self.pread_into(memoryview(data), position)
        return data


def _candidates(data: bytearray, offset: int, limit: int) -> Iterator[int]:
    """Places whose bytes could be a header: the magic byte, and offsets of this segment."""
    magic = bytes([MAGIC])
    at = data.find(magic, MAGIC_AT)
    while at >= 0:
        start = at - MAGIC_AT
        base_offset = int.from_bytes(data[start : start + LENGTH_AT], "big")
        if offset <= base_offset < limit and start + HEADER_SIZE <= len(data):
            yield start
        at = data.find(magic, at + 1)


def _proven(file: files.File, position: int, size: int, offset: int, limit: int) -> tuple[int, int] | None:
    """The position and base offset of the batch at `position`, if there is a batch that can belong there."""
    try:
        found = batch_at(file, position, size)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return None
    if found is None or found.magic != MAGIC or not offset <= found.base_offset < found.next_offset <= limit:
        return None
    return position, found.base_offset
