"""The partitions that a node leads: their logs, their followers, and what the controllers are asked about them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from pyspark_log.config import int_config
from pyspark_log.errors import PylogError
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import AlterPartitionRequest, AlterPartitionResponse
from pyspark_log.server.cluster.image import BROKER_RESOURCE, TOPIC_RESOURCE, Image, Partition, Resource
from pyspark_log.server.cluster.leading import UNKNOWN, Fetched, LedPartition
from pyspark_log.server.node.throttles import ReplicaThrottle
from pyspark_log.server.served import LogView
from pyspark_log.storage.folder_store import FolderStore
from pyspark_log.storage.log.appending.replica import begin_to_lead, raise_high_watermark
from pyspark_log.types import TopicPartition

log = logging.getLogger(__name__)

_LAG_MAX: Final = "replica.lag.time.max.ms"
_ALL: Final = -1
_MIN_ISR: Final = "min.insync.replicas"


@dataclass(slots=True)
class _Led:
    """A partition that is led.

    Attributes:
        topic_id, partition: which one.
        min_isr: how many replicas must be in sync for acks=all.
        mark: the high watermark, as far as this process has raised it or read it.
        since: the first leader epoch from which on this node has led it without following another one in between.
    """

    topic_id: bytes
    partition: LedPartition
    min_isr: int
    mark: int
    since: int


class LedCounts(NamedTuple):
    """Partitions that are led: all, those that not all replicas are in sync of, and those with fewer than must be."""

    all: int
    under_replicated: int
    under_min_isr: int


class Leaders:
    """What a node leads. Thread-safe: handlers of requests, and the threads of the node, use it."""

    def __init__(
        self,
        store: FolderStore,
        node_id: int,
        changed: Callable[[TopicPartition], object],
        later: Callable[[Callable[[], object]], object],
    ) -> None:
        """Leads nothing yet. Made in the thread of the loop, which handles requests.

        Args:
            store: of the replicas.
            node_id: the node.
            changed: called, by any thread, when something other than its log has changed of a partition that was led.
            later: has another thread call what may wait for a lock; called by any thread.
        """
        self._store, self._node_id, self._changed, self._later = store, node_id, changed, later
        #: Of what followers get that are not in sync.
        self.throttle = ReplicaThrottle("leader", node_id)
        self._lag_max = int_config(store.logs.configs, _LAG_MAX)
        self._mutex = threading.Lock()
        self._led: dict[TopicPartition, _Led] = {}
        self._image = Image()
        self._dropped_at = _now()
        self._dirty = set[TopicPartition]()  # of which the controllers may have to be asked
        #: Set when the controllers may have to be asked.
        self.due = threading.Event()

    # ---- what the image says

    def follow(self, image: Image) -> None:
        """Takes a newer image, before the partitions that differ."""
        with self._mutex:
            self._image = image
            for at, led in self._led.items():
                led.min_isr = _min_isr(image, at.topic)

    def lead(self, at: TopicPartition, topic_id: bytes, partition: Partition) -> None:
        """Leads a partition, or takes newer facts of one that is led already.

        Raises:
            PylogError, OSError: it cannot be led.
        """
        with self._mutex:
            led = self._led.get(at)
            is_led = led is not None and led.partition.leader_epoch == partition.leader_epoch
            if led is not None and is_led:
                led.partition.update(partition)
        if not is_led:
            try:
                self._begin(at, topic_id, partition)
            except BaseException:
                self.resign(at)
                raise
        self.raise_high_watermark(at)
        self._changed(at)
        self._ask_soon(at)

    def _ask_soon(self, at: TopicPartition) -> None:
        self._dirty.add(at)
        self.due.set()

    def _begin(self, at: TopicPartition, topic_id: bytes, partition: Partition) -> None:
        logs = self._store.logs
        opened = logs.topic(at.topic)
        with logs.writer_of(opened, at.partition).hold() as writer:
            begin_to_lead(writer.log, partition.leader_epoch)
            end, mark, since = writer.state.next_offset, writer.state.high_watermark, partition.leader_epoch
            led = LedPartition(self._node_id, partition, end, self._lag_max, _now())
            with self._mutex:
                if (before := self._led.get(at)) is not None:
                    # The end of a reassignment makes a new epoch, too. What waits for its followers continues to.
                    mark, since = max(mark, before.mark), before.since
                self._led[at] = _Led(topic_id, led, _min_isr(self._image, at.topic), mark, since)
                logs.led[opened.state_path(at.partition)] = partition.leader_epoch
        opened.note_leader_epoch(at.partition, partition.leader_epoch)
        log.info("%s: leader since offset %d, in leader epoch %d", at, end, partition.leader_epoch)

    def resign(self, at: TopicPartition) -> None:
        """Leads a partition no more: nothing is appended afterwards. Not after PylogError and OSError, too."""
        with self._mutex:
            led = self._led.pop(at, None)
        if led is None:
            return
        logs = self._store.logs
        opened = logs.topic(at.topic)
        logs.led.pop(opened.state_path(at.partition), None)
        self._changed(at)
        # What was being appended is, before any other leader's records come.
        with logs.writer_of(opened, at.partition).hold():
            log.info("%s: no longer leader", at)

    def leads(self) -> Iterable[TopicPartition]:
        """What is led."""
        with self._mutex:
            return list(self._led)

    def counts(self) -> LedCounts:
        """How many partitions are led, and how many of them have fewer replicas in sync than they should."""
        with self._mutex:
            partitions = list(self._led.values())
        return LedCounts(
            len(partitions),
            sum(len(led.partition.isr) < len(led.partition.replicas) for led in partitions),
            sum(led.partition.is_under(led.min_isr) for led in partitions),
        )

    # ---- what handlers ask

    def refusal(self, at: TopicPartition, acks: int) -> ErrorCode:
        """Why a producer may not append to a partition with such acks; NONE: it may."""
        if self._led.get(at) is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NOT_ENOUGH_REPLICAS if acks == _ALL and self.is_short(at) else ErrorCode.NONE

    def epoch(self, at: TopicPartition) -> int | None:
        """The leader epoch in which this node leads a partition; None: it does not."""
        led = self._led.get(at)
        return None if led is None else led.partition.leader_epoch

    def is_behind(self, at: TopicPartition, high_watermark: int) -> bool:
        """Whether the high watermark may be lower than one of an earlier leader, which consumers have seen."""
        led = self._led.get(at)
        return led is not None and high_watermark < led.partition.begun_at

    def is_short(self, at: TopicPartition) -> bool:
        """Whether too few replicas are in sync for acks=all."""
        led = self._led.get(at)
        return led is not None and led.partition.is_under(led.min_isr)

    def is_replicated(self, at: TopicPartition, epoch: int | None, offset: int) -> ErrorCode | None:
        """Whether all replicas in sync have what was appended up to an offset, in a leader epoch; None: not yet."""
        led = self._led.get(at)
        if led is None or epoch is None or epoch < led.since:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if led.mark < offset:
            return None
        return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND if self.is_short(at) else ErrorCode.NONE

    def has_follower(self, at: TopicPartition, replica: int) -> bool:
        """Whether a broker is a follower of a partition that is led here."""
        led = self._led.get(at)
        return led is not None and led.partition.has_replica(replica)

    def fetched(self, at: TopicPartition, fetch: Fetched, log: LogView) -> bool:
        """Takes a follower's fetch of a log. False: it is no follower (see LedPartition.fetched)."""
        with self._mutex:
            led = self._led.get(at)
            if led is None or not led.partition.fetched(fetch, log.next_offset, _now()):
                return False
            mark = self._mark(led, log.next_offset)
            if fetch.replica not in led.partition.isr:
                self._ask_soon(at)
        self._raise_soon(at, led, log.high_watermark, mark)
        return True

    def appended(self, at: TopicPartition) -> None:
        """Raises the high watermark after an append, if no follower is waited for."""
        led = self._led.get(at)
        if led is None or len(led.partition.isr) > 1:
            return
        state = self._store.logs.topic(at.topic).reader(at.partition).state()
        with self._mutex:
            mark = self._mark(led, state.next_offset)
        self._raise_soon(at, led, state.high_watermark, mark)

    def _raise_soon(self, at: TopicPartition, led: _Led, high_watermark: int, mark: int) -> None:
        if mark <= max(high_watermark, led.mark):
            return
        # Noted first: the change of the log wakes what waits for that.
        self._note_mark(led, mark)
        if not self._store.logs.writer(at.topic, at.partition).raise_at_once(mark):
            self._later(partial(self.raise_high_watermark, at))

    def low_watermark(self, at: TopicPartition) -> int:
        """Up to where all replicas that are alive have deleted. PylogError, OSError: the log cannot be read."""
        log_start = self._store.logs.topic(at.topic).reader(at.partition).state().log_start
        with self._mutex:
            led = self._led.get(at)
            alive = [broker.id for broker in self._image.brokers.values() if not broker.fenced]
            return log_start if led is None else led.partition.low_watermark(log_start, alive)

    def closest(self, at: TopicPartition, rack: str, offset: int) -> int | None:
        """A follower in sync in a rack that has a record (KIP-392); None: there is none, or the leader is as close."""
        with self._mutex:
            led, brokers = self._led.get(at), self._image.brokers
            me = brokers.get(self._node_id)
            if led is None or (me is not None and me.rack == rack):
                return None
            for replica in led.partition.isr:
                broker = brokers.get(replica)
                if (
                    broker is not None
                    and not broker.fenced
                    and broker.rack == rack
                    and led.partition.has(replica, offset)
                ):
                    return replica
        return None

    # ---- the high watermark

    def raise_high_watermark(self, at: TopicPartition) -> None:
        """Raises it to where all replicas in sync have the log. PylogError, OSError."""
        state = self._store.logs.topic(at.topic).reader(at.partition).state()
        with self._mutex:
            led = self._led.get(at)
            mark = UNKNOWN if led is None else self._mark(led, state.next_offset)
        if led is not None and mark > state.high_watermark:
            self._note_mark(led, mark)
            with self._store.logs.writer(at.topic, at.partition).hold() as writer:
                raise_high_watermark(writer.log, mark)

    def _note_mark(self, led: _Led, mark: int) -> None:
        with self._mutex:
            led.mark = max(led.mark, mark)

    def _mark(self, led: _Led, end: int) -> int:
        return led.partition.high_watermark(end, _now(), led.min_isr, self._is_eligible)

    def _is_eligible(self, replica: int, epoch: int) -> bool:
        broker = self._image.brokers.get(replica)
        if broker is None or broker.fenced or broker.in_controlled_shutdown:
            return False
        return epoch in (UNKNOWN, broker.epoch)

    # ---- what the controllers are asked

    def proposals(self, broker_epoch: int) -> AlterPartitionRequest | None:
        """The changes of which replicas are in sync, of what may have changed; None: there are none.

        Call `answered` or `failed` afterwards. `broker_epoch`: of this node's registration.
        """
        request, topics = AlterPartitionRequest, dict[bytes, list[AlterPartitionRequest.PartitionData]]()
        drops = _now() - self._dropped_at >= self._lag_max // 2
        if drops:
            self._dropped_at = _now()
        dirty = set[TopicPartition]()
        # Threads add to it meanwhile, so it stays the same object.
        while self._dirty:
            dirty.add(self._dirty.pop())
        for at in self.leads() if drops else sorted(dirty):
            try:
                state = self._store.logs.topic(at.topic).reader(at.partition).state()
            except (PylogError, OSError) as error:
                log.warning("%s: cannot check its followers: %s", at, error)
                continue
            with self._mutex:
                led = self._led.get(at)
                if led is None:
                    continue
                partition = led.partition
                isr = partition.propose(state.next_offset, state.high_watermark, _now(), self._is_eligible, drops=drops)
                if isr is None:
                    continue
                log.info("%s: proposing the ISR %s, which was %s", at, list(isr), list(partition.isr))
                rows = [
                    request.BrokerState(
                        replica, broker_epoch if replica == self._node_id else partition.broker_epoch(replica)
                    )
                    for replica in isr
                ]
                topics.setdefault(led.topic_id, []).append(
                    request.PartitionData(
                        at.partition,
                        partition.leader_epoch,
                        new_isr_with_epochs=rows,
                        partition_epoch=partition.partition_epoch,
                    )
                )
        if not topics:
            return None
        return request(self._node_id, broker_epoch, [request.TopicData(*topic) for topic in topics.items()])

    def answered(self, request: AlterPartitionRequest, response: AlterPartitionResponse) -> None:
        """Takes the answer to proposals."""
        if response.error_code:
            self.failed(request)
            return
        topics = self._image.topics
        names = {row.topic_id: topics[row.topic_id].name for row in request.topics if row.topic_id in topics}
        for topic in response.topics:
            for row in topic.partitions:
                at = TopicPartition(names.get(topic.topic_id, ""), row.partition_index)
                with self._mutex:
                    led = self._led.get(at)
                    if led is None:
                        continue
                    led.partition.answered(row.error_code, row.leader_epoch, tuple(row.isr), row.partition_epoch)
                if row.error_code:
                    log.info("%s: the controllers refuse the ISR: %s", at, ErrorCode(row.error_code).name)
                try:
                    self.raise_high_watermark(at)
                    self._changed(at)
                except (PylogError, OSError) as error:
                    log.warning("%s: cannot raise its high watermark: %s", at, error)
                if row.error_code:
                    self._dirty.add(at)

    def failed(self, request: AlterPartitionRequest) -> None:
        """Takes that proposals were not answered."""
        with self._mutex:
            numbers = {
                (topic.topic_id, partition.partition_index)
                for topic in request.topics
                for partition in topic.partitions
            }
            for at, led in self._led.items():
                if (led.topic_id, at.partition) in numbers:
                    led.partition.failed()
                    self._dirty.add(at)


def _min_isr(image: Image, topic: str) -> int:
    """min.insync.replicas of a topic: its own, that of the cluster, or Kafka's default."""
    for resource in (Resource(TOPIC_RESOURCE, topic), Resource(BROKER_RESOURCE, "")):
        value = image.configs.get(resource, {}).get(_MIN_ISR)
        if value is not None:
            return int(value)
    return 1


def _now() -> int:
    return time.monotonic_ns() // 1_000_000
