"""The names of a segment's files: the base offset in 20 digits, and a suffix for each kind of file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from pyspark_log.storage.fs import files

LOG, INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT = ".log", ".index", ".timeindex", ".txnindex", ".snapshot"
POSITIONS = ".positions"
#: All files that a segment can have: two only with idempotent producers, the last only with source.position.header.
SEGMENT_SUFFIXES = (LOG, INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT, POSITIONS)
#: The suffix of a file that is marked as deleted.
DELETED = ".deleted"
#: The suffixes of a cleaned segment: until it is complete, and while it replaces others.
CLEANED, SWAP = ".cleaned", ".swap"

_LOG_NAME = re.compile(r"[0-9]{20}\.log")


def segment_path(folder: str, base_offset: int, suffix: str) -> str:
    """The name of a segment's file: 20 digits of its base offset and a suffix."""
    return f"{folder}/{base_offset:020d}{suffix}"


def list_segments(folder: str) -> list[int]:
    """The base offsets of the segments in a partition's folder, ascending; none if there is no folder."""
    try:
        names = files.list_folder(folder)
    except FileNotFoundError:
        return []
    return sorted(int(name[:20]) for name in names if name.endswith(LOG) and _LOG_NAME.fullmatch(name))


def mark_deleted(folder: str, bases: Iterable[int]) -> None:
    """Gives all files of segments the suffix under which they are deleted later. Not durable by itself. OSError."""
    names = set(files.list_folder(folder))
    for base in bases:
        # The log last: as long as it is there, the next pass marks the whole segment.
        for suffix in reversed(SEGMENT_SUFFIXES):
            path = segment_path(folder, base, suffix)
            if os.path.basename(path) in names:
                files.rename(path, path + DELETED)


def same_file(path: str, other: str) -> bool:
    """Whether both names are of one file; False if one is missing."""
    try:
        return files.are_same(path, other)
    except FileNotFoundError:
        return False
