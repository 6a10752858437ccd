"""What of a log cannot be read, and how that is found in a segment."""

from __future__ import annotations

from typing import NamedTuple

from pyspark_log.storage.fs import files


class Damage(NamedTuple):
    """Records of a log that cannot be read.

    Attributes:
        file: the segment file.
        position, end: the bad bytes in it; the same: they are missing.
        first_offset, next_offset: the offsets of the records, the second exclusive.
        reason: what is wrong.
    """

    file: str
    position: int
    end: int
    first_offset: int
    next_offset: int
    reason: str


def missing_segment(path: str, offset: int, until: int) -> Damage:
    """The damage that the segment of some offsets is missing; `path`: where it should be."""
    return Damage(path, 0, 0, offset, until, "the segment is missing")


def find_damage(
    path: str, base_offset: int, size: int | None, offset: int, until: int, *, max_batch_bytes: int, dense: bool
) -> Damage | None:
    """The first damage that a read from an offset on meets in the segment with that offset; None: there is none.

    Args:
        path: the segment's `.log` file, which is read from its beginning.
        base_offset: of the segment.
        size: its live bytes; None: all that the file has.
        offset, until: the offsets that are to be read; the second, exclusive, is where the segment ends.
        max_batch_bytes: the most that one batch may take in memory.
        dense: as of SegmentScanner.

    Raises:
        OSError: the file cannot be read.
    """
    from pyspark_log.storage.segment.scanner import Damaged, SegmentScanner  # noqa: PLC0415  (Arrow, which a server does not load)

    try:
        file = files.open_read(path)
    except FileNotFoundError:
        return missing_segment(path, offset, until)
    with file:
        scanner = SegmentScanner(max_batch_bytes, dense=dense)
        for piece in scanner.walk(file, file.size() if size is None else size, base_offset, until):
            if isinstance(piece, Damaged) and piece.next_offset > offset:
                first = max(piece.first_offset, offset)
                return Damage(path, piece.position, piece.end, first, piece.next_offset, piece.reason)
    return None
