"""A store in a folder, its topics and their partitions' logs, as they are served; see `served/logs.py`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from pyspark_log.errors import (
    InvalidRecordError,
    LockTimeoutError,
    ProducerError,
    PylogError,
    StoreError,
    UnknownTopicError,
)
from pyspark_log.kafka import FileRange
from pyspark_log.server.documents.in_folder import FolderDocuments
from pyspark_log.server.network import Workers
from pyspark_log.server.served.folder import replicas_alone
from pyspark_log.server.served.logs import (
    NO_LEADER_EPOCH,
    AsLeft,
    Batch,
    Batches,
    GroupMembers,
    LogView,
    MustWaitError,
    Refused,
    ServedLogs,
    ServedTopic,
    Stored,
)
from pyspark_log.server.served.servers import Servers
from pyspark_log.storage.catalog import check_not_internal
from pyspark_log.storage.catalog.store_json import STATE_FOLDER
from pyspark_log.storage.compaction import LogCleaner
from pyspark_log.storage.folder_store import FolderStore
from pyspark_log.storage.fs import contextmanager, files, lock_for
from pyspark_log.storage.fs.locking import life_locks
from pyspark_log.storage.ingest import validate
from pyspark_log.storage.log import Appended, Turnstile
from pyspark_log.storage.log.leader_epochs import FILE_NAME, EpochEnd, LeaderEpochs
from pyspark_log.storage.log.producers import ProducerEntry
from pyspark_log.storage.log.read import LogReader
from pyspark_log.storage.log.state import PartitionState
from pyspark_log.storage.log_manager import LogDirDescription, LogManager, TopicLogs
from pyspark_log.storage.record import assign_offsets
from pyspark_log.storage.record.layout import FLAGS_AT, TRANSACTIONAL
from pyspark_log.storage.seam import PartitionEvents
from pyspark_log.storage.transactions import TransactionLog
from pyspark_log.types import OffsetAndTimestamp, TopicDescription, TopicPartition

# A partition is kept open for appending for each so many files that the system allows; it has five of them.
_FILES_PER_WRITER = 16
_LOCK = "server.lock"
# How long the lock of another server is waited for, in seconds: long enough to find which process has it.
_LOCK_TIMEOUT = 0.1
# Up to as many bytes are checked and appended in the loop's thread, if the partition's lock is in hand: that takes some
# 50 us, and to have another thread do it as long again.
_AT_ONCE_BYTES = 64 * 1024


class FolderTopic(ServedTopic):
    """A topic."""

    def __init__(self, logs: LogManager, topic: TopicLogs) -> None:
        self._logs, self._topic = logs, topic
        self.name, self.topic_id = topic.description.name, topic.description.topic_id
        self.partitions = topic.description.partitions

    def check(self, partition: int) -> None:
        self._topic.check(partition)

    def leader_epoch(self, partition: int) -> int:
        return self._topic.leader_epoch(partition)

    def view(self, partition: int, *, may_wait: bool, client_end: int = 0) -> FolderLog:
        topic = self._topic
        if partition in topic.recovered:
            reader = topic.reader(partition)
        elif may_wait or self._logs.is_brokers:
            reader = self._logs.recovered(topic.description.name, partition)
        else:
            raise MustWaitError
        state = reader.state()
        # A client that has another one asks for it next.
        topic.note_leader_epoch(partition, state.leader_epoch)
        return FolderLog(reader, state)


class SharedTopic(FolderTopic):
    """A topic of a folder with several servers."""

    def leader_epoch(self, partition: int) -> int:
        return NO_LEADER_EPOCH


class FolderLog(LogView):
    """A partition's log."""

    is_reported = True

    def __init__(self, reader: LogReader, state: PartitionState) -> None:
        self._reader, self._state = reader, state
        self.leader_epoch, self.log_start = state.leader_epoch, state.log_start
        self.next_offset, self.high_watermark = state.next_offset, state.high_watermark
        self.may_have_transactions = state.may_have_transactions

    def is_near(self, offset: int, *, committed: bool) -> bool:
        # Inactive segments may be on the disk alone.
        is_active = offset >= self._state.active_base
        return is_active and (not committed or self._reader.stable.is_near(self._state))

    def last_stable_offset(self) -> int:
        return self._reader.last_stable_offset(self._state)

    def batches(self, start: int, end: int, max_bytes: int) -> Batches | None:
        stored = self._reader.stored_batches(start, end, max_bytes, self._state)
        if stored is None:
            return None
        return Batches(FileRange(stored.file, stored.position, stored.length), stored.next_offset)

    def aborted(self, start: int, end: int) -> Sequence[tuple[int, int]]:
        transactions = self._reader.aborted(start, end)
        return [(transaction.producer_id, transaction.first_offset) for transaction in transactions]

    def _epochs(self) -> LeaderEpochs:
        epochs = LeaderEpochs.read(f"{self._reader.place_in(self._state).folder}/{FILE_NAME}")
        # One that has no records yet is in no file.
        epochs.assign(self._state.leader_epoch, self._state.next_offset)
        return epochs

    def epoch_of(self, offset: int) -> int:
        return self._epochs().of(offset)

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        return self._epochs().end_of(epoch, self._state.next_offset)

    def find_timestamp(self, timestamp: int) -> OffsetAndTimestamp | None:
        return self._reader.find_timestamp(timestamp)

    def find_max_timestamp(self) -> OffsetAndTimestamp | None:
        return self._reader.find_max_timestamp()


class LogAsLeft(FolderLog):
    """A partition's log as an append has left it, whose batch is in memory: what waits for that needs no file."""

    def __init__(self, reader: LogReader, state: PartitionState, first: int, records: bytes) -> None:
        """`first`: the offset of the batch; `records`: its bytes as they are stored."""
        super().__init__(reader, state)
        self._first, self._records = first, records
        is_plain = not records[FLAGS_AT] & TRANSACTIONAL
        if self.may_have_transactions and is_plain and reader.stable.pass_over(state, first, state.next_offset):
            self.may_have_transactions = False  # all below its end is decided

    def batches(self, start: int, end: int, max_bytes: int) -> Batches | None:
        if start != self._first or end != self.next_offset:
            return super().batches(start, end, max_bytes)
        return Batches(self._records, end)


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


async def append(logs: LogManager, workers: Workers, batches: Sequence[Batch], *, sync: bool) -> list[Stored | Refused]:
    """See ServedLogs.append."""
    appends, remaining, size = [_Append(logs, batch) for batch in batches], list[_Append](), 0
    for batch in batches:
        size += len(batch.records)
    for append in appends:
        if sync or size > _AT_ONCE_BYTES or not append.is_done_at_once():
            remaining.append(append)
    if remaining:
        await workers.run(_finish, remaining, sync)
        for append in remaining:
            append.wake()
    return [append.outcome for append in appends]


def _finish(appends: Sequence[_Append], sync: bool) -> None:
    for append in appends:
        append.finish(sync=sync)


class _Append:
    """One batch.

    Attributes:
        outcome: what became of it, once that is known.
    """

    outcome: Stored | Refused

    def __init__(self, logs: LogManager, batch: Batch) -> None:
        self._logs, self._batch = logs, batch
        self._topic: TopicLogs | None = None
        self._writer: Turnstile | None = None
        self._checked: tuple[Turnstile, bytes | bytearray, int] | None = None

    def is_done_at_once(self) -> bool:
        """Appends the batch unless that may have to wait; whether there is an outcome. What waits for it is woken."""
        try:
            writer, data, time = self._check()
            on_written, place = self._batch.on_written, writer.place
            then = None if on_written is None else partial(on_written, place.topic_id, place.partition)
            outcomes = writer.append_at_once([data], then)
            if outcomes is None:
                return False
            self._note(writer, outcomes[0], time)
        except (PylogError, OSError) as error:
            self._fail(error)
            return True
        self.wake(partial(self._log, writer, data))
        return True

    def wake(self, as_left: AsLeft | None = None) -> None:
        """Says that the batch is there, if it was appended; see Batch.on_stored."""
        outcome, on_stored = self.outcome, self._batch.on_stored
        if on_stored is not None and isinstance(outcome, Stored) and not outcome.is_duplicate:
            assert self._writer is not None
            on_stored(self._writer.place.topic_id, outcome.base_offset, as_left)

    def _log(self, writer: Turnstile, data: bytes | bytearray) -> LogAsLeft | None:
        """See AsLeft."""
        state, outcome = writer.log.lease.state_left, self.outcome
        assert isinstance(outcome, Stored)
        is_end = state is not None and state.next_offset == state.high_watermark == outcome.next_offset
        if self._topic is None or state is None or not is_end or writer.log.sources is not None:
            return None
        records, reader = bytearray(data), self._topic.reader(self._batch.at.partition)
        assign_offsets(records, 0, len(records), outcome.base_offset, state.leader_epoch)
        return LogAsLeft(reader, state, outcome.base_offset, bytes(records))

    def finish(self, *, sync: bool) -> None:
        """Appends the batch."""
        try:
            writer, data, time = self._check()
            self._note(writer, writer.append_in_turn([data], sync=sync)[0], time)
        except Exception as error:  # noqa: BLE001  (the other batches of the request have their own outcomes)
            self._fail(error)

    def _check(self) -> tuple[Turnstile, bytes | bytearray, int]:
        """The writer, the batch as it is to be stored, and the time that its records get (ms; -1: they keep theirs)."""
        if self._checked is None:
            at = self._batch.at
            check_not_internal(at.topic)
            self._topic = self._logs.topic(at.topic)
            writer, now = self._logs.writer_of(self._topic, at.partition), self._logs.clock()
            self._writer = writer
            data = validate(self._batch.records, writer.config, now, writer.place)
            self._checked = writer, data, now if writer.config.log_append_time else -1
        return self._checked

    def _note(self, writer: Turnstile, outcome: Appended | PylogError, time: int) -> None:
        if isinstance(outcome, Appended):
            base, end, is_old = outcome.base_offset, outcome.next_offset, outcome.duplicate
            self.outcome = Stored(base, end, writer.log.lease.log_start_left, time, is_old)
        else:
            self._fail(outcome)

    def _fail(self, error: Exception) -> None:
        """Takes in why it was refused, with the log start where Kafka has looked at the log."""
        start = -1
        is_of_log = isinstance(error, ProducerError) or (isinstance(error, InvalidRecordError) and error.records)
        if self._writer is not None and is_of_log:
            place = self._writer.place
            start = self._logs.reader(place.topic, place.partition).state().log_start
        self.outcome = Refused(error, start)
