"""The log dirs of a store: which of them can be used, and which one a partition is in.

A partition's state file has its log dir's number in store.json. A log dir that fails takes only its own partitions
offline. It is identified by its `meta.properties`, so that neither a missing one, nor whatever is at its mount
point, is taken for it and written to.
"""

from __future__ import annotations

import errno
import logging
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping

from pyspark_log.errors import InvalidConfigError, LogDirOfflineError, StoreError
from pyspark_log.storage.catalog import log_dir_list, store_json
from pyspark_log.storage.catalog.log_dir import LogDir
from pyspark_log.storage.catalog.log_dir_list import ListedLogDir
from pyspark_log.storage.catalog.partition_path import PartitionPath
from pyspark_log.storage.catalog.store_json import STATE_FOLDER
from pyspark_log.storage.fs import files
from pyspark_log.storage.fs.clock import Clock, now_ms

log = logging.getLogger(__name__)

#: The folder of a partition.
PARTITION_FOLDER = re.compile(r"(.+)-(0|[1-9]\d{0,9})")
# Errors of a disk, or a file system, that has failed. Not that it is full.
_FAILED = frozenset({
    errno.EIO, errno.EROFS, errno.ENXIO, errno.ENODEV, errno.ENOTCONN, errno.ESHUTDOWN,
    getattr(errno, "EUCLEAN", errno.EIO), getattr(errno, "EHOSTDOWN", errno.EIO),
})  # fmt: skip
_MISSING = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ESTALE})


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
