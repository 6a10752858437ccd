"""Checks of a batch before all of it is in memory: how large it is, and whether it is complete."""

from __future__ import annotations

from zlib import crc32

from pyspark_log.errors import BatchTooLargeError, CorruptRecordError
from pyspark_log.storage.fs import files
from pyspark_log.storage.record import (
    ATTRIBUTES_AT,
    HEADER_SIZE,
    LENGTH_AT,
    LENGTH_PREFIX,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    crc32c,
    headers_in,
)

# A batch is read in chunks of this many bytes.
_PIECE = 1024 * 1024


def first_size(data: bytes | bytearray) -> int:
    """The size in bytes of the batch at the start of some bytes, by its length field."""
    return int.from_bytes(data[LENGTH_AT:LENGTH_PREFIX], "big", signed=True) + LENGTH_PREFIX


def batch_size(start: memoryview, left: int, limit: int) -> int:
    """The size in bytes of a batch that is larger than what was read of it.

    Args:
        start: what was read.
        left: bytes of the log from the batch's beginning on.
        limit: the most that it may have.

    Raises:
        CorruptRecordError: it is not larger, or would pass the end of the log; BatchTooLargeError. Positions count
            from its beginning.
    """
    base_offset = int.from_bytes(start[:LENGTH_AT], "big", signed=True)
    size = int.from_bytes(start[LENGTH_AT : LENGTH_AT + 4], "big", signed=True) + LENGTH_PREFIX
    if left < HEADER_SIZE or not len(start) < size <= left:
        raise CorruptRecordError(f"no whole batch: its length field says {size} bytes, {left} are left", 0, base_offset)
    if size > limit:
        raise BatchTooLargeError(size, limit, 0, base_offset)
    return size


def batch_at(file: files.File, position: int, end: int) -> BatchHeader | None:
    """The complete batch with a correct CRC that starts at `position` and ends by `end`, if there is one."""
    if not 0 <= position < end:
        return None
    try:
        headers = headers_in(file.pread(min(HEADER_SIZE, end - position), position), position, end)
    except CorruptRecordError:
        return None
    return headers[0] if headers and _checksum(file, headers[0]) == headers[0].crc else None


def _checksum(file: files.File, header: BatchHeader) -> int:
    own = header.magic == MAGIC
    checksum, at = 0, header.position + (ATTRIBUTES_AT if own else MAGIC_AT)
    while at < header.end:
        piece = file.pread(min(_PIECE, header.end - at), at)
        if not piece:
            return -1  # the file was truncated meanwhile
        checksum = crc32c(piece, checksum) if own else crc32(piece, checksum)
        at += len(piece)
    return checksum
