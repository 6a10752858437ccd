"""The coordinators of a node: of the groups and transactions whose partitions of Kafka's own topics it leads."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import Final

from pyspark_log.errors import PylogError, UnknownTopicError
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.server.answers.errors import code_of
from pyspark_log.server.answers.refusal import RefusedError
from pyspark_log.server.cluster.image import NO_LEADER
from pyspark_log.server.coordinator import Topic
from pyspark_log.server.groups import Groups
from pyspark_log.server.member import Parts
from pyspark_log.server.network import Wait
from pyspark_log.server.node.gate import Gate
from pyspark_log.server.node.node import Node
from pyspark_log.server.node.peers import Peers
from pyspark_log.server.state.appends import PartitionKey
from pyspark_log.server.transactions import Transactions
from pyspark_log.storage.catalog import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from pyspark_log.storage.groups.log.records import partition_for
from pyspark_log.storage.record.end_txn_marker import EndTxnMarker
from pyspark_log.types import TopicPartition

log = logging.getLogger(__name__)

# How long all replicas in sync have for what a coordinator has written, in seconds (Kafka's offsets.commit.timeout.ms).
_PATIENCE: Final = 5.0
# How often a log is looked at that is not whole yet, in seconds.
_LOOK: Final = 0.05


class Coordinators:
    """Loads what a node begins to coordinate, and gives up what it coordinates no more. All calls come from the loop.

    Attributes:
        leaders: what the node leads.
        groups, transactions: those that it coordinates.
        gate: what may be appended in transactions.
    """

    def __init__(self, parts: Parts, node: Node) -> None:
        """Coordinates nothing yet; `parts`: of the server."""
        loop, workers, logs = self._loop, self._workers, self._logs = parts.loop, parts.workers, parts.logs
        self._appends, self._node, self.leaders = parts.appends, node, node.leaders
        self._peers = Peers(loop, node.connect)
        self.gate = Gate(self, self._peers)
        self._epochs: dict[TopicPartition, int] = {}
        self._ready = set[TopicPartition]()
        self.groups = Groups(loop, workers, logs, parts.settings, self)
        self.transactions = Transactions(loop, workers, logs, parts.producer_ids.next, sync=parts.sync, cluster=self)
        self.transactions.watch()

    def close(self) -> None:
        """Closes the connections to other brokers."""
        self._peers.close()

    # ---- which are coordinated here

    def of_group(self, group: str) -> ErrorCode:
        """Whether a group is coordinated here; else what its clients are answered."""
        return self._of(OFFSETS_TOPIC, group)

    def has_group(self, group: str) -> bool:
        """Whether a group is coordinated here, and loaded."""
        return self.of_group(group) == ErrorCode.NONE

    def of_transaction(self, transactional_id: str) -> ErrorCode:
        """The same for a transactional id."""
        return self._of(TRANSACTIONS_TOPIC, transactional_id)

    def _of(self, topic: str, name: str) -> ErrorCode:
        at = self._place_of(topic, name)
        if at is None or self.leaders.epoch(at) is None:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.NONE if at in self._ready else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def _place_of(self, topic: str, name: str) -> TopicPartition | None:
        described = self._node.image.topic(topic)
        return None if described is None else TopicPartition(topic, partition_for(name, len(described.partitions)))

    def place_of(self, group: str) -> TopicPartition:
        """The partition that has a group's records. UnknownTopicError: there is none yet."""
        at = self._place_of(OFFSETS_TOPIC, group)
        if at is None:
            raise UnknownTopicError(f"the cluster has no topic {OFFSETS_TOPIC} yet")
        return at

    def coordinator_of(self, transactional_id: str) -> int | None:
        """The broker that coordinates a transactional id."""
        at = self._place_of(TRANSACTIONS_TOPIC, transactional_id)
        return None if at is None else self.leader_of(at)

    def leader_of(self, at: TopicPartition) -> int | None:
        """The broker that leads a partition."""
        topic = self._node.image.topic(at.topic)
        partition = None if topic is None else topic.partitions.get(at.partition)
        return None if partition is None or partition.leader == NO_LEADER else partition.leader

    def changed(self, at: TopicPartition) -> None:
        """Takes that a partition may be led since now, or no more."""
        if at.topic not in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
            return
        epoch = self.leaders.epoch(at)
        if self._epochs.get(at) == epoch:
            return
        if self._epochs.pop(at, None) is not None:
            self._ready.discard(at)
            self._give_up(at)
        if epoch is not None:
            self._epochs[at] = epoch
            self._loop.start(self._load(at, epoch))

    def _names_in(self, at: TopicPartition, names: Iterable[str]) -> list[str]:
        return [name for name in names if self._place_of(at.topic, name) == at]

    def _give_up(self, at: TopicPartition) -> None:
        if at.topic == OFFSETS_TOPIC:
            self.groups.give_up(self._names_in(at, self.groups.names()))
        else:
            self.transactions.give_up(self._names_in(at, self.transactions.names()))

    async def _load(self, at: TopicPartition, epoch: int) -> None:
        """Takes in what the log has, once it is known that all of it counts."""
        while self._epochs.get(at) == epoch:
            try:
                view = await self._workers.run(partial(self._logs.topic(at.topic).view, at.partition, may_wait=True))
                if self.leaders.is_behind(at, view.high_watermark):
                    await self._pause(_LOOK)
                    continue
                if at.topic == OFFSETS_TOPIC:
                    members = await self._workers.run(self._logs.groups.members, [at.partition])
                    if self._epochs.get(at) == epoch:
                        self.groups.take_over(*members)
                else:
                    transactions = await self._workers.run(self.transactions.log.load, [at.partition])
                    if self._epochs.get(at) == epoch:
                        self.transactions.take_over(transactions)
            except (PylogError, OSError) as error:
                log.warning("%s: cannot load what it coordinates, trying again: %s", at, error)
                await self._pause(_PATIENCE)
                continue
            if self._epochs.get(at) == epoch:
                self._ready.add(at)
                log.info("%s: coordinator in leader epoch %d", at, epoch)
            return

    def topics(self, _fresh: bool, /) -> dict[str, Topic]:
        """The topics, as groups see them."""
        return {topic.name: Topic(topic.id, len(topic.partitions)) for topic in self._node.image.topics.values()}

    async def _pause(self, seconds: float) -> None:
        wait: Wait[None] = Wait()
        self._loop.call_later(seconds, wait.finish, None)
        await wait

    # ---- what is written

    async def replicated(self, at: TopicPartition, epoch: int) -> ErrorCode:
        """Waits until all replicas in sync have what was appended to a partition so far, in a leader epoch."""
        topic = self._logs.topic(at.topic)
        offset = topic.view(at.partition, may_wait=True).next_offset
        self.leaders.appended(at)
        error: ErrorCode | None = None

        def is_done() -> bool:
            nonlocal error
            error = self.leaders.is_replicated(at, epoch, offset)
            return error is not None

        key = PartitionKey(topic.topic_id, at.partition)
        await self._appends.until([key], is_done, self._loop.time() + _PATIENCE)
        return ErrorCode.REQUEST_TIMED_OUT if error is None else error

    async def _coordinator_wrote(self, at: TopicPartition | None) -> ErrorCode:
        """The same for what a coordinator has written; the error as its clients understand it."""
        epoch = None if at is None else self.leaders.epoch(at)
        if at is None or epoch is None:
            return ErrorCode.NOT_COORDINATOR
        error = await self.replicated(at, epoch)
        if error == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.COORDINATOR_NOT_AVAILABLE if error else ErrorCode.NONE

    async def written(self, transactional_id: str) -> ErrorCode:
        """Waits until all replicas in sync have what was written of a transactional id."""
        return await self._coordinator_wrote(self._place_of(TRANSACTIONS_TOPIC, transactional_id))

    def groups_written(self, groups: Iterable[str]) -> Wait[Exception | None]:
        """The same for groups; the wait gives why not."""
        return self._loop.start(self._groups_written({self._place_of(OFFSETS_TOPIC, group) for group in groups}))

    async def _groups_written(self, places: Iterable[TopicPartition | None]) -> Exception | None:
        for at in places:
            if error := await self._coordinator_wrote(at):
                return RefusedError(error, f"{at} is not written by all replicas in sync")
        return None

    async def mark(self, at: TopicPartition, producer_id: int, epoch: int, marker: EndTxnMarker) -> bool:
        """Writes a marker of a transaction that is coordinated here; whether it is written, or needs not be."""
        topic = self._node.image.topic(at.topic)
        if topic is None or at.partition not in topic.partitions:
            log.info("%s is gone, with the transaction of producer %d there", at, producer_id)
            return True
        error = await self.gate.mark(at, producer_id, epoch, marker)
        if error:
            log.info("%s: the marker of producer %d is not written: %s", at, producer_id, error.name)
        return error in (ErrorCode.NONE, ErrorCode.TRANSACTION_COORDINATOR_FENCED)

    async def append_marker(self, at: TopicPartition, producer_id: int, epoch: int, marker: EndTxnMarker) -> ErrorCode:
        """Appends a marker to a partition that is led here."""
        try:
            await self._workers.run(lambda: self.transactions.log.end(at, producer_id, epoch, marker, sync=False))
        except (PylogError, OSError) as failure:
            return code_of(failure)
        return ErrorCode.NONE
