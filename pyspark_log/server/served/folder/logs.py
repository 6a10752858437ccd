"""A store in a folder, as it is served; see `logs`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence

from pyspark_log.errors import LockTimeoutError, StoreError, UnknownTopicError
from pyspark_log.server.documents.in_folder import FolderDocuments
from pyspark_log.server.network import Workers
from pyspark_log.server.served.folder import replicas_alone
from pyspark_log.server.served.folder.append import append
from pyspark_log.server.served.folder.topic import FolderTopic, SharedTopic
from pyspark_log.server.served.logs import Batch, GroupMembers, Refused, ServedLogs, Stored
from pyspark_log.server.served.servers import Servers
from pyspark_log.storage.catalog.store_json import STATE_FOLDER
from pyspark_log.storage.compaction import LogCleaner
from pyspark_log.storage.folder_store import FolderStore
from pyspark_log.storage.fs import contextmanager, files, lock_for
from pyspark_log.storage.fs.locking import life_locks
from pyspark_log.storage.log.producers import ProducerEntry
from pyspark_log.storage.log_manager import LogDirDescription
from pyspark_log.storage.seam import PartitionEvents
from pyspark_log.storage.transactions import TransactionLog
from pyspark_log.types import TopicDescription, TopicPartition

# A partition is kept open for appending for each so many files that the system allows; it has five of them.
_FILES_PER_WRITER = 16
_LOCK = "server.lock"
# How long the lock of another server is waited for, in seconds: long enough to find which process has it.
_LOCK_TIMEOUT = 0.1


class FolderLogs(ServedLogs):
    """The logs of a store in a folder, which this process or others have open as well."""

    def __init__(self, store: FolderStore, workers: Workers, servers: Servers) -> None:
        """Of a store; `workers` append what has to wait, `servers` are the store's."""
        self._store, self._logs, self._workers = store, store.logs, workers
        self.overlaps = False
        # A server without it at the start is one for reading.
        self._writes = store.writable
        self.configs, self.groups = store.configs, store.groups.log
        self.servers, self.documents = servers, FolderDocuments(store.path)
        self.transactions = TransactionLog(store.logs)
        # With several, one does it for all.
        self.background = LogCleaner(store.logs, is_turn=lambda: servers.coordinates)

    @property
    def writable(self) -> bool:
        return self._logs.writable

    @property
    def why_read_only(self) -> str:
        return self._logs.reads_only or "this process may not write to it"

    def check_writable(self) -> None:
        self._logs.check_writable()

    def clock(self) -> int:
        return self._logs.clock()

    def has_topic(self, name: str) -> bool:
        return self._logs.catalog.exists(name)

    def may_lack(self, names: Iterable[str]) -> bool:
        return False

    def catch_up(self) -> None:
        """All is known at once."""

    def topics(self, *, fresh: bool) -> list[TopicDescription]:
        topics = []
        for name in self._store.topics(internal=True):
            with contextlib.suppress(UnknownTopicError):  # deleted meanwhile
                topics.append(self._store.describe_topic(name))
        return topics

    def topic(self, name: str) -> FolderTopic:
        return FolderTopic(self._logs, self._logs.topic(name))

    def events(self) -> PartitionEvents | None:
        return self._store.partitions.events()

    def problem(self) -> str:
        for folder in {self._store.path, *(log_dir.path for log_dir in self._logs.log_dirs if self._writes)}:
            if not files.is_folder(folder):
                return f"{folder} is missing"
            if self._writes and not files.may(folder, os.W_OK):
                return f"{folder} may not be written any more"
            if self._writes and not files.room_at(folder).f_bavail:
                return f"the disk of {folder} is full"
        return ""

    def is_there(self) -> bool:
        return files.is_folder(self._store.path)

    async def append(
        self, batches: Sequence[Batch], *, sync: bool, on_order: Callable[[], object]
    ) -> Sequence[Stored | Refused]:
        outcomes = await append(self._logs, self._workers, batches, sync=sync)
        on_order()
        return outcomes

    def producers(self, at: TopicPartition) -> Sequence[ProducerEntry]:
        self._logs.topic(at.topic).check(at.partition)
        return self._logs.producers(at.topic, at.partition)

    def has_log_dir(self, path: str) -> bool:
        return any(log_dir.path == path for log_dir in self._logs.log_dirs)

    def log_dirs(self) -> Sequence[LogDirDescription]:
        return self._store.describe_log_dirs()

    def move(self, at: TopicPartition, path: str) -> None:
        self._store.move_partition(at.topic, at.partition, path)

    def clean(self) -> None:
        if self.servers.coordinates:
            self._store.clean()

    @contextmanager
    def held(self, most_files: int) -> Iterator[None]:
        """Two would each think that they lead its partitions and groups."""
        self._keep_open(most_files)
        if not self._writes:
            yield
            return
        self._logs.make_folders()
        files.open_or_create(self._lock).close()
        try:
            with lock_for(self._lock).held(_LOCK_TIMEOUT):
                yield
        except LockTimeoutError as error:
            raise StoreError(f"another server serves this store: {error}") from None

    def _keep_open(self, most_files: int) -> None:
        self._logs.most_writers = max(self._logs.most_writers, most_files // _FILES_PER_WRITER)

    @property
    def _lock(self) -> str:
        return f"{self._store.path}/{STATE_FOLDER}/{_LOCK}"

    def begin_alone(self) -> Callable[[], object] | None:
        """A copy of a node's folder is for reading alone."""
        if not replicas_alone.has_replicas(self._store):
            return None
        self._logs.reads_only = replicas_alone.WHY
        return lambda: replicas_alone.report_hidden(self._store)

    def close(self) -> None:
        self._store.close()


class SharedFolderLogs(FolderLogs):
    """The same, where other servers of this machine serve the folder as well."""

    @contextmanager
    def held(self, most_files: int) -> Iterator[None]:
        """One that is alone, or a node of a cluster, would think that it leads all."""
        self._keep_open(most_files)
        if not self._writes or replicas_alone.has_replicas(self._store):
            raise StoreError(f"{self._store.path} is for reading here, by one server alone")
        self._logs.make_folders()
        lock = life_locks.hold(self._lock, shared=True)
        if lock is None:
            raise StoreError(
                "another server serves this store, and shares it with none: it was started without --shared"
            )
        with lock:
            yield

    def topic(self, name: str) -> SharedTopic:
        return SharedTopic(self._logs, self._logs.topic(name))

    def take_over(self) -> tuple[int, GroupMembers]:
        """As of SharedGroups, but it waits. What the server before has written is all there: its process has ended."""
        term = self.servers.term
        assert term is not None
        return term, self.groups.members()

    def close(self) -> None:
        super().close()
        self.servers.end()
