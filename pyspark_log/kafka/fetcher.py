"""Fetches record batches from one broker, as they are stored.

A consumer gets those below the high watermark, a replica all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from pyspark_log.kafka import messages
from pyspark_log.kafka.connection import Connection
from pyspark_log.kafka.error_codes import name_of
from pyspark_log.kafka.errors import ClusterError
from pyspark_log.types import EARLIEST, LATEST, TopicPartition

# The first version of Fetch in which a leader compares the epoch of a follower's last batch with its own log.
_WITH_EPOCHS: Final = 12
# The first version that names topics by their ids only.
_BY_ID: Final = 13
# The first version that has the epoch of a follower's registration.
_WITH_REPLICA_EPOCH: Final = 15
#: In bytes: of one answer, and of one partition in it.
MAX_BYTES: Final = 32 * 1024 * 1024
PARTITION_BYTES: Final = 8 * 1024 * 1024
_FULL_FETCH = -1  # an epoch of a session: no session


class Replica(NamedTuple):
    """A follower: the id of its node, and the epoch of the node's registration with the controllers."""

    node: int
    epoch: int


_CONSUMER: Final = Replica(-1, -1)


class Position(NamedTuple):
    """Where a follower of a partition is.

    Attributes:
        topic_id: of zeros, where the cluster has none.
        leader_epoch: which the broker leads with; -1: not known.
        offset: of the next record.
        last_epoch: the leader epoch of the batch before it; -1: there is none.
        log_start: of the follower.
    """

    topic_id: bytes
    leader_epoch: int
    offset: int
    last_epoch: int
    log_start: int = 0


class FilePlace(NamedTuple):
    """Where in the file of a segment batches begin: its path, the segment's base offset, and the byte."""

    path: str
    base_offset: int
    position: int


class Fetched(NamedTuple):
    """What a broker has answered for a partition.

    Attributes:
        at: which one.
        position: what was asked for.
        error_code: 0: none.
        high_watermark, log_start: the leader's.
        diverging: an epoch and where it ends in the leader's log, if that has other records before the position.
        records: batches, of which the last may be incomplete.
        place: where they are, if they come from a file.
        error: why a file cannot be read.
        lost: what a log has lost at its end, by the files beside it; "": nothing that they show.
    """

    at: TopicPartition
    position: Position
    error_code: int
    high_watermark: int
    log_start: int
    diverging: tuple[int, int] | None
    records: memoryview
    place: FilePlace | None = None
    error: Exception | None = None
    lost: str = ""


class PartitionError(Exception):
    """A broker answers for one partition with an error.

    Attributes:
        code: the error's.
    """

    def __init__(self, at: TopicPartition, code: int) -> None:
        """`at`: the partition."""
        super().__init__(f"{at}: its leader answers {name_of(code)}")
        self.code = code


class Fetcher:
    """Fetches through a connection. Not thread-safe."""

    def __init__(
        self, connection: Connection, *, max_wait_ms: int = 500, max_bytes: int = MAX_BYTES,
        partition_bytes: int = PARTITION_BYTES, replica: Callable[[], Replica] | None = None,
    ) -> None:  # fmt: skip
        """
        Args:
            connection: to the leader of the partitions.
            max_wait_ms: how long the broker waits for records; a partition that moves to it waits as long.
            max_bytes: of one answer; a larger batch comes all the same.
            partition_bytes: the same for one partition.
            replica: as which one it fetches; None: as a consumer.

        Raises:
            ClusterError: the broker is older than Kafka 2.7, which was the first to compare leader epochs in a fetch.
        """
        self._connection, self._version = connection, connection.version(messages.FetchRequest)
        if self._version < _WITH_EPOCHS:
            raise ClusterError(f"{connection.host}:{connection.port} is older than Kafka 2.7, which is needed")
        self._wait, self._most, self._partition_most = max_wait_ms, max_bytes, partition_bytes
        self._replica = replica
        self._asked: Mapping[TopicPartition, Position] = {}

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()

    def interrupt(self) -> None:
        """Ends what another thread waits for: it gets an OSError."""
        self._connection.interrupt()

    def send(self, wanted: Mapping[TopicPartition, Position]) -> None:
        """Asks for the next batches of partitions; the first ones are answered first, where not all fit. OSError."""
        topic, partition = messages.FetchRequest.FetchTopic, messages.FetchRequest.FetchPartition
        by_topic = dict[tuple[str, bytes], list[messages.FetchRequest.FetchPartition]]()
        for at, one in wanted.items():
            by_topic.setdefault((at.topic, one.topic_id), []).append(
                partition(
                    at.partition,
                    current_leader_epoch=one.leader_epoch,
                    fetch_offset=one.offset,
                    last_fetched_epoch=one.last_epoch,
                    log_start_offset=one.log_start if self._replica is not None else -1,
                    partition_max_bytes=self._partition_most,
                )
            )
        version = self._version if all(any(topic_id) for _, topic_id in by_topic) else min(self._version, _BY_ID - 1)
        replica = _CONSUMER if self._replica is None else self._replica()
        is_old = version < _WITH_REPLICA_EPOCH
        request = messages.FetchRequest(
            replica_id=replica.node if is_old else -1,
            replica_state=messages.FetchRequest.ReplicaState(*(_CONSUMER if is_old else replica)),
            max_wait_ms=self._wait,
            min_bytes=1,
            max_bytes=self._most,
            session_epoch=_FULL_FETCH,
            topics=[topic(name, topic_id, given) for (name, topic_id), given in by_topic.items()],
        )
        self._asked = wanted
        self._connection.send(request, version)

    def ends(self, wanted: Sequence[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """The log start and the log end of partitions, in the leader's log; those that it does not lead are missing.

        Raises as `receive`; no answer to `send` may be left.
        """
        earliest, latest = self._offsets(wanted, EARLIEST), self._offsets(wanted, LATEST)
        return {at: (earliest[at], latest[at]) for at in earliest.keys() & latest.keys()}

    def end_of_epoch(self, at: TopicPartition, leader_epoch: int, epoch: int) -> tuple[int, int]:
        """An epoch at or before `epoch`, and where it ends in the leader's log; -1 and -1: not known (KIP-101).

        Raises:
            PartitionError: the broker does not lead it with `leader_epoch`, or may not be asked.
            OSError, MessageError, ClusterError: as `receive`; no answer to `send` may be left.
        """
        request = messages.OffsetForLeaderEpochRequest
        part = request.OffsetForLeaderPartition(at.partition, leader_epoch, epoch)
        replica = _CONSUMER if self._replica is None else self._replica()
        response: messages.OffsetForLeaderEpochResponse = self._connection.ask(
            request(replica.node, [request.OffsetForLeaderTopic(at.topic, [part])])
        )
        for topic in response.topics:
            for one in topic.partitions:
                if TopicPartition(topic.topic, one.partition) == at:
                    if one.error_code:
                        raise PartitionError(at, one.error_code)
                    return one.leader_epoch, one.end_offset
        raise ClusterError(f"{self._connection.host}:{self._connection.port} does not answer for {at}")

    def _offsets(self, wanted: Sequence[TopicPartition], time: int) -> dict[TopicPartition, int]:
        request, replica = messages.ListOffsetsRequest, _CONSUMER if self._replica is None else self._replica()
        topics = [
            request.ListOffsetsTopic(
                name, [request.ListOffsetsPartition(at.partition, -1, time) for at in wanted if at.topic == name]
            )
            for name in sorted({at.topic for at in wanted})
        ]
        return offsets_in(self._connection.ask(request(replica.node, 0, topics)))

    def receive(self) -> Iterator[Fetched]:
        """The answer to the last `send`. OSError: also if the broker refuses the request; MessageError."""
        asked = self._asked
        names = {one.topic_id: at.topic for at, one in asked.items()}
        response = self._connection.receive()
        if response.error_code:
            error = name_of(response.error_code)
            raise ConnectionAbortedError(f"{self._connection.host}:{self._connection.port} answers {error}")
        for topic in response.responses:
            for one in topic.partitions:
                at = TopicPartition(topic.topic or names.get(bytes(topic.topic_id), ""), one.partition_index)
                if at in asked:
                    yield _fetched(at, asked[at], one)


def _fetched(at: TopicPartition, position: Position, one: messages.FetchResponse.PartitionData) -> Fetched:
    diverging = one.diverging_epoch
    return Fetched(
        at,
        position,
        one.error_code,
        one.high_watermark,
        one.log_start_offset,
        None if diverging.end_offset < 0 else (diverging.epoch, diverging.end_offset),
        memoryview(one.records if one.records is not None else b""),  # type: ignore[arg-type]  # no FileRange is read
    )


def offsets_in(response: messages.ListOffsetsResponse) -> dict[TopicPartition, int]:
    """The offsets that an answer has, but for errors."""
    return {
        TopicPartition(topic.name, one.partition_index): one.offset
        for topic in response.topics
        for one in topic.partitions
        if not one.error_code
    }


def rotated(wanted: Sequence[TopicPartition], by: int) -> Sequence[TopicPartition]:
    """The same, from another one on, so that each is the first in its turn."""
    start = by % len(wanted) if wanted else 0
    return [*wanted[start:], *wanted[:start]]
