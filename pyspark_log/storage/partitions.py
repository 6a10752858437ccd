"""Questions about the partitions of a store, for programs that plan, follow or report: `store.partitions`."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext

from pyspark_log.errors import UnknownTopicError
from pyspark_log.storage.catalog.store_json import STATE_FOLDER
from pyspark_log.storage.fs.file_events import FileEvents
from pyspark_log.storage.fs.mounts import is_shared
from pyspark_log.storage.log.state import StateWatch
from pyspark_log.storage.log_manager import LogManager, PartitionDescription, describe_partition
from pyspark_log.storage.record import BatchHeader
from pyspark_log.storage.record.end_txn_marker import EndTxnMarker
from pyspark_log.types import READ_UNCOMMITTED, OffsetAndTimestamp, TopicPartition, check_isolation


class Partitions:
    """What is known of partitions.

    Nothing here applies publishes that are decided and not visible yet: `store.publishes.apply_pending` does, once for
    many questions.
    """

    def __init__(self, logs: LogManager) -> None:
        """Of one store."""
        self._logs = logs

    @property
    def are_brokers(self) -> bool:
        """Whether they are a Kafka broker's: they cannot be written, and the configs of their topics are unknown."""
        return self._logs.is_brokers

    def looking(self, age: float = 0.0) -> AbstractContextManager[None]:
        """A block in which this thread asks many questions. Each is answered by how the store is then.

        Where that takes requests, as in an object store, only the begin of the block looks how the store is, and what
        other processes change in the block is not seen in it.

        Args:
            age: seconds: if nothing was new so lately, the block does not look either; infinite: not at all, if this
                process has looked before.
        """
        return nullcontext()

    def recorded_ids(self, topics: Iterable[str]) -> tuple[str | None, dict[str, str]]:
        """The ids by which a reader knows later that the store and its topics are the same ones.

        Returns:
            The cluster id, and the ids of the topics. Those that no file of a broker's folder has are missing: None.

        Raises:
            UnknownTopicError, InvalidTopicError: no such topic.
        """
        found = {topic: self._logs.recorded_topic_id(topic) for topic in topics}
        return self._logs.recorded_cluster_id, {topic: one for topic, one in found.items() if one is not None}

    def written(self, topic: str) -> list[int]:
        """The partitions of a topic that have files, ascending; of a broker's topic, those in this folder.

        The cost grows with their number, not with the topic's partitions. UnknownTopicError.
        """
        return self._logs.written_partitions(topic)

    def describe(self, topic: str, partition: int) -> PartitionDescription:
        """Its offsets, segments and size, or why it cannot be read. UnknownTopicError."""
        return describe_partition(self._logs, topic, partition)

    def size(self, topic: str, partition: int) -> int:
        """The bytes of its records, as they are stored. UnknownTopicError."""
        return self._logs.recovered(topic, partition).size()

    def latest_offsets(
        self,
        partitions: Iterable[TopicPartition],
        *,
        isolation_level: str = READ_UNCOMMITTED,
        skip_missing: bool = False,
    ) -> dict[TopicPartition, int]:
        """The offsets that the next records will get; for read_committed, the last stable offsets.

        Args:
            partitions: which ones.
            isolation_level: as for Store.latest_offset.
            skip_missing: leaves out those that do not exist.

        Raises:
            UnknownTopicError: one of them does not exist.
        """
        committed, found = check_isolation(isolation_level), dict[TopicPartition, int]()
        for at in partitions:
            try:
                reader = self._logs.recovered(at.topic, at.partition)
                found[at] = reader.last_stable_offset() if committed else reader.state().high_watermark
            except UnknownTopicError:
                if not skip_missing:
                    raise
        return found

    def end_within(self, at: TopicPartition, start: int, end: int, max_bytes: int) -> tuple[int, int]:
        """How far from `start` about `max_bytes` of records reach: an offset up to `end`, and the bytes up to it."""
        return self._logs.recovered(at.topic, at.partition).end_within(start, end, max_bytes)

    def producer_batches(
        self, at: TopicPartition, start: int, end: int
    ) -> list[tuple[BatchHeader, EndTxnMarker | None]]:
        """The batches of [start, end) that have producer ids, by their headers, with the markers of transactions.

        Raises:
            UnknownTopicError: no such partition.
            OffsetOutOfRangeError: the range is not in the log.
        """
        return self._logs.recovered(at.topic, at.partition).producer_batches(start, end)

    def offset_of_max_timestamp(self, topic: str, partition: int) -> OffsetAndTimestamp | None:
        """The record with the largest time, the first of several by offset; None: no record has a time.

        As Kafka answers a ListOffsets request for -3 (KIP-734). The marker of a transaction counts as a record there.
        """
        return self._logs.recovered(topic, partition).find_max_timestamp()

    def watch(self) -> PartitionWatch:
        """Waits for new records."""
        return PartitionWatch(self._logs)

    def events(self) -> PartitionEvents | None:
        """Reports which partitions change; None where the OS cannot, as other machines may change them."""
        folder = f"{self._logs.path}/{STATE_FOLDER}"
        if self._logs.is_brokers or is_shared(folder):
            return None
        try:
            return PartitionEvents(FileEvents(folder))
        except OSError:
            return None


class PartitionWatch:
    """Waits until one of some partitions changes, as it does with each append; `Partitions.watch` makes one."""

    def __init__(self, logs: LogManager) -> None:
        """Nothing is noted yet."""
        self._logs, self._states = logs, StateWatch()

    def note(self, topic: str, partitions: Iterable[int]) -> None:
        """Notes how partitions are; call it before they are read. UnknownTopicError, OSError."""
        self._states.note(self._logs.state_paths(topic, partitions))

    def wait(self, seconds: float) -> None:
        """Returns when one is not as it was noted, or after `seconds`. Changes may go unnoticed. OSError."""
        self._states.wait(seconds)


class PartitionEvents:
    """Reports which partitions have changed, as they do with each append by any process of this machine.

    Attributes:
        fd: can be read when there are changes; for a loop that waits for several things.
    """

    def __init__(self, state_files: FileEvents) -> None:
        """`state_files`: events of the files that hold the partitions' states."""
        self._files = state_files
        self.fd = state_files.fd

    def changed(self) -> set[tuple[str, int]] | None:
        """The topic ids and partitions that may have changed since the last call, without waiting; None: any may."""
        names = self._files.changed()
        if names is None:
            return None
        parts = (name.rpartition("-") for name in names)
        return {(topic_id, int(number)) for topic_id, _, number in parts if number.isdecimal()}

    def close(self) -> None:
        """Ends it."""
        self._files.close()
