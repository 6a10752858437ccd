"""A store: a folder of topics that any number of processes may open at once.

Each call delegates: `log_manager` finds, creates, changes and deletes topics, appends, and applies retention; `log`
reads.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import pyarrow as pa

from pyspark_log.arguments import check_whole
from pyspark_log.config import TopicConfig
from pyspark_log.errors import OffsetOutOfRangeError, PylogError, StoreExistsError, StoreNotFoundError
from pyspark_log.storage.broker import BrokerLogDirs, BrokerLogManager
from pyspark_log.storage.catalog import check_not_internal, local_path, store_json
from pyspark_log.storage.catalog.store_json import STORE_FILE
from pyspark_log.storage.fs import Mutex, files
from pyspark_log.storage.groups import CommittedOffsets, Groups
from pyspark_log.storage.log.read import READ_BYTES, Damage
from pyspark_log.storage.log_manager import (
    LogDirDescription,
    LogManager,
    TopicAdmin,
    append_batch,
    append_batches,
    append_rows,
    cleaning,
    describe_log_dirs,
    partition_move,
    remove_log_dir,
)
from pyspark_log.storage.partitions import Partitions
from pyspark_log.storage.publish import DecisionLog, apply_pending
from pyspark_log.storage.publishes import Publishes
from pyspark_log.storage.record import RowBuilder, Rows, to_arrow
from pyspark_log.storage.record.rows import row_schema
from pyspark_log.storage.segment.file_names import LOG, list_segments, segment_path
from pyspark_log.storage.topic import Topic
from pyspark_log.types import (
    EARLIEST,
    LATEST,
    READ_UNCOMMITTED,
    AppendResult,
    OffsetAndTimestamp,
    TopicDescription,
    TopicPartition,
    check_isolation,
)

# Stores that a process shares between callers that open them by path; the least recently used are dropped first.
_SHARED_STORES = 8


class Store:
    """An open store. Thread-safe; opening one reads one small file.

    Attributes:
        path: its folder, absolute.
        cluster_id: 22 characters that identify this store.
        configs: what store.json sets, by Kafka's broker names.
        publishes: what publishes exactly once.
        partitions: what is known of partitions.
        logs, decisions, committed_offsets: the parts of the engine, for tools built on it.
    """

    def __init__(self, logs: LogManager) -> None:
        """For `open`, `create` and `open_or_create`, which check the folder first."""
        self.path, self.cluster_id, self.configs = logs.path, logs.cluster_id, logs.configs
        self.logs = logs
        self.decisions = DecisionLog(logs)
        self.committed_offsets = CommittedOffsets(self.decisions)
        self.publishes = Publishes(self.decisions, self.committed_offsets)
        self.partitions = Partitions(logs)
        self._admin = TopicAdmin(logs)

    def __repr__(self) -> str:
        return f"Store({self.path!r}, cluster_id={self.cluster_id!r})"

    # ---- opening

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Store:
        """Opens the store in a folder; or, read-only, a Kafka broker's log dir.

        Args:
            path: the folder, or a `file:` URI. A broker's: one of its `log.dirs`, a copy of it, or the folder of a
                single partition; or several of its `log.dirs`, absolute, with commas between them.

        Raises:
            StoreNotFoundError: the folder is missing, or holds neither.
            StoreVersionError: a newer version wrote it.
            DescriptionError: its store.json is damaged.
            SideFileError: a broker's meta.properties is damaged.
            InvalidConfigError: it is not a path, or several folders are not those of one broker.
            OSError: the folder cannot be accessed.
        """
        folder = local_path(path)
        try:
            found = store_json.describe(folder)
            return cls(LogManager(folder, found.cluster_id, found.configs, found.log_dirs, found.next_log_dir))
        except StoreNotFoundError:
            broker = BrokerLogDirs.find(folder)
            if broker is None:
                raise
            return cls(BrokerLogManager(broker))

    @classmethod
    def create(cls, path: str | os.PathLike[str], settings: Mapping[str, str] | None = None) -> Store:
        """Creates a store in a missing or empty folder.

        Args:
            path: the folder; its parent must exist.
            settings: the store's configs, by Kafka's broker names. `log.dirs` are the folders over which partitions
                are spread.

        Raises:
            StoreExistsError: the folder is not empty.
            InvalidConfigError: an unknown config or a bad value.
        """
        folder = local_path(path)
        store_json.make(folder, settings or {})
        return cls.open(folder)

    @classmethod
    def open_or_create(cls, path: str | os.PathLike[str], settings: Mapping[str, str] | None = None) -> Store:
        """Opens the store in a folder; creates one if the folder is missing or empty. Raises: as both."""
        try:
            return cls.open(path)
        except StoreNotFoundError:
            try:
                return cls.create(path, settings)
            except StoreExistsError:
                # Another process may have been faster; if not, this says why the folder is refused.
                if files.exists(f"{local_path(path)}/{STORE_FILE}"):
                    return cls.open(path)
                raise

    @classmethod
    def shared(cls, path: str | os.PathLike[str]) -> Store:
        """Returns the store in a folder: one object per process as long as the folder holds the same store.

        For workers that outlive their tasks. Raises: as `open`.
        """
        folder = local_path(path)
        stamp = store_json.stamp(folder)
        with _shared_mutex.lock:
            known = _shared.pop(folder, None)
            if known is None or known[0] != stamp:
                known = (stamp, cls.open(folder))
            _shared[folder] = known
            if len(_shared) > _SHARED_STORES:
                _shared.popitem(last=False)
            return known[1]

    @property
    def writable(self) -> bool:
        """Whether this process may change the store; readers need no write access."""
        return self.logs.writable

    @property
    def is_brokers(self) -> bool:
        """Whether it is a folder of a Kafka broker: it can be read, and every call that would write raises."""
        return self.logs.is_brokers

    @property
    def recorded_cluster_id(self) -> str | None:
        """`cluster_id`; None for a broker's folder that does not record one: then it is derived from the path."""
        return self.logs.recorded_cluster_id

    def check_writable(self) -> None:
        """Refuses a read-only folder, before anything is written. ReadOnlyError."""
        self.logs.check_writable()

    # ---- topics

    def topics(self, *, internal: bool = False) -> list[str]:
        """The names of the topics, sorted; with `internal` also those internal to the engine or Kafka's brokers."""
        return self.logs.topics(internal=internal)

    def describe_topic(self, name: str) -> TopicDescription:
        """A topic's id, partitions and configs. UnknownTopicError, InvalidTopicError."""
        return self.logs.describe_topic(name)

    def recorded_topic_id(self, name: str) -> str | None:
        """A topic's id; None in a broker's folder that does not record it, for which it is derived from the name.

        UnknownTopicError, InvalidTopicError.
        """
        return self.logs.recorded_topic_id(name)

    def topic_config(self, name: str) -> TopicConfig:
        """A topic's resolved configs. UnknownTopicError, InvalidTopicError."""
        return self.logs.topic_config(name)

    def create_topic(
        self, name: str, partitions: int | None = None, configs: Mapping[str, str] | None = None
    ) -> TopicDescription:
        """Creates a topic.

        Args:
            name: 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_', '-'.
            partitions: how many, 100,000 at most; None: the store's num.partitions.
            configs: its configs, by Kafka's names.

        Raises:
            TopicExistsError: a topic of that name exists.
            InvalidTopicError, InvalidConfigError: refused; nothing was changed.
        """
        return self._admin.create(name, partitions, configs or {})

    def ensure_topic(self, name: str) -> bool:
        """Creates a missing topic before a write, if the store lets writers do so; True if this call created it.

        Raises:
            UnknownTopicError: no such topic, and auto.create.topics.enable is false.
            InvalidTopicError: the name is invalid.
        """
        return self._admin.create_if_missing(name)

    def add_partitions(self, name: str, total: int) -> TopicDescription:
        """Adds partitions to a topic.

        Later records may go to another partition than earlier ones with the same key.

        Args:
            name: the topic.
            total: the new number of partitions.

        Raises:
            UnknownTopicError, InvalidTopicError: no such topic, or one of the engine's own.
            InvalidConfigError: it already has as many or more; or `total` is more than a topic can have.
        """
        return self._admin.add_partitions(name, total)

    def alter_configs(
        self, name: str, configs: Mapping[str, str] | None = None, delete: Collection[str] = ()
    ) -> TopicDescription:
        """Changes a topic's configs, for all processes from their next call on.

        Args:
            name: the topic.
            configs: its configs, by Kafka's names.
            delete: names of configs to reset to the store's values.

        Raises:
            UnknownTopicError, InvalidTopicError: no such topic, or one of the engine's own.
            InvalidConfigError: refused; nothing was changed.
        """
        return self._admin.alter_configs(name, configs or {}, delete)

    def delete_topic(self, name: str) -> None:
        """Deletes a topic with its records, durably. Its files are deleted after its file.delete.delay.ms.

        Running readers continue with the files that they have open, and then get UnknownTopicError.

        Raises:
            UnknownTopicError, InvalidTopicError: no such topic, or one of the engine's own.
        """
        self._admin.delete(name)

    def topic(self, name: str) -> Topic:
        """Returns a handle to all partitions of a topic. UnknownTopicError, InvalidTopicError."""
        return Topic(self, name)

    # ---- groups

    @property
    def groups(self) -> Groups:
        """The consumer groups: `store.groups["g"].commit({TopicPartition("t", 0): 5})`."""
        return Groups(self.committed_offsets)

    # ---- log dirs

    def add_log_dir(self, folder: str | os.PathLike[str]) -> None:
        """Adds a log dir to the store, durably. New partitions are placed there while it has the fewest.

        Args:
            folder: an absolute path, or a plain name of a folder in the store; missing, or empty.

        Raises:
            InvalidConfigError: it is not empty, or is inside another log dir; or there are too many.
            ReadOnlyError, OSError: nothing was changed.
        """
        self.logs.add_log_dir(os.fspath(folder))

    def remove_log_dir(self, folder: str | os.PathLike[str]) -> str:
        """Removes a log dir from the store's list, durably. It must hold no partition, and gets none meanwhile.

        The store's files in it, other than logs, are deleted. A failed log dir is not touched.

        Args:
            folder: as store.json lists it, or the path.

        Returns:
            Why files of the store may remain in it; "": none do.

        Raises:
            InvalidConfigError: it is not a log dir of the store, or is the only one; or it is not empty (the error
                names what is in it).
            LogDamagedError: the state of a partition that may be in it cannot be read.
            LockTimeoutError: a partition is being moved, or written to, for too long.
            ReadOnlyError, StoreError, OSError: nothing was changed.
        """
        return remove_log_dir.remove(self.logs, os.fspath(folder))

    def describe_log_dirs(self) -> list[LogDirDescription]:
        """The content, usability and free space of each log dir, in the order of store.json."""
        return describe_log_dirs(self.logs)

    def move_partition(self, topic: str, partition: int, folder: str | os.PathLike[str]) -> int:
        """Moves a partition to another log dir, durably, while others read it and write to it.

        Writers wait while the last bytes are copied (usually some MiB at most). A partition without a log is created
        there. The files in the old folder stay for file.delete.delay.ms, for readers that have them open; `clean`, or
        the next move, removes them.

        Args:
            topic, partition: the partition.
            folder: the target, as store.json lists it, or the path.

        Returns:
            How many bytes were copied; 0 if it was there already.

        Raises:
            UnknownTopicError: no such topic or partition.
            InvalidConfigError: it is not a log dir of the store, or has an entry of the partition's name.
            LogDirOfflineError: one of the two folders has failed.
            LockTimeoutError: another partition is being moved for too long.
            LogDamagedError, OSError: e.g. a full disk. After any error, the partition stays where it is.
        """
        return partition_move.move(self.logs, topic, partition, os.fspath(folder))

    # ---- records

    def append(
        self,
        topic: str,
        data: Rows,
        *,
        partition: int | None = None,
        sync: bool = False,
        compression_type: str | None = None,
    ) -> list[AppendResult]:
        """Appends records.

        Args:
            topic: an existing topic.
            data: Arrow data (of pyarrow, Polars, DuckDB, or anything else with `__arrow_c_stream__`), a pandas
                DataFrame, or a list of dicts. The columns are `value` (binary or string; null is a tombstone), and as
                wanted `key` (the same), `headers` (a list of structs of key and value; in dicts also of pairs of name
                and value), `timestamp` (a time, or whole ms; null: now) and `partition` (null: by the key, or spread).
            partition: the partition for all records.
            sync: True: returns when the records survive a power loss; else they survive the end of any process,
                and a power loss as far as the topic's flush.messages and flush.ms ensure.
            compression_type: none, gzip, snappy, lz4 or zstd, for a topic that leaves the codec to its writers
                (compression.type=producer); None: none.

        Returns:
            The offsets of the records, for each partition that got some.

        Raises:
            UnknownTopicError: no such topic or partition.
            InvalidTopicError: one of the engine's own topics.
            InvalidConfigError: no such codec, or the data are no rows.
            InvalidRecordError: a column or record is refused; nothing was appended.
            OSError, OutcomeUnknownError, or another PylogError: only the partitions in the error's `results`, a list
                of AppendResult, have their records.
        """
        check_not_internal(topic)
        return append_rows(self.logs, topic, to_arrow(data), partition, sync, compression_type)

    def append_batch(self, topic: str, partition: int, batch: bytes, *, sync: bool = False) -> AppendResult:
        """Appends a record batch as a Kafka client sends it; once, if its producer is idempotent.

        A batch with producer id, epoch and sequence numbers that was appended before, and is one of the producer's
        last five, returns the offsets of that append. Nothing is written.

        Args:
            topic, partition: the partition.
            batch: one complete batch of format 2 with base offset 0, in any codec. A part of a transaction is
                accepted as well, but the engine never ends it.
            sync: as for `append`.

        Raises:
            UnknownTopicError: no such topic or partition.
            InvalidTopicError: one of the engine's own topics.
            InvalidRecordError, CorruptRecordError: the batch is invalid; nothing was appended.
            ProducerError: it does not follow the producer's last one, or a newer epoch of that producer has
                written here; nothing was appended.
            OSError, OutcomeUnknownError: it can be sent again: a batch that was appended is recognised.
        """
        check_not_internal(topic)
        return append_batch(self.logs.writer(topic, partition), batch, self.logs.clock(), sync=sync)

    def append_batches(
        self, topic: str, partition: int, batches: Sequence[bytes], *, sync: bool = False
    ) -> list[AppendResult | PylogError]:
        """Appends record batches as `append_batch`, but together: one write, and one sync if there is any.

        Returns:
            For each batch the offsets of its records, or the error for which it alone was refused.

        Raises:
            UnknownTopicError, InvalidTopicError: as `append_batch`.
            OSError, OutcomeUnknownError: any of them may be in the log. Those of idempotent producers can be sent
                again as `append_batch` says: no more than five of each producer.
        """
        check_not_internal(topic)
        target = self.logs.writer(topic, partition)
        return append_batches(target, batches, self.logs.clock(), sync=sync)

    def read(
        self,
        topic: str,
        partition: int,
        start: int = EARLIEST,
        end: int | None = None,
        *,
        max_bytes: int = READ_BYTES,
        columns: Sequence[str] | None = None,
        headers: bool = False,
        check_crcs: bool = True,
        isolation_level: str = READ_UNCOMMITTED,
        on_damage: Callable[[Damage], None] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Reads the records of a range of offsets, in order, as batches in the row schema.

        Args:
            topic, partition: the partition.
            start: the first offset, or EARLIEST or LATEST.
            end: the exclusive end; None or LATEST: the log end at the call, or the last stable offset. Decided
                publishes that no process has finished are applied first, if this process may write.
            max_bytes: about how many bytes of records a batch holds, uncompressed; at least one record batch.
            columns: of the row schema, those that the batches have; None: all. Others are not copied.
            headers: adds the column of headers.
            check_crcs: False skips the checksums, as Kafka's check.crcs does.
            isolation_level: read_uncommitted, or read_committed: only records below the last stable offset, without
                those of aborted transactions.
            on_damage: called with each damage, before the records after it are read; None: damage is an error.

        Raises:
            UnknownTopicError: no such topic or partition.
            InvalidConfigError: no such isolation level or column, or `max_bytes` is not from 1 to 2^63 - 1.
            OffsetOutOfRangeError: with the valid range.
            CorruptRecordError: a damaged batch; the records before it are returned first.
            BatchTooLargeError: a batch that takes more memory than batch.max.memory.bytes.
        """
        check_whole("max_bytes", max_bytes, low=1)
        schema = row_schema(headers, columns)
        if LATEST in (start, end) or end is None:
            apply_pending(self.decisions)
        reader, committed = self.logs.recovered(topic, partition), check_isolation(isolation_level)
        state = None
        if committed or start in (EARLIEST, LATEST) or end in (None, LATEST):
            state = reader.state()
            last = min(reader.last_stable_offset(), state.high_watermark) if committed else state.high_watermark
            start = {EARLIEST: state.log_start, LATEST: last}.get(start, start)
            end = last if end is None or end == LATEST else end
            if committed and not state.log_start <= end <= last:
                raise OffsetOutOfRangeError(topic, partition, end, state.log_start, last)
        assert end is not None
        chunks = reader.read(
            start,
            end,
            max_bytes=max_bytes,
            columns=schema.names,
            check_crcs=check_crcs,
            committed=committed,
            state=state,
            on_damage=on_damage,
        )
        rows = RowBuilder(topic, partition, schema)
        return (rows.rows(chunk.columns, chunk.num_rows) for chunk in chunks)

    def flush(self, topic: str | None = None) -> None:
        """Makes durable what any process has appended; of one topic, or of all.

        Raises:
            UnknownTopicError: no such topic.
            PylogError, OSError: the first that a partition raised; the others were synced.
        """
        cleaning.flush(self.logs, self.topics(internal=True) if topic is None else [topic])

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """Deletes the records before an offset, durably; readers no longer see them when this returns.

        Args:
            topic, partition: the partition.
            before_offset: the first offset that stays; LATEST: none does.

        Returns:
            The log start: `before_offset`, or a larger offset if more was deleted already.

        Raises:
            UnknownTopicError, InvalidTopicError: no such topic or partition, or one of the engine's own.
            InvalidConfigError: the topic's cleanup.policy is not "delete".
            OffsetOutOfRangeError: beyond the log end; nothing was deleted.
        """
        return cleaning.delete_records(self.logs, topic, partition, before_offset)

    def clean(self, topic: str | None = None) -> int:
        """Deletes segments that have exceeded retention, and removes files whose delay is over.

        Writers do this too, each for its partition when it rolls a segment. This is for partitions that no process
        writes to any more.

        Args:
            topic: the topic; None: all, and the remains of deleted ones.

        Returns:
            How many segments were deleted.

        Raises:
            UnknownTopicError, InvalidTopicError: no such topic.
            PylogError, OSError: the first that a partition raised; the others were cleaned.
        """
        self.check_writable()
        try:
            return cleaning.clean(self.logs, self.topics(internal=True) if topic is None else [topic])
        finally:
            if topic is None:
                self._admin.remove_deleted()
                partition_move.sweep(self.logs)

    def close(self) -> None:
        """Ends this object's writing: syncs the partitions that it wrote to, and closes their files.

        As with `flush`, no later power loss costs offsets of these partitions, and Kafka's checkpoints are written if
        due. `with Store.open(path) as store:` closes at the end of the block. A store that was never written to has
        nothing to close; closing is optional for any other: acknowledged records stay without it. The object can be
        used again; it then opens what it needs.

        Raises:
            PylogError, OSError: the first that a partition raised; the others are closed.
        """
        try:
            self.logs.close()
        finally:
            self.logs.write_checkpoints()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- offsets

    def earliest_offset(self, topic: str, partition: int) -> int:
        """The first offset that can be read (the log start)."""
        return self.logs.recovered(topic, partition).state().log_start

    def latest_offset(self, topic: str, partition: int, *, isolation_level: str = READ_UNCOMMITTED) -> int:
        """The offset that the next record will get (the log end); for read_committed, the last stable offset.

        Like a read up to the log end, it first applies decided publishes that no process has finished.
        """
        apply_pending(self.decisions)
        at = TopicPartition(topic, partition)
        return self.partitions.latest_offsets([at], isolation_level=isolation_level)[at]

    def offset_for_timestamp(self, topic: str, partition: int, timestamp: int) -> OffsetAndTimestamp | None:
        """The first record, by offset, whose time is `timestamp` (ms) or later; None: there is none.

        A record without a time is never returned.

        Raises:
            UnknownTopicError: no such topic or partition.
            InvalidConfigError: a negative time, as with Kafka's consumers, or one beyond 64 bits.
        """
        check_whole("timestamp", timestamp)
        return self.logs.recovered(topic, partition).find_timestamp(int(timestamp))

    def offset_of_max_timestamp(self, topic: str, partition: int) -> OffsetAndTimestamp | None:
        """The record with the largest time, the first of several by offset; None: no record has a time.

        As Kafka answers a ListOffsets request for -3 (KIP-734). The marker of a transaction counts as a record there.
        """
        return self.partitions.offset_of_max_timestamp(topic, partition)

    def size(self, topic: str, partition: int) -> int:
        """The size of the partition's `.log` files, in bytes."""
        return self.partitions.size(topic, partition)

    def written_partitions(self, topic: str) -> list[int]:
        """The partitions that have files, ascending; for a broker's topic, those in this folder.

        The cost grows with their number, not with the topic's partitions. UnknownTopicError.
        """
        return self.partitions.written(topic)

    def segment_files(self, topic: str, partition: int) -> list[str]:
        """The partition's `.log` files, oldest first."""
        folder = self.logs.place(topic, partition).folder
        return [segment_path(folder, base, LOG) for base in list_segments(folder)]


_shared: OrderedDict[str, tuple[tuple[int, int], Store]] = OrderedDict()
_shared_mutex = Mutex()
