"""Files of record batches that become segments of a log, instead of being copied while its lock is held.

A batch's CRC covers neither its base offset nor its leader epoch, and the entries of indexes are relative to the
segment's base. So a file that holds batches of one partition alone needs 12 bytes a batch to be a segment. All else is
done before the lock is taken: the indexes are built, and the file gets a hard link; or it is copied to the device of
the log, if it is on another one, or cannot be linked.

Several processes may do this with one file at once. Without the lock, each changes only names of its own: the link and
the indexes. The file itself is only read then, and only fields that no process changes are used. Offsets are written
under the partition's lock alone, by a process that has found there that the decision is not applied. Until it is, the
file is in no log, or is beyond a log's end and is removed from there by its name; once it is, no process writes to it
by another name than that of the segment. The file's own name stays until the decision is done.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import struct
from array import array
from collections.abc import Iterable, Iterator
from typing import Protocol

from pyspark_log.config import TopicConfig
from pyspark_log.errors import StagedOutputError
from pyspark_log.storage.catalog import PartitionPath
from pyspark_log.storage.fs import files
from pyspark_log.storage.fs.links import forbids_links, on_one_device
from pyspark_log.storage.record import BatchHeader
from pyspark_log.storage.record.layout import BASE_OFFSET_AT, LEADER_EPOCH_AT, crcs_of
from pyspark_log.storage.segment import SegmentWriter, read_headers
from pyspark_log.storage.segment.file_names import INDEX, LOG, TIME_INDEX, segment_path

log = logging.getLogger(__name__)

_NAME = re.compile(r"[0-9]{20}\.(log|index|timeindex)")
_OFFSET, _EPOCH = struct.Struct(">q"), struct.Struct(">i")


class BatchFile(Protocol):
    """A whole file of record batches of one partition, back to back, with offsets from 0.

    Attributes:
        path: its name.
        size, count: its bytes and records.
        crcs: the batches' CRC fields, 4 bytes each.
    """

    @property
    def path(self) -> str:
        """Its name."""

    @property
    def size(self) -> int:
        """Its bytes."""

    @property
    def count(self) -> int:
        """Its records."""

    @property
    def crcs(self) -> bytes:
        """The batches' CRC fields."""

    def read(self) -> Iterable[memoryview]:
        """Its batches, with every CRC checked. FileNotFoundError, CorruptRecordError, StagedOutputError."""


class NewSegment:
    """A hard link to a file of record batches, or a copy of it, with its indexes; only its offsets are missing.

    It is a segment in the file's folder, or in the log dir if that is on another device, under a random base offset.
    A copy belongs to this process alone: it is read and synced before the lock is taken, and the file stays unchanged.

    Attributes:
        size, count, crcs: of the file.
        inactive: whether the time index has its closing entry, as another segment follows.
        source: the file's own name.
    """

    def __init__(
        self, file: BatchFile, place: PartitionPath, config: TopicConfig, *, links: bool, inactive: bool
    ) -> None:
        """Links or copies a file, and builds its indexes.

        Args:
            file: the file.
            place: where the partition is; the caller has verified its log dir.
            config: its topic's configs.
            links: whether a link is tried.
            inactive: whether another segment begins right after it.

        Raises:
            OSError: e.g. a full disk.
            CorruptRecordError, StagedOutputError: it holds something else than what was staged.
        """
        self.size, self.count, self.crcs, self.inactive = file.size, file.count, file.crcs, inactive
        self.source = file.path
        staging, log_dir = os.path.dirname(file.path), os.path.dirname(place.folder)
        is_far = files.is_folder(log_dir) and not on_one_device(staging, log_dir)
        self._folder = log_dir if is_far else staging
        self._base = secrets.randbits(62)
        self._positions, self._offsets = array("Q"), array("Q")
        self._left = [LOG, INDEX, TIME_INDEX]
        try:
            is_linked = links and self._link(file.path)
            if not is_linked:
                self._copy(file)
            writer = SegmentWriter(self._folder, self._base, 0, config)
            try:
                writer.enter(self._headers(writer.log))
                if inactive:
                    writer.finish()
                if not is_linked:
                    writer.log.sync()
            finally:
                writer.close()
        except BaseException:
            self.discard()
            raise

    def _link(self, path: str) -> bool:
        """Links the file; False if it cannot be linked. OSError."""
        try:
            files.link(path, self._path(LOG))
        except OSError as error:
            if forbids_links(error):
                return False
            raise
        return True

    def _copy(self, file: BatchFile) -> None:
        with files.create(self._path(LOG)) as target:
            position = 0
            for data in file.read():
                target.pwrite(data, position)
                position += len(data)

    def _path(self, suffix: str) -> str:
        return segment_path(self._folder, self._base, suffix)

    def _headers(self, file: files.File) -> Iterator[BatchHeader]:
        """The file's headers with the offsets for the indexes: those in the file may be another process's by now."""
        offset, crcs = self._base, bytearray()
        for header in read_headers(file, 0, self.size):
            self._positions.append(header.position)
            self._offsets.append(offset - self._base)
            yield header._replace(base_offset=offset)
            offset += header.last_offset_delta + 1
            crcs += crcs_of([header])
        if crcs != self.crcs or offset - self._base != self.count:
            raise StagedOutputError(f"{self.source}: not the batches that were staged")

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


def is_prepared_name(name: str) -> bool:
    """Whether a file of the staging folder, or of a log dir, has the name of a NewSegment's file."""
    return _NAME.fullmatch(name) is not None
