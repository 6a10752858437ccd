"""The files that Kafka keeps in a log dir: `meta.properties` and the checkpoints of offsets.

They are for Kafka and its tools; nothing here relies on them. The authority is each partition's state
file, from which the checkpoints are written now and then: when a segment is rolled, when the store is flushed or
closed, but at most once a second, by any process. If they are late, a program that relies on them has to read more
of the log. There is no mark of a clean shutdown: a process that closes a store does not know which others are
writing to it.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Callable
from typing import NamedTuple

from pyspark_log.errors import LockTimeoutError, SideFileError
from pyspark_log.storage.catalog import kafka_files, log_dir_list, log_dir_owner
from pyspark_log.storage.catalog.kafka_files import (
    HIGH_WATERMARK,
    LOG_START,
    META_PROPERTIES,
    RECOVERY_POINT,
    read_meta_properties,
)
from pyspark_log.storage.fs import Mutex, files, lock_for
from pyspark_log.storage.fs.clock import Clock, now_ms
from pyspark_log.types import TopicPartition

log = logging.getLogger(__name__)

#: Seconds between two writes of the checkpoints.
INTERVAL = 1.0


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
