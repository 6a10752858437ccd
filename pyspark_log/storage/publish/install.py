"""Installs staged files as segments of a log, instead of copying them while its lock is held.

A batch's CRC covers neither its base offset nor its leader epoch, and the entries of indexes are relative to the
segment's base. So a staged file that holds batches of one partition alone needs 12 bytes a batch to be a
segment. All else is done before the lock is taken: the indexes are built, and the file gets a hard link; or it is
copied to the device of the log, if it is on another one, or cannot be linked.

Several processes may do this with one staged file at once. Without the lock, each changes only names of its own: the
link and the indexes. The file itself is only read then, and only fields that no process changes are used. Offsets are
written under the partition's lock alone, by a process that has found there that the decision is not applied. Until it
is, the file is in no log, or is beyond a log's end and is removed from there by its name; once it is, no process
writes to it by another name than that of the segment. The staged name keeps the file until the decision is done.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import stat
import struct
from array import array
from collections.abc import Iterator, Sequence
from enum import Enum

from pyspark_log.config import TopicConfig
from pyspark_log.errors import CorruptRecordError, StagedOutputError
from pyspark_log.storage.catalog import PartitionPath
from pyspark_log.storage.fs import files, forbids_links, on_one_device
from pyspark_log.storage.publish.staged_file import StagedRegion, read_region
from pyspark_log.storage.record import BASE_OFFSET_AT, LEADER_EPOCH_AT, LOG_APPEND_TIME, BatchHeader, crcs_of
from pyspark_log.storage.segment import INDEX, LOG, TIME_INDEX, SegmentWriter, TimeIndex, read_headers, segment_path

log = logging.getLogger(__name__)

# What a decision adds to a partition is copied if it is at most segment.bytes / 8, within these bounds (bytes): the
# copy is quick, and the segment would be a small one. More is copied only if nothing else is possible.
_COPY_LEAST, _COPY_MOST = 4 * 1024 * 1024, 32 * 1024 * 1024
# Beyond that, a file becomes a segment if it has segment.bytes / 8, or this much.
_INSTALL_MOST = 8 * 1024 * 1024

_READY = re.compile(r"[0-9]{20}\.(log|index|timeindex)")
_OFFSET, _EPOCH = struct.Struct(">q"), struct.Struct(">i")


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


class ReadySegment:
    """A hard link to a staged file, or a copy of it, with its indexes; only its offsets are missing.

    It is a segment in the staging folder, or in the log dir if that is on another device, under a random base offset.
    A copy belongs to this process alone: it is read and synced before the lock is taken, and the staged file stays
    unchanged.

    Attributes:
        size, count, crcs: as of the region.
        closed: whether the time index has its closing entry.
        staged_path: the staged file's own name.
    """

    def __init__(
        self, region: StagedRegion, place: PartitionPath, config: TopicConfig, *, closed: bool, sync: bool
    ) -> None:
        """Links or copies a region that is a whole file, and builds its indexes.

        Args:
            region: the file.
            place: where the partition is; the caller has verified its log dir.
            config: its topic's configs.
            closed: whether another segment begins right after it.
            sync: whether the file may have bytes that are not on the disk.

        Raises:
            OSError: e.g. a full disk.
            CorruptRecordError, StagedOutputError: it holds something else than what was staged.
        """
        self.size, self.count, self.crcs, self.closed = region.size, region.count, region.crcs, closed
        self.staged_path = region.path
        staging, log_dir = os.path.dirname(region.path), os.path.dirname(place.folder)
        is_far = files.is_folder(log_dir) and not on_one_device(staging, log_dir)
        self._folder = log_dir if is_far else staging
        self._base = secrets.randbits(62)
        self._positions, self._offsets = array("Q"), array("Q")
        self._left = [LOG, INDEX, TIME_INDEX]
        try:
            if not (can_be_linked(region, place) and self._link(region)):
                self._copy(region)
                sync = True
            writer = SegmentWriter(self._folder, self._base, 0, config)
            try:
                writer.enter(self._headers(writer.log, region))
                if closed:
                    writer.finish()
                if sync:
                    writer.log.sync()
            finally:
                writer.close()
        except BaseException:
            self.discard()
            raise

    def _link(self, region: StagedRegion) -> bool:
        """Links the file; False if it cannot be linked. OSError."""
        try:
            files.link(region.path, self._path(LOG))
        except OSError as error:
            if forbids_links(error):
                return False
            raise
        return True

    def _copy(self, region: StagedRegion) -> None:
        with files.create(self._path(LOG)) as target:
            position = 0
            for data in read_region(region):
                target.pwrite(data, position)
                position += len(data)

    def _path(self, suffix: str) -> str:
        return segment_path(self._folder, self._base, suffix)

    def _headers(self, file: files.File, region: StagedRegion) -> Iterator[BatchHeader]:
        """The file's headers with the offsets for the indexes: those in the file may be another process's by now."""
        offset, crcs = self._base, bytearray()
        for header in read_headers(file, 0, region.size):
            self._positions.append(header.position)
            self._offsets.append(offset - self._base)
            yield header._replace(base_offset=offset)
            offset += header.last_offset_delta + 1
            crcs += crcs_of([header])
        if crcs != region.crcs or offset - self._base != region.count:
            raise StagedOutputError(f"{region.path}: not the batches that were staged")

    def put(self, folder: str, base_offset: int, epoch: int) -> None:
        """Installs it as the segment with that base in a partition's folder, whose lock is held; all but its name is
        durable.

        A file of that name is replaced: it is that of an empty active segment.

        Raises:
            StagedOutputError: the prepared file is gone.
            OSError: e.g. a full disk.
        """
        try:
            opened = files.open_write(self._path(LOG))
        except FileNotFoundError as error:
            raise StagedOutputError(f"{error.filename}, which was prepared for {folder}, is missing") from error
        with opened as file:
            if file.size() > self.size:
                # It was a segment before, for a decision that was dropped, and more was appended to it.
                file.truncate(self.size)
            # Write the two fields one by one, and not the length between them. This is the only copy of the decided
            # data: a power loss may tear only what the next attempt rewrites.
            stamp = _EPOCH.pack(epoch)
            for position, offset in zip(self._positions, self._offsets, strict=True):
                file.pwrite(_OFFSET.pack(base_offset + offset), position + BASE_OFFSET_AT)
                file.pwrite(stamp, position + LEADER_EPOCH_AT)
            file.sync()
        # The log first: a process that finds it without the indexes takes care of them.
        for suffix in (LOG, INDEX, TIME_INDEX):
            files.rename(self._path(suffix), segment_path(folder, base_offset, suffix))
            self._left.remove(suffix)

    def discard(self) -> None:
        """Removes files that were not installed; best effort."""
        for suffix in self._left:
            try:
                files.unlink(self._path(suffix))
            except OSError as error:
                log.warning("%s could not be removed: %s", self._path(suffix), error)
        self._left = []


def is_ready_name(name: str) -> bool:
    """Whether a file of the staging folder, or of a log dir, has the name of a ReadySegment's file."""
    return _READY.fullmatch(name) is not None
