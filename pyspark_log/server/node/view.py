"""A server as a node of a Kafka cluster: how its handlers see the cluster, and its life from beginning to end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.server.cluster import Image
from pyspark_log.server.cluster.features import SUPPORTED
from pyspark_log.server.cluster_view import Features, LogEnd
from pyspark_log.server.member import Parts
from pyspark_log.server.network import Workers
from pyspark_log.server.node.cluster_clients import ClusterClients
from pyspark_log.server.node.config import ClusterConfig
from pyspark_log.server.node.coordinators import Coordinators
from pyspark_log.server.node.node import Node
from pyspark_log.server.state.appends import PartitionKey
from pyspark_log.server.transactions import Admission, Coordinator
from pyspark_log.storage.folder_store import FolderStore
from pyspark_log.types import TopicPartition

# Threads for what may wait for the controllers of the cluster.
_ASKING = 2
# Kafka's numbers of the states of a broker: it is fenced, or serves.
_STARTING, _RUNNING = 1, 3


class NodeView:
    """A node: see Member. What only nodes answer uses `node` and `coordinators` as well.

    Attributes:
        node: the node that the server is.
        coordinators: what it coordinates.
    """

    def __init__(
        self,
        parts: Parts,
        store: FolderStore,
        node_id: int,
        config: ClusterConfig,
        protocol: str,
        clients: ClusterClients,
    ) -> None:
        """
        Args:
            parts: of the server.
            store: its store.
            node_id: its broker.id.
            config: how it is a node.
            protocol: Kafka's `security.protocol` of the server's clients.
            clients: those of the cluster.
        """
        self._parts, loop = parts, parts.loop
        self.node = Node(
            store, node_id, config, (*parts.address, protocol), clients, parts.fail,
            partial(loop.call_from_elsewhere, parts.serve), self._changed,
            partial(loop.call_from_elsewhere, parts.workers.run), Workers(loop, _ASKING),
        )  # fmt: skip
        self.coordinators, self._leaders = Coordinators(parts, self.node), self.node.leaders
        self.groups = self.coordinators.groups
        self.transactions: Coordinator = self.coordinators.transactions
        self.gate: Admission = self.coordinators.gate
        self.start, self.stop, self.note_end = self.node.start, self.node.stop, self.node.note_end
        self.close = self.coordinators.close

    def _changed(self, at: TopicPartition) -> None:
        """Wakes what waits for a partition; called by any thread."""
        loop, topic = self._parts.loop, self._parts.logs.topic(at.topic)
        key = PartitionKey(topic.topic_id, at.partition)
        loop.call_from_elsewhere(self._parts.appends.changed, key)
        loop.call_from_elsewhere(self.coordinators.changed, at)

    def load(self) -> None:
        """Nothing: the coordinators load what the node leads."""

    def leave(self, stop: Callable[[], object]) -> None:
        """Its followers and clients are served until others lead."""
        self.node.leave(partial(self._parts.loop.call_from_elsewhere, stop))

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
        self, ends: Sequence[tuple[TopicPartition, LogEnd]], deadline: float | None
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Wakes when the high watermarks move."""
        for at, _ in ends:
            self._leaders.appended(at)
        if deadline is None or not ends:
            return {}
        logs, waiting, errors = self._parts.logs, dict(ends), dict[TopicPartition, ErrorCode]()
        keys = [PartitionKey(logs.topic(at.topic).topic_id, at.partition) for at, _ in ends]

        def is_done() -> bool:
            for at, end in list(waiting.items()):
                error = self._leaders.is_replicated(at, end.leader_epoch, end.offset)
                if error is not None:
                    del waiting[at]
                if error:
                    errors[at] = error
            return not waiting

        await self._parts.appends.until(keys, is_done, deadline)
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
