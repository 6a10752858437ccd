"""Checks whether a batch is complete, without all of it in memory."""

from __future__ import annotations

from zlib import crc32

from pyspark_log.errors import CorruptRecordError
from pyspark_log.storage.fs import files
from pyspark_log.storage.record import (
    ATTRIBUTES_AT,
    HEADER_SIZE,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    crc32c,
    headers_in,
)

# A batch is read in chunks of this many bytes.
_PIECE = 1024 * 1024


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
