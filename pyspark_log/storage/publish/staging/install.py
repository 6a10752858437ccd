"""Chooses the staged files that become segments of a log, instead of being copied (log/appending/new_segment.py)."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from enum import Enum

from pyspark_log.config import TopicConfig
from pyspark_log.errors import CorruptRecordError
from pyspark_log.storage.catalog import PartitionPath
from pyspark_log.storage.fs import files
from pyspark_log.storage.fs.links import on_one_device
from pyspark_log.storage.publish.staging.staged_file import StagedRegion
from pyspark_log.storage.record.layout import LOG_APPEND_TIME
from pyspark_log.storage.segment import read_headers
from pyspark_log.storage.segment.indexes import TimeIndex

# What a decision adds to a partition is copied if it is at most segment.bytes / 8, within these bounds (bytes): the
# copy is quick, and the segment would be a small one. More is copied only if nothing else is possible.
_COPY_LEAST, _COPY_MOST = 4 * 1024 * 1024, 32 * 1024 * 1024
# Beyond that, a file becomes a segment if it has segment.bytes / 8, or this much.
_INSTALL_MOST = 8 * 1024 * 1024


class Ways(Enum):
    """The ways in which staged batches may get into the log."""

    BY_SIZE = 1
    COPIED = 2  # because nothing else is possible
    INSTALLED = 3  # because there is no room for copies


def copy_limit(config: TopicConfig) -> int:
    """The most bytes of a decision that are copied into a partition of a topic while its lock is held."""
    return max(_COPY_LEAST, min(_COPY_MOST, config.segment_bytes // 8))


def is_copied_anywhere(size: int) -> bool:
    """Whether this many bytes of a decision are within the copy limit of every topic."""
    return size <= _COPY_LEAST


def install_size(config: TopicConfig) -> int:
    """The least size, in bytes, at which a file may become a segment of its own."""
    return min(_INSTALL_MOST, config.segment_bytes // 8)


def most_batches(config: TopicConfig) -> int:
    """The most batches that a staged file may have, so that the indexes have room for each of them."""
    # One entry of the time index is the closing entry. An offset index of that size has room for more.
    return max(1, config.segment_index_bytes // TimeIndex.WIDTH - 1)


def choose(
    regions: Sequence[StagedRegion], place: PartitionPath, config: TopicConfig, append_time: int | None, ways: Ways
) -> list[bool]:
    """Chooses the regions that are to become segments.

    Args:
        regions: all that a decision adds to a partition.
        place, config: the partition, and its topic's configs.
        append_time: the time of all records if the topic has LogAppendTime, in ms; else None.
        ways: the ways that are allowed.
    """
    chosen = [False] * len(regions)
    left = sum(region.size for region in regions)
    if ways is Ways.COPIED or (ways is Ways.BY_SIZE and left <= copy_limit(config)):
        return chosen
    # The largest first; a region too small for a segment only if too much would be copied otherwise.
    for number in sorted(range(len(regions)), key=lambda number: -regions[number].size):
        region = regions[number]
        if ways is Ways.BY_SIZE and region.size < install_size(config) and left <= copy_limit(config):
            break
        # Where there is no room for copies, one made beforehand finds none either.
        is_fit = can_be_linked(region, place) if ways is Ways.INSTALLED else _is_whole_file(region)
        if is_fit and (append_time is None or _has_time(region, append_time)):
            chosen[number] = True
            left -= region.size
    return chosen


def _is_whole_file(region: StagedRegion) -> bool:
    """Whether a region is a file of its own."""
    try:
        return region.position == 0 and files.size_of(region.path) == region.size
    except FileNotFoundError:
        return False  # Reading it reports the error.


def can_be_linked(region: StagedRegion, place: PartitionPath) -> bool:
    """Whether a region is a file of its own, on the device of its log, with access for every process that has access to
    the partition's files.
    """
    try:
        found, wanted = files.status_of(region.path), files.status_of(place.state_path)
        if not on_one_device(os.path.dirname(region.path), os.path.dirname(place.folder)):
            return False
    except FileNotFoundError:
        return False
    same_rights = (found.st_mode, found.st_gid) == (wanted.st_mode, wanted.st_gid)
    same_owner = found.st_uid == wanted.st_uid or bool(found.st_mode & stat.S_IWGRP)
    return _is_whole_file(region) and same_rights and same_owner


def _has_time(region: StagedRegion, append_time: int) -> bool:
    """Whether all records of a region have the time of the append already; it is under the CRC."""
    try:
        with files.open_read(region.path) as file:
            return all(
                header.attributes & LOG_APPEND_TIME and header.max_timestamp == append_time
                for header in read_headers(file, 0, region.size)
            )
    except (FileNotFoundError, CorruptRecordError):
        return False
