"""A cluster as the handlers of one of its nodes see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.server.appends import Appends, PartitionKey
from pyspark_log.server.cluster import Image
from pyspark_log.server.cluster.features import SUPPORTED
from pyspark_log.server.cluster_view import Features, LogEnd
from pyspark_log.server.node.coordinators import Coordinators
from pyspark_log.server.node.node import Node
from pyspark_log.storage.folder_store import FolderStore
from pyspark_log.types import TopicPartition

# Kafka's numbers of the states of a broker: it is fenced, or serves.
_STARTING, _RUNNING = 1, 3


class NodeView:
    """See ClusterView. What only nodes answer uses `node` and `coordinators` as well.

    Attributes:
        node: the node that the server is.
        coordinators: what it coordinates.
    """

    def __init__(self, node: Node, coordinators: Coordinators, store: FolderStore, appends: Appends) -> None:
        """`store`, `appends`: of the server."""
        self.node, self.coordinators, self._leaders = node, coordinators, node.leaders
        self._store, self._appends = store, appends

    @property
    def image(self) -> Image:
        """The newest image of the cluster."""
        return self.node.image

    def features(self) -> Features:
        """As far as the image goes."""
        return Features(SUPPORTED, self.image.features, self.image.position.offset)

    def has_partition(self, at: TopicPartition) -> bool:
        """Whether the image has it."""
        topic = self.image.topic(at.topic)
        return topic is not None and at.partition in topic.partitions

    async def name_of(self, topic_id: bytes) -> str | None:
        """The image's."""
        topic = self.image.topics.get(bytes(topic_id))
        return None if topic is None else topic.name

    async def place_of(self, group: str) -> TopicPartition:
        """UnknownTopicError: there is none yet."""
        return self.coordinators.place_of(group)

    def leader_epoch(self, at: TopicPartition) -> int | None:
        """See Leaders.epoch."""
        return self._leaders.epoch(at)

    def refusal(self, at: TopicPartition, acks: int) -> ErrorCode:
        """See Leaders.refusal."""
        return self._leaders.refusal(at, acks)

    def is_behind(self, at: TopicPartition, high_watermark: int) -> bool:
        """See Leaders.is_behind."""
        return self._leaders.is_behind(at, high_watermark)

    async def replicate(
        self, ends: Mapping[TopicPartition, LogEnd], deadline: float | None
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Wakes when the high watermarks move."""
        for at in ends:
            self._leaders.appended(at)
        if deadline is None or not ends:
            return {}
        logs, waiting, errors = self._store.logs, dict(ends), dict[TopicPartition, ErrorCode]()
        keys = [PartitionKey(logs.topic(at.topic).description.topic_id, at.partition) for at in ends]

        def is_done() -> bool:
            for at, end in list(waiting.items()):
                error = self._leaders.is_replicated(at, end.leader_epoch, end.offset)
                if error is not None:
                    del waiting[at]
                if error:
                    errors[at] = error
            return not waiting

        await self._appends.until(keys, is_done, deadline)
        return errors | dict.fromkeys(waiting, ErrorCode.REQUEST_TIMED_OUT)

    def has_deleted(self, at: TopicPartition, log_start: int) -> bool:
        """Replicas say so when they fetch."""
        return self._leaders.low_watermark(at) >= log_start

    def is_follower(self, replica: int) -> bool:
        """Clients name a negative one."""
        return replica >= 0

    def gauges(self) -> Sequence[int]:
        """Of what is led, and the state of the broker."""
        return (*self._leaders.counts(), _RUNNING if self.node.is_unfenced else _STARTING)
