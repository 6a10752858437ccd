"""A store in a folder, or, read-only, in the log dirs of a Kafka broker.

Each call delegates: `log_manager` finds, creates, changes and deletes topics, appends, and applies retention; `log`
reads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from pyspark_log.arguments import check_whole
from pyspark_log.config import TopicConfig
from pyspark_log.errors import InvalidConfigError, OffsetOutOfRangeError, PylogError, StoreNotFoundError
from pyspark_log.storage.broker import BrokerLogDirs, BrokerLogManager
from pyspark_log.storage.catalog import check_not_internal, local_path, store_json
from pyspark_log.storage.catalog.store_json import read_cluster
from pyspark_log.storage.folder_partitions import FolderPartitions
from pyspark_log.storage.folder_publishes import FolderPublishes
from pyspark_log.storage.fs import files
from pyspark_log.storage.groups import CommittedOffsets, Groups
from pyspark_log.storage.groups.coordinator_log import CoordinatorLog
from pyspark_log.storage.log.read import READ_BYTES, Damage
from pyspark_log.storage.log_manager import (
    LogDirDescription,
    LogManager,
    TopicAdmin,
    append_batch,
    append_batches,
    cleaning,
    describe_log_dirs,
    partition_move,
    remove_log_dir,
)
from pyspark_log.storage.publish import DecisionLog, apply_pending
from pyspark_log.storage.segment.file_names import LOG, list_segments, segment_path
from pyspark_log.storage.store import Store
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

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_log.storage.record.rows import Rows


class FolderStore(Store):
    """A store in a folder: what all stores have, and what tools need.

    Attributes:
        configs: what store.json sets, by Kafka's broker names.
        logs, decisions, committed_offsets: the parts of the engine, for tools built on it.
    """

    def __init__(self, logs: LogManager, stamp: tuple[int, int] = (-1, -1)) -> None:
        """For `open`, which checks the folder first; `stamp`: of store_json, before that."""
        self._stamp = stamp
        self.path, self.cluster_id, self.configs = logs.path, logs.cluster_id, logs.configs
        self.logs = logs
        self.decisions = DecisionLog(logs)
        self.committed_offsets = CommittedOffsets(self.decisions)
        #: Changes topics.
        self.admin = TopicAdmin(logs, forget=partial(_forget_topic, self.committed_offsets))
        self.publishes = FolderPublishes(self.decisions, self.committed_offsets, self.admin.create_if_missing)
        self.partitions = FolderPartitions(logs)

    # ---- opening

    @classmethod
    def _open(cls, path: str, options: Mapping[str, str] | None) -> FolderStore:
        folder = _folder(path, options)
        stamp = store_json.stamp(folder)  # Before the look at it, so that no store that replaces it is missed.
        try:
            found = store_json.describe(folder)
            logs = LogManager(folder, found.cluster_id, found.configs, found.log_dirs, found.next_log_dir)
        except StoreNotFoundError:
            broker = BrokerLogDirs.find(folder)
            if broker is None:
                raise
            logs = BrokerLogManager(broker)
        return cls(logs, stamp)

    @classmethod
    def _create(cls, path: str, settings: Mapping[str, str], options: Mapping[str, str] | None) -> None:
        store_json.make(_folder(path, options), settings)

    def _is_current(self) -> bool:
        return self._stamp == store_json.stamp(self.path)

    def close(self) -> None:
        try:
            self.logs.close()
        finally:
            self.logs.write_checkpoints()

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
        names = self.logs.topics(internal=internal)
        # A folder that is gone would be a store without topics. Several of a broker are named with commas in between.
        if not names and not any(map(files.is_folder, (self.path, *self.path.split(",")))):
            raise StoreNotFoundError(f"{self.path} is gone")
        return names

    def describe_topic(self, name: str) -> TopicDescription:
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
        return self.admin.create(name, partitions, configs or {})

    def ensure_topic(self, name: str, partitions: int | None = None, configs: Mapping[str, str] | None = None) -> bool:
        return self.admin.create_if_missing(name, partitions, configs)

    def add_partitions(self, name: str, total: int) -> TopicDescription:
        check_not_internal(name)
        return self.admin.add_partitions(name, total)

    def alter_configs(
        self, name: str, configs: Mapping[str, str] | None = None, delete: Collection[str] = ()
    ) -> TopicDescription:
        check_not_internal(name)
        return self.admin.alter_configs(name, configs or {}, delete)

    def delete_topic(
        self, name: str, progress: Callable[[int, int], None] | None = None, *, topic_id: str | None = None
    ) -> None:
        check_not_internal(name)
        self.admin.delete(name, progress, topic_id)

    # ---- groups

    @property
    def groups(self) -> Groups[CoordinatorLog]:
        return Groups(CoordinatorLog(self.committed_offsets))

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
        from pyspark_log.storage.log_manager.append import append_rows  # noqa: PLC0415  (Arrow, which a server does not load)
        from pyspark_log.storage.record.rows import to_arrow  # noqa: PLC0415

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
        from pyspark_log.storage.record.rows import RowBuilder, row_schema  # noqa: PLC0415  (Arrow, which a server does not load)

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
        cleaning.flush(self.logs, self.topics(internal=True) if topic is None else [topic])

    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
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
                self.admin.remove_deleted()
                partition_move.sweep(self.logs)

    # ---- offsets

    def earliest_offset(self, topic: str, partition: int) -> int:
        return self.logs.recovered(topic, partition).state().log_start

    def latest_offset(self, topic: str, partition: int, *, isolation_level: str = READ_UNCOMMITTED) -> int:
        apply_pending(self.decisions)
        at = TopicPartition(topic, partition)
        return self.partitions.latest_offsets([at], isolation_level=isolation_level)[at]

    def offset_for_timestamp(self, topic: str, partition: int, timestamp: int) -> OffsetAndTimestamp | None:
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


def _folder(path: str | os.PathLike[str], options: Mapping[str, str] | None) -> str:
    """The folder that a path names. InvalidConfigError: it is no path, or options were given."""
    folder = local_path(path)
    if options:
        raise InvalidConfigError(
            f"{folder}: a store in a folder takes no options, as {', '.join(sorted(options))}: they say how an object "
            "store is reached"
        )
    return folder


def _forget_topic(offsets: CommittedOffsets, name: str) -> bool:
    """As CoordinatorLog.forget_topic; in a node's store the cluster's coordinators do that."""
    return read_cluster(offsets.logs.path) is not None or CoordinatorLog(offsets).forget_topic(name)
