"""Transactions of a producer at a cluster (KIP-98), by blocking calls: batches to the leaders, offsets, and the end."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pyspark_log.kafka import messages
from pyspark_log.kafka.cluster import GROUP, TRANSACTION, Cluster
from pyspark_log.kafka.connection import Connection
from pyspark_log.kafka.error_codes import ErrorCode, name_of
from pyspark_log.kafka.errors import ClusterError, LoginError, MessageError, ProducerFencedError
from pyspark_log.kafka.schemas import Struct, message_of
from pyspark_log.types import TopicPartition

log = logging.getLogger(__name__)

#: How long nothing may succeed until a transaction fails, in seconds.
PATIENCE: Final = 60.0
# For how long a transaction may be open, in ms: the most that Kafka's brokers allow without another setting.
_TIMEOUT_MS: Final = 900_000
_PRODUCE_TIMEOUT_MS: Final = 30_000
_PAUSE: Final = 0.1
_ALL: Final = -1
# Versions of the first protocol of transactions: topics by name, and each partition is added by a request.
_NEWEST: Final[Mapping[type[Struct], int]] = {
    messages.AddPartitionsToTxnRequest: 3,
    messages.AddOffsetsToTxnRequest: 4,
    messages.TxnOffsetCommitRequest: 4,
    messages.EndTxnRequest: 4,
    messages.ProduceRequest: 11,
    messages.OffsetFetchRequest: 9,
}
_FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
# Errors that pass.
_PASSING: Final = frozenset({
    ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_SERVER_ERROR,
})  # fmt: skip

#: A record batch, and how many records it has.
Batch = tuple[bytearray, int]


class Transactions:
    """A producer with a transactional id, one transaction at a time. Not thread-safe.

    All calls raise OSError or ClusterError if nothing has succeeded for a while, ProducerFencedError if another
    producer has the transactional id since, and ClusterError for what cannot succeed.

    Attributes:
        producer_id, epoch: what batches must have.
    """

    def __init__(self, cluster: Cluster, transactional_id: str) -> None:
        """Fences earlier producers of the id, and aborts what they have left open."""
        self._cluster, self._id = cluster, transactional_id
        self._coordinators: dict[tuple[int, str], int] = {}
        self._sequences: dict[TopicPartition, int] = {}
        given = self._coordinated(TRANSACTION, transactional_id, messages.InitProducerIdRequest(
            transactional_id, _TIMEOUT_MS, -1, -1,
        ))  # fmt: skip
        self.producer_id, self.epoch = given.producer_id, given.producer_epoch

    # ---- what a transaction has

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """The committed offsets of a group, which no open transaction may change."""
        of = messages.OffsetFetchRequest
        request = of(groups=[of.OffsetFetchRequestGroup(group, topics=None)], require_stable=True)
        response = self._coordinated(GROUP, group, request)
        return {
            TopicPartition(topic.name, one.partition_index): one.committed_offset
            for found in response.groups
            for topic in found.topics
            for one in topic.partitions
            if one.committed_offset >= 0
        }

    def send(self, batches: Mapping[TopicPartition, Iterator[Batch]]) -> None:
        """Adds partitions, and sends their batches, of each partition in order; returns when all replicas have them.

        A batch has this producer's id and epoch, and `sequence` of its partition as its first sequence number.
        """
        if not batches:
            return
        topics = dict[str, list[int]]()
        for at in batches:
            topics.setdefault(at.topic, []).append(at.partition)
        of = messages.AddPartitionsToTxnRequest
        added = [of.AddPartitionsToTxnTopic(*one) for one in topics.items()]
        self._coordinated(TRANSACTION, self._id, of((), self._id, self.producer_id, self.epoch, added))
        next_of = {at: one for at, found in batches.items() if (one := next(found, None)) is not None}
        leaders, since = self._leaders(topics), time.monotonic()
        while next_of:
            sent = self._send_to_leaders(next_of, leaders)
            for at in sent:
                self._sequences[at] = (self._sequences.get(at, 0) + next_of[at][1]) % (1 << 31)
                following = next(batches[at], None)
                if following is None:
                    del next_of[at]
                else:
                    next_of[at] = following
            if len(sent) < len(leaders.keys() & next_of.keys()) or not sent:
                if not sent and time.monotonic() - since > PATIENCE:
                    raise ClusterError(f"the leaders of {', '.join(map(str, next_of))} take no records")
                time.sleep(_PAUSE)
                leaders = self._leaders(topics)
            if sent:
                since = time.monotonic()

    def sequence(self, at: TopicPartition) -> int:
        """The first sequence number of the next batch of a partition."""
        return self._sequences.get(at, 0)

    def commit_offset(self, group: str, at: TopicPartition, offset: int, text: str) -> None:
        """Commits an offset of a group, with a text, as a part of the transaction."""
        offsets = messages.AddOffsetsToTxnRequest(self._id, self.producer_id, self.epoch, group)
        self._coordinated(TRANSACTION, self._id, offsets)
        of = messages.TxnOffsetCommitRequest
        partition = of.TxnOffsetCommitRequestPartition(at.partition, offset, -1, text)
        topics = [of.TxnOffsetCommitRequestTopic(at.topic, [partition])]
        self._coordinated(GROUP, group, of(self._id, group, self.producer_id, self.epoch, topics=topics))

    def end(self, *, commit: bool) -> None:
        """Commits or aborts the transaction. After an error of a commit it is not known whether it is committed."""
        self._coordinated(TRANSACTION, self._id, messages.EndTxnRequest(self._id, self.producer_id, self.epoch, commit))

    # ---- requests

    def _leaders(self, topics: Mapping[str, object]) -> dict[TopicPartition, int]:
        try:
            found = self._cluster.topics(list(topics))
        except OSError as error:
            log.info("the leaders are not known: %s", error)
            return {}
        return {
            TopicPartition(topic.name, number): leader.node
            for topic in found
            for number, leader in enumerate(topic.leaders)
            if leader.node >= 0
        }

    def _send_to_leaders(
        self, wanted: Mapping[TopicPartition, Batch], leaders: Mapping[TopicPartition, int]
    ) -> list[TopicPartition]:
        """Sends one batch of each partition; those that were taken."""
        by_leader = dict[int, list[TopicPartition]]()
        for at in wanted:
            if at in leaders:
                by_leader.setdefault(leaders[at], []).append(at)
        of, asked, taken = messages.ProduceRequest, list[Connection](), list[TopicPartition]()
        for node, places in by_leader.items():
            topics = dict[str, list[messages.ProduceRequest.PartitionProduceData]]()
            for at in places:
                topics.setdefault(at.topic, []).append(of.PartitionProduceData(at.partition, bytes(wanted[at][0])))
            data = [of.TopicProduceData(name, bytes(16), parts) for name, parts in topics.items()]
            try:
                connection = self._cluster.connection(node)
            except OSError as error:
                log.info("broker %d does not answer: %s", node, error)
                continue
            try:
                connection.send(of(self._id, _ALL, _PRODUCE_TIMEOUT_MS, data), _version(connection, of))
                asked.append(connection)
            except OSError as error:
                log.info("broker %d does not answer: %s", node, error)
                self._cluster.forget(connection)
        for connection in asked:
            try:
                response = connection.receive()
            except (OSError, MessageError) as error:
                log.info("%s:%d does not answer: %s", connection.host, connection.port, error)
                self._cluster.forget(connection)
                continue
            for topic in response.responses:
                for one in topic.partition_responses:
                    at = TopicPartition(topic.name, one.index)
                    if one.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                        taken.append(at)
                    else:
                        self._check(one.error_code, f"{at}: {one.error_message or ''}")
        return taken

    def _check(self, code: int, what: str) -> None:
        """Raises an error that does not pass."""
        if code in _FENCED:
            raise ProducerFencedError(f"{what}: another producer has the transactional id {self._id!r} since")
        if code and code not in _PASSING:
            raise ClusterError(f"{what}: {name_of(code)}")

    def _coordinated(self, kind: int, key: str, request: Struct) -> Any:  # noqa: ANN401  (the request's response)
        """The answer of a coordinator without errors, which is looked for again as long as they pass."""
        since, what = time.monotonic(), "it does not answer"
        while True:
            try:
                response = self._ask_coordinator(kind, key, request)
                code = next(iter(message_of(response).errors_in(response)), 0)
                if not code:
                    return response
                self._check(code, f"the coordinator of {key!r}")
                what = name_of(code)
            except (OSError, MessageError) as error:
                what = str(error)
            self._coordinators.pop((kind, key), None)
            if time.monotonic() - since > PATIENCE:
                raise ClusterError(f"the coordinator of {key!r}: {what}")
            time.sleep(_PAUSE)

    def _ask_coordinator(self, kind: int, key: str, request: Struct) -> Any:  # noqa: ANN401
        node = self._coordinators.get((kind, key))
        if node is None:
            try:
                node = self._coordinators[kind, key] = self._cluster.coordinator(key, kind)
            except LoginError:
                raise
            except ClusterError as error:
                raise ConnectionRefusedError(str(error)) from error  # It may be there in a moment.
        connection = self._cluster.connection(node)
        try:
            return connection.ask(request, _version(connection, type(request)))
        except (OSError, MessageError):
            self._cluster.forget(connection)
            raise


def _version(connection: Connection, request: type[Struct]) -> int:
    return min(connection.version(request), _NEWEST.get(request, 1 << 15))
