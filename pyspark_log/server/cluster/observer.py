"""The observer: follows the log of a cluster's metadata, and makes images of it.

It is a follower that has no vote and keeps no log. It takes only what is committed, which is below the high watermark,
drops the rest of an answer and fetches it again. So it never has to truncate, and the controllers have agreed on each
image.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pyspark_log.errors import CorruptRecordError
from pyspark_log.kafka.error_codes import ErrorCode, name_of
from pyspark_log.kafka.messages import FetchRequest, FetchResponse, FetchSnapshotRequest, FetchSnapshotResponse
from pyspark_log.kafka.schemas import Struct
from pyspark_log.server.cluster.batches import read_batches
from pyspark_log.server.cluster.errors import MetadataError
from pyspark_log.server.cluster.fold import Change, Fold
from pyspark_log.server.cluster.image import Image, Position
from pyspark_log.server.cluster.leaders import Leaders
from pyspark_log.server.cluster.requests import NO_ANSWER, Address, Attempts, Send

#: The log of a cluster's metadata has one partition, 0.
METADATA_TOPIC, METADATA_TOPIC_ID = "__cluster_metadata", (1).to_bytes(16, "big")

_NO_DIRECTORY = bytes(16)
# Beyond all offsets: those in a snapshot are its own.
_NO_END = 1 << 62
# What only the leader says of the partition.
_OF_LEADERS = (ErrorCode.NONE, ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE)


@dataclass(frozen=True, slots=True)
class ObserverConfig:
    """How an observer behaves. Times are in ms.

    Attributes:
        bootstrap: controllers, any of which knows the leader. The others are found in the metadata, if they are there.
        listener: the listener of controllers to connect to; None: the first one that each of them has.
        cluster_id: controllers of another cluster refuse what is asked then; None: it is not known.
        node_id, directory_id: as which replica it fetches; -1: none.
        max_wait: how long a controller may wait for new records.
        max_bytes: how much is fetched at once.
        request_timeout: how long a request may take.
        pause: between fetches of records that are not committed yet.
        least_backoff, most_backoff: between attempts that fail. The longest is much shorter than a session, so that one
            does not end when the leader of the controllers has changed.
    """

    bootstrap: tuple[Address, ...]
    listener: str | None = None
    cluster_id: str | None = None
    node_id: int = -1
    directory_id: bytes = _NO_DIRECTORY
    max_wait: int = 500
    max_bytes: int = 8 * 1024 * 1024
    request_timeout: int = 5_000
    pause: int = 50
    least_backoff: int = 50
    most_backoff: int = 500


class _Download(NamedTuple):
    """A snapshot, and what is there of its bytes. `end`: the offset after its last record."""

    end: int
    epoch: int
    data: bytearray


class Observer:
    """Follows the log. It is used by one thread; times are in ms and never go back.

    The caller sends what `poll` returns, and reports the answer (`answered`) or that there will be none (`failed`). It
    calls `poll` after each of these, and when `next_deadline` is reached. What is reported of a request that has failed
    before, or was answered, is dropped.

    Attributes:
        is_current: whether the image had all that was committed when the last answer was made.
    """

    def __init__(self, config: ObserverConfig) -> None:
        self._config = config
        self._leaders = Leaders(config.bootstrap)
        self._fold = Fold()
        self._attempts = Attempts(config.request_timeout, config.least_backoff, config.most_backoff)
        self.is_current = False
        self._download: _Download | None = None

    @property
    def image(self) -> Image:
        """The newest image."""
        return self._fold.image

    @property
    def leader(self) -> Address | None:
        """The leader of the controllers; None: it is not known, or does not answer."""
        return self._leaders.leader

    @property
    def trouble(self) -> str | None:
        """Why the last request has brought nothing; None: it has brought something."""
        return self._attempts.trouble

    # ---- requests

    def poll(self, now: int) -> Send | None:
        """What is to be sent now; None: nothing, before an answer or `next_deadline`."""
        attempts = self._attempts
        if (overdue := attempts.take_overdue(now)) is not None:
            self._fail(overdue.to, NO_ANSWER, now)
        if attempts.sent is not None or now < attempts.not_before:
            return None
        request = self._fetch() if self._download is None else self._fetch_snapshot(self._download)
        return attempts.send(self._leaders.next_address(), request, now)

    def next_deadline(self) -> int:
        """When `poll` is to be called at the latest."""
        sent = self._attempts.sent
        return self._attempts.not_before if sent is None else sent.deadline

    def _fetch(self) -> FetchRequest:
        config, position = self._config, self._fold.position
        partition = FetchRequest.FetchPartition(
            current_leader_epoch=self._leaders.epoch,
            fetch_offset=position.offset + 1,
            last_fetched_epoch=position.epoch,
            partition_max_bytes=config.max_bytes,
            replica_directory_id=config.directory_id,
        )
        return FetchRequest(
            cluster_id=config.cluster_id,
            replica_state=FetchRequest.ReplicaState(replica_id=config.node_id),
            max_wait_ms=config.max_wait,
            max_bytes=config.max_bytes,
            topics=[FetchRequest.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[partition])],
        )

    def _fetch_snapshot(self, download: _Download) -> FetchSnapshotRequest:
        config = self._config
        partition = FetchSnapshotRequest.PartitionSnapshot(
            current_leader_epoch=self._leaders.epoch,
            snapshot_id=FetchSnapshotRequest.SnapshotId(download.end, download.epoch),
            position=len(download.data),
            replica_directory_id=config.directory_id,
        )
        topic = FetchSnapshotRequest.TopicSnapshot(METADATA_TOPIC, [partition])
        return FetchSnapshotRequest(config.cluster_id, config.node_id, config.max_bytes, [topic])

    # ---- answers

    def failed(self, number: int, why: str, now: int) -> None:
        """Takes that there is no answer to a request: no connection, or its end."""
        if (sent := self._attempts.take(number)) is not None:
            self._fail(sent.to, why, now)

    def answered(self, number: int, response: FetchResponse | FetchSnapshotResponse, now: int) -> Change | None:
        """Takes an answer.

        Returns:
            What it changes of the image; None: nothing.

        Raises:
            NodeError: the log cannot be followed.
            MessageError: a record is of a kind that is not known (UnknownRecordError), or is none. The image has
                neither it nor what follows. No more answers are to be given.
        """
        sent = self._attempts.take(number)
        if sent is None or sent.to is None:
            return None
        part = self._part_from_leader(sent.to, response, now)
        if part is None:
            return None
        try:
            if isinstance(response, FetchResponse):
                return self._fetched(part, now)
            return self._fetched_snapshot(part, now)
        except (CorruptRecordError, _NoPartError) as error:
            # The log says which snapshot there is now.
            self._download = None
            self._fail(sent.to, str(error), now)
            return None

    def _part_from_leader(
        self, asked: Address, response: FetchResponse | FetchSnapshotResponse, now: int
    ) -> Struct | None:
        """The answer's only partition; None: the controller that has answered is not the leader."""
        topics = response.responses if isinstance(response, FetchResponse) else response.topics
        parts = [part for topic in topics for part in topic.partitions]
        if response.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID:
            raise MetadataError(f"{asked.host}:{asked.port} is a controller of another cluster")
        if response.error_code or len(parts) != 1:
            self._fail(asked, _said(asked, response.error_code), now)
            return None
        (part,), leaders = parts, self._leaders
        epoch = part.current_leader.leader_epoch
        nodes = {node.node_id: Address(node.host, node.port) for node in response.node_endpoints}
        is_new = leaders.learn(epoch, part.current_leader.leader_id, nodes)
        if epoch == leaders.epoch and part.error_code in _OF_LEADERS:
            leaders.confirm(asked)
            return part
        doubts = not is_new and leaders.leader in (None, asked)
        self._fail(asked if doubts else None, _said(asked, part.error_code), now)
        if is_new:
            self._attempts.not_before = now
        return None

    def _fetched(self, part: Struct, now: int) -> Change | None:
        position = self._fold.position
        if part.diverging_epoch.epoch >= 0:
            epoch, end = part.diverging_epoch
            raise MetadataError(_lost(position, f"epoch {epoch} ends at offset {end} in their log"))
        if part.snapshot_id.end_offset >= 0:
            end, epoch = part.snapshot_id
            if end <= position.offset + 1:
                raise MetadataError(_lost(position, f"they offer a snapshot that ends at offset {end}"))
            self._download = _Download(end, epoch, bytearray())
            self._attempts.succeed(now)
            return None
        records = part.records or b""
        batches, size = read_batches(records, position.offset + 1, part.high_watermark)
        self._attempts.succeed(now + self._config.pause if len(records) > size and not batches else now)
        change = self._known(self._fold.apply(batches)) if batches else None
        self.is_current = self._fold.position.offset + 1 >= part.high_watermark >= 0
        return change

    def _fetched_snapshot(self, part: Struct, now: int) -> Change | None:
        download = self._download
        if download is None or part.error_code or part.position != len(download.data) or not part.unaligned_records:
            raise _NoPartError(f"an answer has no part of the snapshot: {name_of(part.error_code)}")
        download.data.extend(part.unaligned_records)
        if len(download.data) < part.size:
            self._attempts.succeed(now)
            return None
        batches, size = read_batches(download.data, 0, _NO_END)
        if size != part.size:
            raise _NoPartError(f"a snapshot has {part.size - size} bytes that are no batches")
        self._download = None
        self._attempts.succeed(now)
        return self._known(self._fold.load(batches, Position(download.end - 1, download.epoch)))

    def _known(self, change: Change) -> Change:
        """Learns from a change where controllers are."""
        if change.after.controllers is not change.before.controllers:
            for controller in change.after.controllers.values():
                of = [one for one in controller.end_points if self._config.listener in (None, one.name)]
                self._leaders.know(Address(one.host, one.port) for one in of[:1])
        return change

    def _fail(self, doubted: Address | None, why: str, now: int) -> None:
        """`doubted`: a controller that is not asked next."""
        self.is_current = False
        self._attempts.fail(why, now)
        if doubted is not None:
            self._leaders.doubt(doubted)


class _NoPartError(Exception):
    """A snapshot cannot be fetched as it was begun."""


def _said(asked: Address, error: int) -> str:
    return f"{asked.host}:{asked.port} has answered {name_of(error)}"


def _lost(position: Position, why: str) -> str:
    return (
        "the controllers have lost records of the cluster's metadata: this node has them up to offset "
        f"{position.offset} of epoch {position.epoch}, and {why}"
    )
