"""Reads the record batches of a log file in order.

`BatchStream` is for bytes that must be a chain of whole batches: anything else is damage. `intact_batches` is for the
end of a log, where an append may be unfinished: it stops at the first batch that is not complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Protocol, TypeVar
from zlib import crc32

from pyspark_log.errors import BatchTooLargeError, CorruptRecordError, LogDamagedError
from pyspark_log.storage.fs import files
from pyspark_log.storage.record import BatchHeader, crc32c, headers_in
from pyspark_log.storage.record.layout import ATTRIBUTES_AT, HEADER_SIZE, LENGTH_AT, LENGTH_PREFIX, MAGIC, MAGIC_AT

#: Bytes that are read at a time, unless a batch is larger.
READ_SIZE: Final = 1024 * 1024

Taken = TypeVar("Taken")


class Readable(Protocol):
    """An open log file, or an object that is read like one."""

    @property
    def path(self) -> str:
        """Named in errors."""

    def pread_into(self, buffer: memoryview, position: int) -> int:
        """As `files.File.pread_into`."""


class BatchStream:
    """Reads regions of log files through one buffer, which grows to the largest batch. Not thread-safe.

    Attributes:
        position: where in the file the last batch ends that was taken.
    """

    def __init__(
        self, max_batch_bytes: int, topic: str = "", partition: int = -1, *, window: int = READ_SIZE,
        later: int | None = None, tries: int = 1,
    ) -> None:  # fmt: skip
        """Allocates nothing yet.

        Args:
            max_batch_bytes: the most that one batch may have; a larger one is an error.
            topic, partition: named in errors.
            window: bytes that are read at a time, unless a batch is larger.
            later: the same after the first read of a region; None: no more than that.
            tries: how often a bad batch is read before it is an error. On a shared file system the first read can
                return pages that another machine has since rewritten.
        """
        self._max_batch_bytes = max_batch_bytes
        self._topic, self._partition = topic, partition
        self._window, self._most, self._tries = window, later or window, tries
        self._buffer = memoryview(b"")
        self.position = 0

    def read(
        self, file: Readable, start: int, end: int, take: Callable[[memoryview, int, int], tuple[int, Taken]]
    ) -> Iterator[Taken]:
        """Hands the bytes [start, end) of a file to `take`, and yields what it makes of them.

        Args:
            file: the file.
            start, end: in bytes; at `start` a batch begins.
            take: gets a buffer, where in it the next batch begins, and where the bytes end. It returns where the last
                batch ends that it has taken (where it began, if there is no whole batch), and what is yielded. Errors
                that it raises count from the buffer's start. The buffer stays as it is until the next call.

        Raises:
            CorruptRecordError: of `take`, with the place; or the region ends within a batch.
            LogDamagedError: the file is shorter than `end`.
        """
        wanted = min(self._window, end - start)
        if not wanted <= len(self._buffer) <= self._most:
            self._buffer = memoryview(bytearray(wanted))
        position, rest, tries = start, self._buffer[:0], 0
        while position < end:
            filled = self._fill(file, position, rest, end)
            at, before = 0, -1
            try:
                while before < at < filled:
                    before = at
                    at, value = take(self._buffer, at, filled)
                    if at > before:
                        tries = 0
                    self.position = position + at
                    yield value
                rest = self._buffer[at:filled]
                if at == 0:
                    self._grow(filled, end - position)
            except CorruptRecordError as error:
                tries += 1
                if tries == self._tries:
                    raise error.located(position, file.path, self._topic, self._partition) from None
                rest = self._buffer[:0]  # It is read again.
            position += at
            wanted = min(self._most, end - position)
            if len(self._buffer) < wanted:
                self._buffer = memoryview(bytearray(wanted))

    def _fill(self, file: Readable, position: int, rest: memoryview, end: int) -> int:
        """Fills the buffer with `rest`, the bytes at `position` of the file, and with those that follow them there.

        Returns where they end. LogDamagedError.
        """
        held = len(rest)
        self._buffer[:held] = rest
        filled = min(len(self._buffer), end - position)
        found = held + file.pread_into(self._buffer[held:filled], position + held)
        if found < filled:
            raise LogDamagedError(
                f"{self._topic}-{self._partition}: {file.path} has {position + found} bytes but had {end}: "
                "another program truncated it during the read; restore it from a copy"
            )
        return filled

    def _grow(self, filled: int, left: int) -> None:
        """Enlarges the buffer to the size of the batch at its start, by its length field. CorruptRecordError."""
        base_offset = int.from_bytes(self._buffer[:LENGTH_AT], "big", signed=True)
        size = int.from_bytes(self._buffer[LENGTH_AT:LENGTH_PREFIX], "big", signed=True) + LENGTH_PREFIX
        if left < HEADER_SIZE or not filled < size <= left:
            raise CorruptRecordError(
                f"no whole batch: its length field says {size} bytes, {left} are left", 0, base_offset
            )
        if size > self._max_batch_bytes:
            raise BatchTooLargeError(size, self._max_batch_bytes, 0, base_offset)
        self._buffer = memoryview(bytearray(size))


def header_at(file: files.File, position: int, end: int) -> BatchHeader | None:
    """The header of the complete batch that starts at `position` and ends by `end`, if there is one; its CRC is not
    checked.
    """
    if not 0 <= position < end:
        return None
    try:
        headers = headers_in(file.pread(min(HEADER_SIZE, end - position), position), position, end)
    except CorruptRecordError:
        return None
    return headers[0] if headers else None


def is_intact(file: files.File, header: BatchHeader) -> bool:
    """Whether a batch has the CRC that its header says; a large one is read in pieces."""
    own = header.magic == MAGIC
    checksum, at = 0, header.position + (ATTRIBUTES_AT if own else MAGIC_AT)
    while at < header.end:
        piece = file.pread(min(READ_SIZE, header.end - at), at)
        if not piece:
            return False  # the file was truncated meanwhile
        checksum = crc32c(piece, checksum) if own else crc32(piece, checksum)
        at += len(piece)
    return checksum == header.crc


def batch_at(file: files.File, position: int, end: int) -> BatchHeader | None:
    """The complete batch with a correct CRC that starts at `position` and ends by `end`, if there is one."""
    header = header_at(file, position, end)
    return header if header is not None and is_intact(file, header) else None


def intact_batches(file: files.File, position: int, end: int, offset: int) -> Iterator[BatchHeader]:
    """The batches from a byte of a log on, as long as each ends by `end`, has a correct CRC, and begins at the offset
    where the one before it ends; the first begins at `offset`.
    """
    while (header := batch_at(file, position, end)) is not None and header.base_offset == offset:
        yield header
        position, offset = header.end, header.next_offset
