"""The log dirs of a store: which of them can be used, and which one a partition is in.

A partition's state file has its log dir's number in store.json. A log dir that fails takes only its own partitions
offline. It is identified by its `meta.properties`, so that neither a missing one, nor whatever is at its mount
point, is taken for it and written to.

The checkpoints of offsets in a log dir are for Kafka and its tools; nothing here relies on them. The authority is each
partition's state file, from which they are written now and then: when a segment is rolled, when the store is flushed or
closed, but at most once a second, by any process. If they are late, a program that relies on them has to read more
of the log. There is no mark of a clean shutdown: a process that closes a store does not know which others are
writing to it.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from pyspark_log.errors import InvalidConfigError, LockTimeoutError, LogDirOfflineError, SideFileError, StoreError
from pyspark_log.storage.catalog import kafka_files, log_dir_list, log_dir_owner, store_json
from pyspark_log.storage.catalog.kafka_files import (
    HIGH_WATERMARK,
    LOG_START,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINT,
    read_meta_properties,
)
from pyspark_log.storage.catalog.log_dir_list import ListedLogDir
from pyspark_log.storage.catalog.store_json import STATE_FOLDER
from pyspark_log.storage.fs import Mutex, files, lock_for
from pyspark_log.storage.fs.clock import Clock, now_ms
from pyspark_log.types import TopicPartition

log = logging.getLogger(__name__)

#: Seconds between two writes of the checkpoints.
INTERVAL = 1.0
# More than Kafka's file of a partition's metadata has.
_METADATA_SIZE = 256
#: The folder of a partition.
PARTITION_FOLDER = re.compile(r"(.+)-(0|[1-9]\d{0,9})")
# Errors of a disk, or a file system, that has failed. Not that it is full.
_FAILED = frozenset({
    errno.EIO, errno.EROFS, errno.ENXIO, errno.ENODEV, errno.ENOTCONN, errno.ESHUTDOWN,
    getattr(errno, "EUCLEAN", errno.EIO), getattr(errno, "EHOSTDOWN", errno.EIO),
})  # fmt: skip
_MISSING = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ESTALE})


@dataclass(frozen=True, slots=True)
class PartitionPath:
    """A partition and the paths of its files; prints as `topic-3`.

    Attributes:
        topic, topic_id, partition: which partition.
        folder: that of its segments.
        state_path: its state file.
    """

    topic: str
    topic_id: str
    partition: int
    folder: str
    state_path: str

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    def in_log_dir(self, log_dir: str) -> PartitionPath:
        """The same partition with its segments in that log dir."""
        folder = f"{log_dir}/{self.topic}-{self.partition}"
        return self if folder == self.folder else replace(self, folder=folder)

    @property
    def segments_path(self) -> str:
        """The path of the cache of its inactive segments."""
        return f"{self.state_path}.segments"

    @property
    def cleaner_path(self) -> str:
        """The path of its cleaner checkpoint, which is also the lock of its cleaner."""
        return f"{self.state_path}.cleaner"

    def owner(self) -> str:
        """The id of the topic whose files are in the folder: another one's, if this one was deleted.

        By Kafka's `partition.metadata`; "" if that is missing.
        """
        try:
            with files.open_read(f"{self.folder}/{PARTITION_METADATA}") as file:
                text = file.pread(_METADATA_SIZE, 0).decode("ascii", "replace")
                return text.partition("topic_id: ")[2].strip()
        except FileNotFoundError:
            return ""


class LogOffsets(NamedTuple):
    """What the checkpoints say of a partition.

    Attributes:
        recovery_point: records below it are known to be on the disk.
        high_watermark: the log end, as there is no replica to wait for.
        log_start: the first offset that can be read; None if it is the first in the log.
    """

    recovery_point: int
    high_watermark: int
    log_start: int | None


class LogDir:
    """One log dir (Kafka's log.dir). Safe to use from several threads.

    Attributes:
        path: its path.
        directory_id: the id in its `meta.properties`; "": not known.
    """

    def __init__(
        self,
        path: str,
        lock_path: str,
        cluster_id: str,
        directory_id: str = "",
        store_file: str = "",
        clock: Clock = now_ms,
    ) -> None:
        """Changes nothing yet.

        Args:
            path: the folder.
            lock_path: a file outside of it, created on demand, whose lock the writer of checkpoints holds.
            cluster_id: of the store.
            directory_id: see above.
            store_file: the store.json that lists it; "": none does.
            clock: the store's clock.
        """
        self.path = path
        self._clock = clock
        self.directory_id = directory_id
        self._lock_path = lock_path
        self._store_file = store_file
        self._cluster_id = cluster_id
        self._seen = (-1, -1, -1)  # which `meta.properties` was found to be the right one
        self._noted: dict[TopicPartition, Callable[[], LogOffsets | None]] = {}
        self._mutex = Mutex()

    def introduce(self) -> None:
        """Writes `meta.properties` if it is missing. The folder exists. OSError."""
        log_dir_list.introduce(self.path, self._cluster_id)

    def problem(self) -> str:
        """Returns why it is not the log dir that it should be; "" if it is. Costs a `stat`.

        Without an id it may not be created yet, so there is no problem with it.
        """
        if not self.directory_id:
            return ""
        path = f"{self.path}/{META_PROPERTIES}"
        try:
            status = files.status_of(path)
            stamp = (status.st_dev, status.st_ino, status.st_ctime_ns)
            return "" if stamp == self._seen else self._check_owner(path, stamp)
        except (FileNotFoundError, NotADirectoryError):
            return f"it has no {META_PROPERTIES}: it is missing, or its file system is not mounted"
        except OSError as error:
            return f"{path}: {error.strerror}"
        except SideFileError as error:
            return str(error)

    def _check_owner(self, path: str, stamp: tuple[int, int, int]) -> str:
        """The same by its `meta.properties`, which is cached if there is no problem."""
        found = read_meta_properties(path)
        if found is not None and (found.cluster_id, found.directory_id) != (self._cluster_id, self.directory_id):
            return f"its {META_PROPERTIES} is that of another folder (directory.id {found.directory_id})"
        others = log_dir_owner.problem(self.path, self._store_file, self._cluster_id)
        if not others:
            self._seen = stamp
        return others

    def write_problem(self) -> str:
        """The same; and why it cannot be written to. Reads from the disk itself, if the system allows that."""
        if self.directory_id:
            self._seen = (-1, -1, -1)
            # The check below reports what it cannot open.
            with contextlib.suppress(OSError), files.open_read(f"{self.path}/{META_PROPERTIES}") as file:
                file.drop_cached()
        problem = self.problem()
        if not problem and files.is_folder(self.path) and not files.may(self.path, os.W_OK):
            read_only = files.room_at(self.path).f_flag & os.ST_RDONLY
            problem = os.strerror(errno.EROFS if read_only else errno.EACCES)
        return problem

    def note(self, partition: TopicPartition, offsets: Callable[[], LogOffsets | None]) -> None:
        """Notes that a partition's offsets have changed.

        Args:
            partition: which one.
            offsets: looks up its offsets, once the checkpoints are written: until then the topic may be deleted, or the
                store be replaced by a copy. None: it is deleted, or cannot be read.
        """
        with self._mutex.lock:
            self._noted[partition] = offsets

    def write_due(self) -> None:
        """Writes the offsets that have changed to the checkpoints, if due. Never waits, never fails: see `write`."""
        if self._noted and self._due():
            self.write(0)

    def write(self, timeout: float) -> None:
        """Writes the checkpoints: the offsets that have changed, and none of partitions that have no folder any more.

        Never fails: the next call tries again. `timeout`: how long to wait, in seconds, while another process writes.
        """
        if self.problem():
            return
        try:
            files.open_or_create(self._lock_path).close()
            with lock_for(self._lock_path).held(timeout):
                # Nothing may be written where another file system should be mounted; nor if it was taken off the list.
                if not self.problem():
                    self._write()
        except LockTimeoutError:
            return
        except OSError as error:
            log.warning("%s: the checkpoints could not be written: %s", self.path, error)

    def leave(self) -> None:
        """Deletes the files that were written here beside the logs, since the store does not list the log dir any more.

        `meta.properties` is deleted last: as long as it exists, it says which store the other files are of.

        Raises:
            LockTimeoutError, OSError: some of the files may be left.
        """
        files.open_or_create(self._lock_path).close()
        with lock_for(self._lock_path).held():
            for name in (LOG_START, RECOVERY_POINT, HIGH_WATERMARK, log_dir_owner.OWNER_FILE, META_PROPERTIES):
                files.unlink(f"{self.path}/{name}")
            files.sync_folder(self.path)

    def _due(self) -> bool:
        try:
            written = files.status_of(f"{self.path}/{HIGH_WATERMARK}").st_mtime_ns // 1_000_000
        except OSError:
            return True
        # A time in the future says nothing: the clock was set back.
        return not 0 <= self._clock() - written < INTERVAL * 1000

    def _write(self) -> None:
        with self._mutex.lock:
            noted = dict(self._noted)
        if self.directory_id:
            # The store may have been moved since.
            log_dir_owner.note(self.path, self._store_file)
        found = {partition: offsets() for partition, offsets in noted.items()}
        names = set(files.list_folder(self.path))
        for file, field in (
            (LOG_START, "log_start"),
            (RECOVERY_POINT, "recovery_point"),
            (HIGH_WATERMARK, "high_watermark"),
        ):
            path = f"{self.path}/{file}"
            before = _read_or_none(path)
            offsets = before | {partition: getattr(known, field) for partition, known in found.items() if known}
            # Deleted partitions are removed; a recreated partition must not begin with the old one's offsets.
            after = {one: at for one, at in offsets.items() if at is not None and str(one) in names}
            if after != before or file == HIGH_WATERMARK or not files.exists(path):
                kafka_files.write_offsets(path, after)
        with self._mutex.lock:
            for partition, known in noted.items():
                if self._noted.get(partition) is known:
                    del self._noted[partition]


def _read_or_none(path: str) -> dict[TopicPartition, int | None]:
    try:
        return dict(kafka_files.read_offsets(path))
    except SideFileError as error:
        log.warning("replacing a checkpoint that is damaged: %s", error)
        return {}


class _UnlistedLogDir(LogDir):
    """The log dir of a number that store.json does not list, or not any more."""

    def problem(self) -> str:
        """Says that it is not listed."""
        return f"{store_json.STORE_FILE} does not list it"


class LogDirs:
    """The log dirs of one store, by their numbers. Safe to use from several threads."""

    def __init__(
        self,
        path: str,
        cluster_id: str,
        listed: Mapping[int, ListedLogDir] = log_dir_list.DEFAULT,
        next_number: int = len(log_dir_list.DEFAULT),
        clock: Clock = now_ms,
    ) -> None:
        """Reads nothing yet. `path`: the store's folder; `listed`, `next_number`: as in its store.json."""
        self._path = path
        self._cluster_id = cluster_id
        self._clock = clock
        self._folders: dict[int, LogDir] = {}
        self._take(listed, next_number)

    def _take(self, listed: Mapping[int, ListedLogDir], next_number: int) -> None:
        folders = {number: self._make(number, folder) for number, folder in listed.items()}
        # Known log dirs are kept, with their recorded offsets; the first may have got an id since.
        for number, known in self._folders.items():
            new = folders.get(number)
            if new is not None and (known.path, known.directory_id) == (new.path, new.directory_id):
                folders[number] = known
        self._folders, self._next_number = folders, next_number

    def _make(self, number: int, folder: ListedLogDir) -> LogDir:
        lock = f"checkpoints-{number}.lock" if number else "checkpoints.lock"
        return LogDir(
            log_dir_list.path_of(self._path, folder.name),
            f"{self._path}/{STATE_FOLDER}/{lock}",
            self._cluster_id,
            folder.directory_id,
            f"{self._path}/{store_json.STORE_FILE}",
            self._clock,
        )

    def refresh(self) -> None:
        """Rereads the list; if the store's description cannot be read, the list stays as it was."""
        try:
            self.follow()
        except (StoreError, OSError) as error:
            log.debug("%s: %s", self._path, error)

    def follow(self) -> None:
        """The same for a caller that is about to write there: fails if the list cannot be read. StoreError, OSError."""
        description = store_json.describe(self._path)
        self._take(description.log_dirs, description.next_log_dir)

    def __iter__(self) -> Iterator[LogDir]:
        return iter(self._folders.values())

    def __len__(self) -> int:
        return len(self._folders)

    def numbered(self) -> Iterator[tuple[int, LogDir]]:
        """The listed log dirs with their numbers, in which there may be gaps."""
        return iter(self._folders.items())

    @property
    def had_several(self) -> bool:
        """Whether there are, or were, log dirs besides the store's first one."""
        return self._next_number > 1

    def at(self, number: int) -> LogDir:
        """The log dir with that number; if there is none, a log dir that cannot be used."""
        if number not in self._folders:
            self.refresh()
        found = self._folders.get(number)
        return found or _UnlistedLogDir(f"{self._path}/log-dir-{number}", "", self._cluster_id)

    def find(self, folder: str) -> int:
        """Returns the number of a log dir, by its path, or by its name in store.json.

        Raises:
            InvalidConfigError: there is none.
            StoreError, OSError: as `follow`.
        """
        self.follow()
        path = log_dir_list.path_of(self._path, os.path.normpath(folder))
        for number, known in self.numbered():
            if known.path == path:
                return number
        raise InvalidConfigError(
            f"{folder!r} is not a log dir of the store; its log dirs are: {', '.join(known.path for known in self)}"
        )

    def choose(self, name: str, given: Counter[int] | None = None) -> int:
        """Returns the log dir for a new partition: of those that can be used, the one with the fewest partitions.

        As Kafka's LogManager.nextLogDirs chooses; of equals the first.

        Args:
            name: of the partition's folder. A log dir that has a folder of that name, of a deleted topic, is skipped.
            given: how many partitions each is about to get.

        Raises:
            LogDirOfflineError: none can be used.
            StoreError, OSError: as `follow`; a partition would be lost in a known log dir that was taken off the list.
        """
        self.follow()
        if not self.had_several and not self._folders[0].directory_id:
            return 0
        counts: dict[int, int] = {}
        problems = []
        for number, folder in self.numbered():
            problem = folder.write_problem()
            try:
                names = [] if problem else files.list_folder(folder.path)
            except OSError as error:
                problem = str(error.strerror)
            if name in names:
                problem = f"it has a folder {name} of a deleted topic (`pylog clean` removes it)"
            if problem:
                problems.append(f"{folder.path}: {problem}")
            else:
                counts[number] = sum(map(bool, map(PARTITION_FOLDER.fullmatch, names)))
        if not counts:
            raise LogDirOfflineError(
                errno.EIO, f"{name}: no log dir can be used for a new partition: {'; '.join(problems)}", self._path
            )
        return min(counts, key=lambda number: (counts[number] + (given or Counter())[number], number))

    # ---- which can be used

    def check(self, number: int, place: PartitionPath, *, written: bool = False) -> LogDir:
        """Returns the log dir of a partition, if it can be used; `written`: for writing, which reads from the disk.

        Raises:
            LogDirOfflineError: it cannot be used.
        """
        folder = self.at(number)
        problem = folder.write_problem() if written else folder.problem()
        if problem:
            raise _offline(place, folder, problem, errno.EIO)
        return folder

    def problem_of(self, place: PartitionPath) -> str:
        """Returns why the log dir that holds a partition's files is not what it should be; "" if it is."""
        path = os.path.dirname(place.folder)
        found = next((folder for folder in self if folder.path == path), None)
        return f"{path} is not listed in {store_json.STORE_FILE}" if found is None else found.problem()

    def explained(self, error: OSError, place: PartitionPath) -> OSError:
        """Interprets a system error: returns LogDirOfflineError if a log dir has failed, else the error itself.

        Args:
            error: raised while a partition was worked on.
            place: which one.
        """
        if isinstance(error, LogDirOfflineError):
            return error
        names = [str(name) for name in (error.filename, error.filename2) if name is not None]
        for folder in self:
            if not any(name == folder.path or name.startswith(f"{folder.path}/") for name in names):
                continue
            if error.errno in _FAILED:
                problem = f"{error.filename}: {error.strerror}"
            else:
                problem = folder.problem() if error.errno in _MISSING else ""
            return _offline(place, folder, problem, error.errno or errno.EIO) if problem else error
        return error


def _offline(place: PartitionPath, folder: LogDir, problem: str, number: int) -> LogDirOfflineError:
    return LogDirOfflineError(
        number,
        f"{place}: the log dir {folder.path} has failed: {problem}. Repair or mount it, or restore all of it from a "
        "copy; partitions in other log dirs can be used meanwhile (`pylog log-dirs list`)",
        folder.path,
    )
