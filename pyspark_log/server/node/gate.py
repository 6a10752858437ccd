"""The transactions in the partitions that a node leads: what may be appended, and markers (KIP-890)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Final

from pyspark_log.errors import PylogError
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, WriteTxnMarkersRequest
from pyspark_log.server.network import Wait
from pyspark_log.storage.record.end_txn_marker import EndTxnMarker
from pyspark_log.types import TopicPartition

if TYPE_CHECKING:
    from pyspark_log.server.node.coordinators import Coordinators
    from pyspark_log.server.node.peers import Peers

# What says that the coordinator is elsewhere, or not ready: the producer tries again.
_AGAIN: Final = frozenset({
    ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR,
})  # fmt: skip
_CODES: Final = frozenset(ErrorCode)
# From so many on, transactions whose partitions have moved away are looked for.
_LEAST_OPEN: Final = 1000


class Gate:
    """Says which batches of transactions may be appended, as their coordinators say. Its calls come from the loop."""

    def __init__(self, coordinators: Coordinators, peers: Peers) -> None:
        """`peers`: the other brokers."""
        self._coordinators, self._peers = coordinators, peers
        self._appending: Counter[int] = Counter()
        self._on_rest: dict[int, list[Wait[None]]] = {}
        # Producers that have a transaction in a partition: their epoch, and the leader epoch of this node.
        self._open: dict[tuple[TopicPartition, int], tuple[int, int | None]] = {}
        self._most_open = _LEAST_OPEN

    # ---- appends

    async def admit(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: AbstractSet[TopicPartition], *,
        adds: bool,
    ) -> Mapping[TopicPartition, ErrorCode]:  # fmt: skip
        """As Transactions.admit; until `release` no marker of the producer is appended."""
        self._appending[producer_id] += 1
        leads = self._coordinators.leaders.epoch
        joined = {at for at in partitions if self._open.get((at, producer_id)) == (epoch, leads(at))}
        errors = dict.fromkeys(joined, ErrorCode.NONE)
        if asked := {at: leads(at) for at in partitions - joined}:
            # In the meantime others may lead, whose markers are not seen here: the leader epoch from before counts.
            answers = await self._ask(transactional_id, producer_id, epoch, asked.keys(), adds=adds)
            for at, leader_epoch in asked.items():
                error = answers.get(at, ErrorCode.COORDINATOR_NOT_AVAILABLE)
                errors[at] = ErrorCode.COORDINATOR_NOT_AVAILABLE if error in _AGAIN else error
                if not error:
                    self._open[at, producer_id] = epoch, leader_epoch
            self._forget_what_moved()
        return errors

    def release(self, transactional_id: str, producer_id: int) -> None:
        """What was admitted is appended, or refused."""
        self._appending[producer_id] -= 1
        if not self._appending[producer_id]:
            del self._appending[producer_id]
            for wait in self._on_rest.pop(producer_id, ()):
                wait.finish(None)

    def _forget_what_moved(self) -> None:
        """Forgets transactions whose partitions others lead since, now and then: their markers do not come here."""
        if len(self._open) > self._most_open:
            leads = self._coordinators.leaders.epoch
            self._open = {
                (at, producer_id): epochs for (at, producer_id), epochs in self._open.items() if leads(at) == epochs[1]
            }
            self._most_open = max(_LEAST_OPEN, 2 * len(self._open))

    async def _ask(
        self, name: str, producer_id: int, epoch: int, partitions: AbstractSet[TopicPartition], *, adds: bool
    ) -> Mapping[TopicPartition, ErrorCode]:
        coordinators = self._coordinators
        if coordinators.of_transaction(name) == ErrorCode.NONE:
            return await coordinators.transactions.join(name, producer_id, epoch, frozenset(partitions), adds=adds)
        coordinator = coordinators.coordinator_of(name)
        if coordinator is None:
            return {}
        request, by_topic = AddPartitionsToTxnRequest, dict[str, list[int]]()
        for at in partitions:
            by_topic.setdefault(at.topic, []).append(at.partition)
        topics = [request.AddPartitionsToTxnTopic(*topic) for topic in by_topic.items()]
        transaction = request.AddPartitionsToTxnTransaction(name, producer_id, epoch, not adds, topics)
        try:
            response = await self._peers.ask(coordinator, request(transactions=[transaction]))
        except (OSError, PylogError):
            return {}
        assert isinstance(response, AddPartitionsToTxnResponse)
        return {
            TopicPartition(topic.name, partition.partition_index): ErrorCode(partition.partition_error_code)
            for result in response.results_by_transaction
            for topic in result.topic_results
            for partition in topic.results_by_partition
        }

    # ---- markers

    async def mark(
        self, at: TopicPartition, producer_id: int, epoch: int, marker: EndTxnMarker, *, is_client: bool = False
    ) -> ErrorCode:
        """Ends a producer's transaction in a partition, which another broker may lead; with all replicas in sync.

        Args:
            at: the partition.
            producer_id, epoch: of the producer.
            marker: how its transaction ends.
            is_client: another broker asks; the partition must be led here.
        """
        coordinators = self._coordinators
        if coordinators.leaders.epoch(at) is not None or is_client:
            return await self._mark_here(at, producer_id, epoch, marker)
        leader = coordinators.leader_of(at)
        if leader is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        request = WriteTxnMarkersRequest
        topics = [request.WritableTxnMarkerTopic(at.topic, [at.partition])]
        markers = [request.WritableTxnMarker(producer_id, epoch, marker.commit, topics, marker.coordinator_epoch)]
        try:
            response = await self._peers.ask(leader, request(markers))
        except (OSError, PylogError):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        errors = [
            part.error_code for result in response.markers for topic in result.topics for part in topic.partitions
        ]
        # Whatever else it is, the marker is asked for again.
        is_one = len(errors) == 1 and errors[0] in _CODES
        return ErrorCode(errors[0]) if is_one else ErrorCode.UNKNOWN_SERVER_ERROR

    async def _mark_here(self, at: TopicPartition, producer_id: int, epoch: int, marker: EndTxnMarker) -> ErrorCode:
        coordinators = self._coordinators
        leader_epoch = coordinators.leaders.epoch(at)
        if leader_epoch is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if coordinators.leaders.is_short(at):
            # As in Kafka: it is asked for again and again, and would be there as often.
            return ErrorCode.NOT_ENOUGH_REPLICAS
        while self._appending[producer_id]:
            rest: Wait[None] = Wait()
            self._on_rest.setdefault(producer_id, []).append(rest)
            await rest
        self._open.pop((at, producer_id), None)
        if error := await coordinators.append_marker(at, producer_id, epoch, marker):
            return error
        return await coordinators.replicated(at, leader_epoch)
