"""What handlers of requests ask of the cluster: the one that a server is a node of, or the one that it is alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from pyspark_log.errors import InvalidTopicError, UnknownTopicError
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.server.cluster.image import FeatureRange
from pyspark_log.server.network import Workers
from pyspark_log.server.topic_ids import TopicIds
from pyspark_log.storage.folder_store import FolderStore
from pyspark_log.types import TopicPartition

#: A leader epoch that means nothing.
NO_EPOCH = -1
# The second version of the protocol of transactions (KIP-890), which clients use if the server says so.
_TRANSACTIONS, _LEVEL = "transaction.version", 2


class Features(NamedTuple):
    """The features that a server knows, the levels that are finalized, and since which offset of the metadata."""

    supported: Mapping[str, FeatureRange]
    finalized: Mapping[str, int]
    offset: int


class LogEnd(NamedTuple):
    """Where a log ends with an append, and the leader epoch before it (see `leader_epoch`)."""

    leader_epoch: int | None
    offset: int


class ClusterView(Protocol):
    """A cluster, as the handlers of one of its servers see it. Those that wait, await only `Wait`s."""

    # ---- what there is

    def features(self) -> Features:
        """The features of the cluster."""

    def has_partition(self, at: TopicPartition) -> bool:
        """Whether there is a partition. PylogError, OSError: that cannot be found out."""

    async def name_of(self, topic_id: bytes) -> str | None:
        """The topic of an id; None: there is none."""

    async def place_of(self, group: str) -> TopicPartition:
        """The partition that has a group's records. PylogError, OSError."""

    # ---- what is led here

    def leader_epoch(self, at: TopicPartition) -> int | None:
        """The leader epoch in which the server leads a partition, NO_EPOCH if no other could; None: it does not."""

    def refusal(self, at: TopicPartition, acks: int) -> ErrorCode:
        """Why a producer may not append to a partition with such acks; NONE: it may."""

    def is_behind(self, at: TopicPartition, high_watermark: int) -> bool:
        """Whether the high watermark may be lower than one that consumers have seen of an earlier leader (KIP-207)."""

    async def replicate(
        self, ends: Mapping[TopicPartition, LogEnd], deadline: float | None
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Has the replicas get what was appended to partitions.

        Args:
            ends: where their logs end with it.
            deadline: until when to wait for all replicas in sync, by the loop's clock; None: there is no wait.

        Returns:
            The errors of those that not all replicas have; REQUEST_TIMED_OUT: not yet.
        """

    def has_deleted(self, at: TopicPartition, log_start: int) -> bool:
        """Whether all replicas that are alive have deleted the records before an offset. PylogError, OSError."""

    # ---- the other servers

    def is_follower(self, replica: int) -> bool:
        """Whether a fetch that names a replica is another server's, and not that of a client."""

    def gauges(self) -> Sequence[int]:
        """The values of the metrics that only nodes have (metrics.OF_NODES); none: it is no node."""


class Alone:
    """A server that is a cluster of its own: it has all topics, and leads each partition."""

    def __init__(self, store: FolderStore, workers: Workers, topics: TopicIds) -> None:
        """Of a store; `workers`: look through it; `topics`: those of the store by their ids."""
        self._store, self._workers, self._topics = store, workers, topics
        self._features = Features({_TRANSACTIONS: FeatureRange(0, _LEVEL)}, {_TRANSACTIONS: _LEVEL}, 0)

    def features(self) -> Features:
        """Those of this version."""
        return self._features

    def has_partition(self, at: TopicPartition) -> bool:
        """Whether the store has it."""
        try:
            self._store.logs.topic(at.topic).check(at.partition)
        except (UnknownTopicError, InvalidTopicError):
            return False
        return True

    async def name_of(self, topic_id: bytes) -> str | None:
        """The store's."""
        return self._topics.known_name(topic_id) or await self._workers.run(self._topics.name, topic_id)

    async def place_of(self, group: str) -> TopicPartition:
        """Where the store has them."""
        return await self._workers.run(self._store.groups.log.partition_of, group)

    def leader_epoch(self, _at: TopicPartition) -> int | None:
        """NO_EPOCH, of each partition."""
        return NO_EPOCH

    def refusal(self, _at: TopicPartition, _acks: int) -> ErrorCode:
        """None is refused."""
        return ErrorCode.NONE

    def is_behind(self, _at: TopicPartition, _high_watermark: int) -> bool:
        """Never: there was no other leader."""
        return False

    async def replicate(
        self, _ends: Mapping[TopicPartition, LogEnd], _deadline: float | None
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Waits for nothing: there are no other replicas."""
        return {}

    def has_deleted(self, _at: TopicPartition, _log_start: int) -> bool:
        """Always, likewise."""
        return True

    def is_follower(self, _replica: int) -> bool:
        """Never: a client that calls itself a broker is a client."""
        return False

    def gauges(self) -> Sequence[int]:
        """None."""
        return ()
