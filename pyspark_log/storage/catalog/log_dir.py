"""The files that Kafka keeps beside the logs of a folder: `meta.properties` and the checkpoints of offsets.

They are for Kafka and its tools; nothing here reads them to go by them. The truth is in each partition's state
file, from which the checkpoints are made now and then: when a segment is rolled, when the store is flushed or closed,
but not more often than once a second, by whichever process. What is late in them costs who relies on them a
longer look at the log. There is no mark of a clean shutdown: who closes a store does not know who else is
writing to it.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from typing import NamedTuple

from pyspark_log.errors import LockTimeoutError, SideFileError
from pyspark_log.storage.catalog import kafka_files as checkpoint_files
from pyspark_log.storage.catalog import log_dir_list, log_dir_owner
from pyspark_log.storage.catalog.kafka_files import (
    HIGH_WATERMARK,
    LOG_START,
    META_PROPERTIES,
    RECOVERY_POINT,
    read_meta_properties,
)
from pyspark_log.storage.fs import Clock, Mutex, files, lock_for, now_ms
from pyspark_log.types import TopicPartition

log = logging.getLogger(__name__)

#: Seconds between two writings of the checkpoints.
INTERVAL = 1.0

class LogOffsets(NamedTuple):
    """What the checkpoints say of a partition.

    Attributes:
        recovery_point: what lies below it is known to be on the disk.
        high_watermark: the log end, as there is no replica to wait for.
        log_start: the first offset that can be read; None if it is the first that is there.
    """

    recovery_point: int
    high_watermark: int
    log_start: int | None


class LogDir:
    """One folder of logs (Kafka's log.dir). Safe to use from several threads.

    Attributes:
        path: the folder.
        directory_id: what its `meta.properties` says; "": that is not known.
    """

    def __init__(
        self, path: str, lock_path: str, cluster_id: str, directory_id: str = "", store_file: str = "",
        clock: Clock = now_ms,
    ) -> None:  # fmt: skip
        """Changes nothing yet.

        Args:
            path: the folder.
            lock_path: a file outside of it, made when it is needed, whose lock the writer of checkpoints holds.
            cluster_id: of the store.
            directory_id: see above.
            store_file: the store.json that lists it; "": none does.
            clock: what time it is.
        """
        self.path = path
        self._clock = clock
        self.directory_id = directory_id
        self._lock_path = lock_path
        self._store_file = store_file
        self._cluster_id = cluster_id
        self._seen = (-1, -1, -1)  # which `meta.properties` was found to be the right one
        self._noted: dict[TopicPartition, LogOffsets] = {}
        self._mutex = Mutex()

    def introduce(self) -> None:
        """Writes `meta.properties` if it is missing. The folder exists. OSError."""
        log_dir_list.introduce(self.path, self._cluster_id)

    def problem(self) -> str:
        """Why it is not the folder that it should be; "" if it is. It costs a `stat`.

        Without an id it may be made yet, so nothing is found wrong with it.
        """
        if not self.directory_id:
            return ""
        path = f"{self.path}/{META_PROPERTIES}"
        try:
            status = files.status_of(path)
            stamp = (status.st_dev, status.st_ino, status.st_ctime_ns)
            return "" if stamp == self._seen else self._look(path, stamp)
        except (FileNotFoundError, NotADirectoryError):
            return f"it has no {META_PROPERTIES}: it is missing, or its file system is not mounted"
        except OSError as error:
            return f"{path}: {error.strerror}"
        except SideFileError as error:
            return str(error)

    def _look(self, path: str, stamp: tuple[int, int, int]) -> str:
        """The same by what its `meta.properties` says, which is kept in mind if nothing is wrong with it."""
        found = read_meta_properties(path)
        if found is not None and (found.cluster_id, found.directory_id) != (self._cluster_id, self.directory_id):
            return f"its {META_PROPERTIES} is that of another folder (directory.id {found.directory_id})"
        others = log_dir_owner.problem(self.path, self._store_file, self._cluster_id)
        if not others:
            self._seen = stamp
        return others

    def write_problem(self) -> str:
        """The same; and why nothing can be written to it. Reads from the disk itself, where the system allows that."""
        if self.directory_id:
            self._seen = (-1, -1, -1)
            # What the look below cannot open it tells.
            with contextlib.suppress(OSError), files.open_read(f"{self.path}/{META_PROPERTIES}") as file:
                file.drop_cached()
        problem = self.problem()
        if not problem and files.is_folder(self.path) and not files.may(self.path, os.W_OK):
            read_only = files.room_at(self.path).f_flag & os.ST_RDONLY
            problem = os.strerror(errno.EROFS if read_only else errno.EACCES)
        return problem

    def note(self, partition: TopicPartition, offsets: LogOffsets) -> None:
        """Keeps what the checkpoints are to say of a partition."""
        with self._mutex:
            self._noted[partition] = offsets

    def write_due(self) -> None:
        """Writes what was noted to the checkpoints, if it is time. Never waits, never fails: the next one does it."""
        if not self._noted or not self._due() or self.problem():
            return
        lock = lock_for(self._lock_path)
        try:
            files.open_or_create(self._lock_path).close()
            lock.acquire(timeout=0)
        except LockTimeoutError:
            return
        except OSError as error:
            log.warning("%s: %s", self._lock_path, error)
            return
        try:
            # Where something else should be mounted, nothing is to be written; nor where it was taken off the list.
            if not self.problem():
                self._write()
        except OSError as error:
            log.warning("%s: the checkpoints could not be written: %s", self.path, error)
        finally:
            lock.release()

    def leave(self) -> None:
        """Removes what was written here beside the logs, for the store does not list the folder any more.

        Its `meta.properties` goes last: as long as that is there, it can be told whose the rest is.

        Raises:
            LockTimeoutError, OSError: some of it may be left.
        """
        files.open_or_create(self._lock_path).close()
        lock = lock_for(self._lock_path)
        lock.acquire()
        try:
            for name in (LOG_START, RECOVERY_POINT, HIGH_WATERMARK, log_dir_owner.OWNER_FILE, META_PROPERTIES):
                files.unlink(f"{self.path}/{name}")
            files.sync_folder(self.path)
        finally:
            lock.release()

    def _due(self) -> bool:
        try:
            written = files.status_of(f"{self.path}/{HIGH_WATERMARK}").st_mtime
        except OSError:
            return True
        # A time that is to come says nothing: the clock was set back.
        return not 0 <= self._clock() / 1000 - written < INTERVAL

    def _write(self) -> None:
        with self._mutex:
            noted = dict(self._noted)
        if self.directory_id:
            # The store may have been moved since.
            log_dir_owner.note(self.path, self._store_file)
        names = set(files.list_folder(self.path))
        for file, field in (
            (LOG_START, "log_start"), (RECOVERY_POINT, "recovery_point"), (HIGH_WATERMARK, "high_watermark"),
        ):  # fmt: skip
            path = f"{self.path}/{file}"
            before = _read_or_none(path)
            offsets = before | {partition: getattr(known, field) for partition, known in noted.items()}
            # Partitions that were deleted go; one that is made anew must not begin with the old one's offsets.
            after = {one: at for one, at in offsets.items() if at is not None and str(one) in names}
            if after != before or file == HIGH_WATERMARK or not files.exists(path):
                checkpoint_files.write_offsets(path, after)
        with self._mutex:
            for partition, known in noted.items():
                if self._noted.get(partition) is known:
                    del self._noted[partition]


def _read_or_none(path: str) -> dict[TopicPartition, int | None]:
    try:
        return dict(checkpoint_files.read_offsets(path))
    except SideFileError as error:
        log.warning("replacing a checkpoint that is damaged: %s", error)
        return {}
