"""Questions about partitions, as every kind of store answers them: `store.partitions`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from pyspark_log.types import READ_UNCOMMITTED, OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from pyspark_log.storage.log_manager import PartitionDescription
    from pyspark_log.storage.record import BatchHeader
    from pyspark_log.storage.record.end_txn_marker import EndTxnMarker


class PartitionWatch(ABC):
    """Waits until one of some partitions changes, as it does with each append."""

    @abstractmethod
    def note(self, topic: str, partitions: Iterable[int]) -> None:
        """Notes how partitions are; call it before they are read. UnknownTopicError, OSError."""

    @abstractmethod
    def wait(self, seconds: float) -> None:
        """Returns when one is not as it was noted, or after `seconds`. Changes may go unnoticed. OSError."""


class PartitionEvents(ABC):
    """Reports which partitions have changed, as they do with each append by any process of this machine.

    Attributes:
        fd: can be read when there are changes; for a loop that waits for several things.
    """

    fd: int

    @abstractmethod
    def changed(self) -> set[tuple[str, int]] | None:
        """The topic ids and partitions that may have changed since the last call, without waiting; None: any may."""

    @abstractmethod
    def close(self) -> None:
        """Ends it."""


class Partitions(ABC):
    """What is known of partitions, for programs that plan, follow or report.

    Nothing here applies publishes that are decided and not visible yet: `Publishes.apply_pending` does, once for many
    questions.

    Attributes:
        are_brokers: whether they are a Kafka broker's: they cannot be written, and the configs of their topics are
            unknown.
    """

    are_brokers: bool

    @abstractmethod
    def looking(self, age: float = 0.0) -> AbstractContextManager[None]:
        """A block in which this thread asks many questions. Each is answered by how the store is then.

        Where that takes requests, as in an object store, only the begin of the block looks how the store is, and what
        other processes change in the block is not seen in it.

        Args:
            age: seconds: if nothing was new so lately, the block does not look either; infinite: not at all, if this
                process has looked before.
        """

    @abstractmethod
    def recorded_ids(self, topics: Iterable[str]) -> tuple[str | None, dict[str, str]]:
        """The ids by which a reader knows later that the store and its topics are the same ones.

        Returns:
            The cluster id, and the ids of the topics. Those that no file of a broker's folder has are missing: None.

        Raises:
            UnknownTopicError, InvalidTopicError: no such topic.
        """

    @abstractmethod
    def written(self, topic: str) -> list[int]:
        """The partitions of a topic that have records or files, ascending; of a broker's topic, those in this folder.

        The cost grows with their number, not with the topic's partitions. UnknownTopicError.
        """

    @abstractmethod
    def describe(self, topic: str, partition: int) -> PartitionDescription:
        """Its offsets, segments (or pieces) and size, or why it cannot be read. UnknownTopicError."""

    @abstractmethod
    def size(self, topic: str, partition: int) -> int:
        """The bytes of its records, as they are stored. UnknownTopicError."""

    @abstractmethod
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

    @abstractmethod
    def end_within(self, at: TopicPartition, start: int, end: int, max_bytes: int) -> tuple[int, int]:
        """How far from `start` about `max_bytes` of records reach: an offset up to `end`, and the bytes up to it."""

    @abstractmethod
    def producer_batches(
        self, at: TopicPartition, start: int, end: int
    ) -> Sequence[tuple[BatchHeader, EndTxnMarker | None]]:
        """The batches of [start, end) that have producer ids, by their headers, with the markers of transactions.

        An object store has none.

        Raises:
            UnknownTopicError: no such partition.
            OffsetOutOfRangeError: the range is not in the log.
        """

    @abstractmethod
    def offset_of_max_timestamp(self, topic: str, partition: int) -> OffsetAndTimestamp | None:
        """The record with the largest time, the first of several by offset; None: no record has a time.

        As Kafka answers a ListOffsets request for -3 (KIP-734). The marker of a transaction counts as a record there.
        UnknownTopicError.
        """

    @abstractmethod
    def watch(self) -> PartitionWatch:
        """Waits for new records."""

    @abstractmethod
    def events(self) -> PartitionEvents | None:
        """Reports which partitions change; None where the OS cannot, as other machines may change them."""
