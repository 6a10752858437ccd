"""Where record batches are in the file of their segment: for one that sends them as they are stored, or shares them."""

from __future__ import annotations

from typing import NamedTuple

from pyspark_log.storage.fs import files
from pyspark_log.storage.segment import SegmentReader

# The headers of this many bytes are read without a look at the index, which costs as much.
_NEAR = 32 * 1024


class StoredBatches(NamedTuple):
    """Whole record batches that follow each other in a segment.

    Attributes:
        file: the segment's log, open; the receiver closes it. It can be read until then, whatever becomes of its name.
        position, length: where they are in it, in bytes.
        next_offset: the offset after the last of their records.
    """

    file: files.File
    position: int
    length: int
    next_offset: int


def locate(segment: SegmentReader, size: int, start: int, end: int, max_bytes: int) -> StoredBatches | None:
    """The batches from offset `start` on, of which none has a record at `end` or after it.

    Args:
        segment: has `start`, or may have the first batch after it.
        size: its live bytes.
        start, end: offsets; a batch begins at `end`, or the log ends there.
        max_bytes: the most bytes, but for the first batch, which is there in any case.

    Returns:
        None: no batch in this segment reaches `start`.

    Raises:
        CorruptRecordError: the headers are no chain of batches.
    """
    headers = segment.headers(segment.position_of(start, size), size)
    first = last = next((header for header in headers if header.next_offset > start), None)
    if first is None or last is None or first.base_offset >= end:
        return None
    stop = first.position + max_bytes
    near = segment.batch_before(stop, size, is_whole=True) if min(stop, size) - first.position > _NEAR else None
    if near is not None and near.position > first.position and near.next_offset <= end:
        headers = segment.headers(near.position, size)
    for header in headers:
        if header.end > stop or header.next_offset > end:
            break
        last = header
    return StoredBatches(segment.log, first.position, last.end - first.position, last.next_offset)


def end_before(segment: SegmentReader, start: int, stop: int, size: int, end: int) -> int:
    """The last known offset at which a batch begins, before a byte; at least the end of the first batch.

    Args:
        segment, size, start: as of `locate`.
        stop: the byte, at most `size`.
        end: the offset is not above it.

    Raises:
        CorruptRecordError: as `locate`.
    """
    header = segment.batch_before(stop, size)
    if header is not None and header.base_offset > start:
        return min(header.base_offset, end)
    if segment.base_offset > start:
        return segment.base_offset
    for header in segment.headers(segment.position_of(start, size), size):
        if header.next_offset > start:
            return min(header.next_offset, end)
    return end
