"""A server as a member of a cluster: here one that is alone; node/view.py has a node."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pyspark_log.errors import InvalidTopicError, UnknownTopicError
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.server.cluster.image import FeatureRange
from pyspark_log.server.cluster_view import NO_EPOCH, ClusterView, Features, LogEnd
from pyspark_log.server.coordinator import Settings, Topic
from pyspark_log.server.groups import Groups
from pyspark_log.server.network import Loop, Wait, Workers
from pyspark_log.server.served import ServedLogs
from pyspark_log.server.state.appends import Appends
from pyspark_log.server.state.producer_ids import ProducerIds
from pyspark_log.server.state.topic_ids import TopicIds
from pyspark_log.server.transactions import Admission, Coordinator, Transactions
from pyspark_log.storage.catalog import PUBLISH_TOPIC
from pyspark_log.storage.catalog.topics import id_bytes
from pyspark_log.storage.store import Store
from pyspark_log.types import TopicPartition

if TYPE_CHECKING:
    from pyspark_log.server.broker import Broker

# The second version of the protocol of transactions (KIP-890), which clients use if the server says so.
_TRANSACTIONS, _LEVEL = "transaction.version", 2
_FEATURES = Features({_TRANSACTIONS: FeatureRange(0, _LEVEL)}, {_TRANSACTIONS: _LEVEL}, 0)


@dataclass(frozen=True)
class Parts:
    """What a member has of its server: parts, as of Broker, and settings.

    Attributes:
        settings: the times of groups.
        sync: whether decisions about transactions survive a power loss before they are answered.
        address: host and port at which clients find the server.
        serve: accepts clients from then on; for the loop's thread.
        fail: ends the server with an error; for any thread.
        broker: the server, as its handlers see it, once it is made.
    """

    loop: Loop
    workers: Workers
    store: Store
    logs: ServedLogs
    appends: Appends
    topics: TopicIds
    producer_ids: ProducerIds
    settings: Settings
    sync: bool
    address: tuple[str, int]
    serve: Callable[[], object]
    fail: Callable[[BaseException], object]
    broker: Callable[[], Broker]


class Member(ClusterView, Protocol):
    """What a server does as a member of a cluster, from its beginning to its end.

    Attributes:
        groups, transactions: what it coordinates.
        gate: says what producers may append in transactions.
    """

    groups: Groups
    transactions: Coordinator
    gate: Admission

    def load(self) -> None:
        """Takes in what the store has, before any request."""

    def start(self) -> None:
        """Accepts clients, as soon as the cluster lets it."""

    def leave(self, stop: Callable[[], object]) -> None:
        """Has `stop` called in the loop's thread once no other member needs this one."""

    def stop(self) -> None:
        """Ends what it does in the cluster, when no connection is left."""

    def close(self) -> None:
        """Ends its connections to others."""

    def note_end(self) -> None:
        """Notes that it has ended in order, once nothing changes its logs any more. PylogError, OSError."""


def alone(parts: Parts) -> Member:
    """A cluster of one server: it has all topics, leads each partition, and coordinates all groups and transactions."""
    return Alone(parts)


class Alone:
    """See `alone`; the contract is Member's."""

    def __init__(self, parts: Parts) -> None:
        """`parts`: of the server."""
        self._parts, logs = parts, parts.logs
        self.groups = Groups(parts.loop, parts.workers, logs, parts.settings, self)
        self._transactions = Transactions(parts.loop, parts.workers, logs, parts.producer_ids.next, sync=parts.sync)
        self.transactions: Coordinator = self._transactions
        self.gate: Admission = self._transactions

    def features(self) -> Features:
        return _FEATURES

    def has_partition(self, at: TopicPartition) -> bool:
        try:
            self._parts.logs.topic(at.topic).check(at.partition)
        except (UnknownTopicError, InvalidTopicError):
            return False
        return True

    async def name_of(self, topic_id: bytes) -> str | None:
        topics = self._parts.topics
        return topics.known_name(topic_id) or await self._parts.workers.run(topics.name, topic_id)

    async def place_of(self, group: str) -> TopicPartition:
        return await self._parts.workers.run(self._parts.logs.groups.partition_of, group)

    def leader_epoch(self, _at: TopicPartition) -> int | None:
        return NO_EPOCH

    def refusal(self, _at: TopicPartition, _acks: int) -> ErrorCode:
        return ErrorCode.NONE

    def is_behind(self, _at: TopicPartition, _high_watermark: int) -> bool:
        return False

    async def replicate(
        self, _ends: Sequence[tuple[TopicPartition, LogEnd]], _deadline: float | None
    ) -> Mapping[TopicPartition, ErrorCode]:
        return {}

    def has_deleted(self, _at: TopicPartition, _log_start: int) -> bool:
        return True

    def is_follower(self, _replica: int) -> bool:
        return False

    def gauges(self) -> Sequence[int]:
        return ()

    # ---- what groups ask

    def has_group(self, _group: str) -> bool:
        return True

    def topics(self, fresh: bool, /) -> dict[str, Topic]:
        return {
            topic.name: Topic(id_bytes(topic.topic_id), topic.partitions)
            for topic in self._parts.logs.topics(fresh=fresh)
            if topic.name != PUBLISH_TOPIC
        }

    def groups_written(self, _groups: Collection[str]) -> Wait[Exception | None]:
        written: Wait[Exception | None] = Wait()
        written.finish(None)
        return written

    # ---- from the beginning to the end

    def load(self) -> None:
        report_hidden = self._parts.logs.begin_alone()
        if report_hidden is not None:
            self._parts.workers.run(report_hidden)
        self.groups.load()
        self._transactions.load()

    def start(self) -> None:
        self._parts.serve()

    def leave(self, stop: Callable[[], object]) -> None:
        stop()

    def stop(self) -> None:
        """There is nothing to end."""

    close = note_end = stop
