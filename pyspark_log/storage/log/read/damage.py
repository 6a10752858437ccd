"""What of a log cannot be read."""

from __future__ import annotations

from typing import NamedTuple


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
