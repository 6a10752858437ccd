"""What handlers of requests ask of the cluster: the one that a server is a node of, or the one that it is alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.server.cluster.image import FeatureRange
from pyspark_log.types import TopicPartition

#: A leader epoch that means nothing.
NO_EPOCH = -1


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
        self, ends: Sequence[tuple[TopicPartition, LogEnd]], deadline: float | None
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
