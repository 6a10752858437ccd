"""A copy of a partition's folder that follows its log, while others read it and write to it.

Without the partition's lock everything written so far is copied; with it, what was written since. A file is known by
its inode, its size and its time; the active log by the file that was kept open.
"""

from __future__ import annotations

import errno
import logging
import os
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from pyspark_log.storage.catalog.kafka_files import PARTITION_METADATA
from pyspark_log.storage.fs import files
from pyspark_log.storage.log import leader_epochs
from pyspark_log.storage.log.state import PartitionState
from pyspark_log.storage.record import crc32c
from pyspark_log.storage.segment.file_names import INDEX, LOG, TIME_INDEX, segment_path

log = logging.getLogger(__name__)

_PIECE = 1024 * 1024
_SEGMENT_FILE = re.compile(r"([0-9]{20})\.(log|index|timeindex|txnindex|snapshot)")


class Copied(NamedTuple):
    """What was copied of a file: which file it was, up to which byte, and in which incarnation."""

    device: int
    inode: int
    modified: int
    size: int
    incarnation: int


class NewBytes(NamedTuple):
    """Bytes that the copy lacks.

    Attributes:
        name: of the file.
        source: the file, open, so that it can be copied also when it was deleted.
        start: from which byte on.
        found: what is copied then.
    """

    name: str
    source: files.File
    start: int
    found: Copied


class FolderCopy:
    """The copy of a partition's folder that is being made. Not thread-safe.

    Attributes:
        source: the path of the partition's folder.
        folder: the path of the copy.
        bytes: how many were copied in total.
    """

    def __init__(
        self, source: str, folder: str, *, active_indexes: bool = True, progress: Callable[[int], None] | None = None
    ) -> None:
        """Recreates the folder.

        Args:
            source, folder: see above.
            active_indexes: whether the indexes of the active segment are copied. The next writer may rebuild them in
                place, so this is for a caller that holds the partition's lock until all is copied.
            progress: called with each number of bytes that were copied.
        """
        self.source = source
        self.folder = folder
        self.bytes = 0
        self._active_indexes = active_indexes
        self._progress = progress
        self._known: dict[str, Copied] = {}
        # The log that grew at the last pass. While it is open, no other file gets its inode.
        self._growing: files.File | None = None
        files.remove_folder(folder)
        files.make_folder(folder)

    def follow(self, state: PartitionState, *, locked: bool) -> int:
        """Copies what is new since the last time; returns how many bytes.

        Args:
            state: of the partition.
            locked: its lock is held, so this is the last time.

        Raises:
            OSError: e.g. a full disk; or the disk does not return what was written.
        """
        before = self.bytes
        for new in self.find_new(state, locked=locked):
            self.take(new)
        return self.bytes - before

    def find_new(self, state: PartitionState, *, locked: bool) -> Iterator[NewBytes]:
        """Finds what is new since the last time, for `take`. Arguments and errors are those of `follow`."""
        wanted = self._wanted(state)
        for name in self._known.keys() - wanted.keys():
            self._drop(name)
        for name, (base, size) in wanted.items():
            is_changing = base == state.active_base and size < 0
            if is_changing and not locked:
                continue  # A writer may cut it at any moment; with the lock it would be copied once more.
            try:
                # The time alone does not prove that a file was not changed a moment ago.
                new = self._find_new(name, size, state, again=is_changing)
            except FileNotFoundError:
                if locked:
                    raise
                continue
            if new is not None:
                yield new

    def take(self, new: NewBytes) -> None:
        """Copies what `find_new` has found. Raises as `follow` does."""
        if new.start == 0 and new.name in self._known:
            self._drop(new.name)  # It is another file.
        self._copy_bytes(new)
        self._known[new.name] = new.found
        if new.source is not self._growing:
            new.source.close()

    def _wanted(self, state: PartitionState) -> dict[str, tuple[int, int]]:
        """The files that belong to the log: of which segment, and how many bytes are live; -1: all."""
        active = os.path.basename(segment_path(self.source, state.active_base, LOG))
        left_out = set[str]()
        if not self._active_indexes:
            left_out = {active.removesuffix(LOG) + suffix for suffix in (INDEX, TIME_INDEX)}
        wanted: dict[str, tuple[int, int]] = {}
        try:
            names = sorted(files.list_folder(self.source))
        except FileNotFoundError:
            names = []  # It is created with the first record; the lock's holder knows whether there was one.
        for name in names:
            match = _SEGMENT_FILE.fullmatch(name)
            if match and int(match[1]) <= state.active_base and name not in left_out:
                wanted[name] = int(match[1]), state.position if name == active else -1
            elif name in (PARTITION_METADATA, leader_epochs.FILE_NAME):
                wanted[name] = state.active_base, -1
        return wanted

    def _drop(self, name: str) -> None:
        files.unlink(f"{self.folder}/{name}")
        del self._known[name]

    def _find_new(self, name: str, size: int, state: PartitionState, *, again: bool) -> NewBytes | None:
        source = files.open_read(f"{self.source}/{name}")
        status, known = os.fstat(source.fd), self._known.get(name)
        end = status.st_size if size < 0 else size
        found = Copied(status.st_dev, status.st_ino, status.st_mtime_ns, end, state.incarnation)
        if known is not None and (again or (found != known and not self._has_grown(status, known, found))):
            known = None
        if size >= 0:
            self.close()
            self._growing = source
        if found == known:
            if source is not self._growing:
                source.close()
            return None
        return NewBytes(name, source, 0 if known is None else known.size, found)

    def _has_grown(self, status: os.stat_result, known: Copied, found: Copied) -> bool:
        """Whether a file is the log that was copied before, with more bytes appended.

        Below its end a log changes only by a truncation, and then its incarnation is another one.
        """
        same = self._growing is not None and os.path.samestat(status, os.fstat(self._growing.fd))
        return same and known.incarnation == found.incarnation and known.size <= found.size

    def _copy_bytes(self, new: NewBytes) -> None:
        path, checksum, start, end = f"{self.folder}/{new.name}", 0, new.start, new.found.size
        with files.open_write(path) if new.name in self._known else files.create(path) as target:
            for at in range(start, end, _PIECE):
                data = new.source.pread(min(_PIECE, end - at), at)
                checksum = crc32c(data, checksum)
                target.pwrite(data, at)
                if self._progress is not None:
                    self._progress(len(data))
            # Retention uses it where records have no times.
            target.set_modified(new.found.modified)
            target.sync()
            target.drop_cached()
            written = 0
            for at in range(start, end, _PIECE):
                written = crc32c(target.pread(min(_PIECE, end - at), at), written)
            if written != checksum or target.size() != end:
                raise OSError(errno.EIO, "the disk returned different bytes from those written", path)
        self.bytes += end - start

    def sync_folder(self) -> None:
        """Makes the names of all files durable. OSError."""
        files.sync_folder(self.folder)

    def close(self) -> None:
        """Closes the source's files."""
        if self._growing is not None:
            self._growing.close()
            self._growing = None

    def remove(self) -> None:
        """Deletes the copy, as far as possible."""
        try:
            files.remove_folder(self.folder)
        except OSError as error:
            log.warning("%s will be removed by `pylog clean`: %s", self.folder, error)
