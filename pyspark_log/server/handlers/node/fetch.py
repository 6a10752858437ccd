"""Fetch at a node: of followers of what is led here, and of consumers from any replica (KIP-392)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import FetchRequest, FetchResponse
from pyspark_log.server.cluster.leading import UNKNOWN, Fetched
from pyspark_log.server.handlers.call import Call
from pyspark_log.server.handlers.records import fetch as plain
from pyspark_log.server.handlers.records.leader_epochs import check_epoch
from pyspark_log.server.security.acls import CLUSTER_NAME, Operation, Resource
from pyspark_log.server.served import LogView
from pyspark_log.types import TopicPartition

if TYPE_CHECKING:
    from pyspark_log.server.node.view import NodeView

_ELSEWHERE = ErrorCode.NOT_LEADER_OR_FOLLOWER
_WITH_RACKS = 11  # the version from which on consumers say their racks (KIP-392)


async def fetch(view: NodeView, call: Call, request: FetchRequest) -> FetchResponse:
    """Answers followers of what is led here; and consumers, from any replica up to its high watermark (KIP-392)."""
    replica = plain.follower_of(request, call.version)
    epoch = request.replica_state.replica_epoch if call.version >= plain.WITH_REPLICA_STATE else UNKNOWN
    return await plain.fetch(call, request, _Replica(view, call, request, replica, epoch))


class _Replica:
    """How a fetch is answered; see plain.Replica."""

    def __init__(self, view: NodeView, call: Call, request: FetchRequest, replica: int, broker_epoch: int) -> None:
        self._call = call
        self._node, self._rack, self._id, self._broker_epoch = view.node, request.rack_id, replica, broker_epoch
        self.is_follower = view.is_follower(replica)
        self._may_ask_followers = call.version >= _WITH_RACKS

    def refusal(self, topic: str, request: FetchRequest.FetchPartition) -> FetchResponse.PartitionData | None:
        may = not self.is_follower or self._call.allows(Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME)
        if not may:
            return self._error(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        at, described = TopicPartition(topic, request.partition), self._node.image.topic(topic)
        partition = None if described is None else described.partitions.get(request.partition)
        epoch = self._node.leaders.epoch(at)
        needs_leader = self.is_follower or not self._may_ask_followers
        if partition is None or (epoch is None and (needs_leader or not self._node.has_replica(at))):
            return self._error(request, _ELSEWHERE)
        if error := check_epoch(request.current_leader_epoch, partition.leader_epoch if epoch is None else epoch):
            return self._error(request, error)
        if self.is_follower:
            # It may know of its replica before this node does.
            has_follower = self._node.leaders.has_follower(at, self._id)
            return None if has_follower else self._error(request, ErrorCode.UNKNOWN_LEADER_EPOCH)
        closest = self._node.leaders.closest(at, self._rack, request.fetch_offset) if self._rack else None
        return None if closest is None else plain.sent_elsewhere(request.partition, closest)

    def holds_back(self, topic: str, partition: int) -> bool:
        at = TopicPartition(topic, partition)
        return self.is_follower and self._node.leaders.throttle.holds_back(self._node.image, at, self._id)

    def sent(self, topic: str, partition: int, size: int) -> None:
        if self.is_follower:
            self._node.leaders.throttle.count(self._node.image, TopicPartition(topic, partition), self._id, size)

    def read(self, topic: str, request: FetchRequest.FetchPartition, log: LogView) -> ErrorCode:
        if not self.is_follower:
            return ErrorCode.NONE
        fetched = Fetched(self._id, self._broker_epoch, request.fetch_offset, request.log_start_offset)
        is_in_log = log.log_start <= request.fetch_offset <= log.next_offset
        if is_in_log and not self._node.leaders.fetched(TopicPartition(topic, request.partition), fetched, log):
            return _ELSEWHERE
        return ErrorCode.NONE

    def _error(self, request: FetchRequest.FetchPartition, error: ErrorCode) -> FetchResponse.PartitionData:
        return FetchResponse.PartitionData(request.partition, error, -1, -1, -1, records=b"")
