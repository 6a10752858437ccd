"""Questions about the partitions of a store in an object store."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager

from pyspark_log.config import int_config
from pyspark_log.errors import UnknownTopicError
from pyspark_log.storage import seam
from pyspark_log.storage.log_manager import PartitionDescription
from pyspark_log.storage.publish_log import reading
from pyspark_log.storage.publish_log.log import PublishLog
from pyspark_log.storage.publish_log.proposals import log_of, topic_of
from pyspark_log.storage.record import BatchHeader
from pyspark_log.types import READ_UNCOMMITTED, OffsetAndTimestamp, TopicPartition, check_isolation

# A watch asks no more often for what others have decided, in seconds: each time is a request.
_POLL_SECONDS = 1.0


class ObjectPartitions(seam.Partitions):
    """The partitions of a store in an object store."""

    are_brokers = False

    def __init__(self, log: PublishLog, cluster_id: str, configs: Mapping[str, str]) -> None:
        """Of one store."""
        self._log, self._cluster_id = log, cluster_id
        self._max_batch_bytes = int_config(configs, "batch.max.memory.bytes")

    def looking(self, age: float = 0.0) -> AbstractContextManager[None]:
        return self._log.looking(age)

    def recorded_ids(self, topics: Iterable[str]) -> tuple[str | None, dict[str, str]]:
        state = self._log.follow()
        return self._cluster_id, {name: topic_of(state, name).topic_id for name in topics}

    def written(self, topic: str) -> list[int]:
        state = self._log.follow()
        topic_id = topic_of(state, topic).topic_id
        return sorted(partition for its_topic, partition in state.partitions if its_topic == topic_id)

    def describe(self, topic: str, partition: int) -> PartitionDescription:
        log = log_of(self._log.follow(), topic, partition)
        end = log.log_end
        return PartitionDescription(
            partition, leader_epoch=0, log_start=log.log_start, log_end=end, high_watermark=end,
            last_stable_offset=end, segments=len(log.pieces), size=sum(piece.size for piece in log.pieces),
        )  # fmt: skip

    def size(self, topic: str, partition: int) -> int:
        return sum(piece.size for piece in log_of(self._log.follow(), topic, partition).pieces)

    def latest_offsets(
        self,
        partitions: Iterable[TopicPartition],
        *,
        isolation_level: str = READ_UNCOMMITTED,
        skip_missing: bool = False,
    ) -> dict[TopicPartition, int]:
        check_isolation(isolation_level)
        state, ends = self._log.follow(), dict[TopicPartition, int]()
        for at in partitions:
            try:
                ends[at] = log_of(state, at.topic, at.partition).log_end
            except UnknownTopicError:
                if not skip_missing:
                    raise
        return ends

    def offset_of_max_timestamp(self, topic: str, partition: int) -> OffsetAndTimestamp | None:
        log = log_of(self._log.follow(), topic, partition)
        return reading.find_max_timestamp(
            self._log.objects, TopicPartition(topic, partition), log, self._max_batch_bytes
        )

    def watch(self) -> ObjectWatch:
        return ObjectWatch(self._log)

    def events(self) -> None:
        """None: other machines change them."""

    def end_within(self, at: TopicPartition, start: int, end: int, max_bytes: int) -> tuple[int, int]:
        total = 0
        for piece in log_of(self._log.follow(), at.topic, at.partition).between(start, end):
            if total and total + piece.size > max_bytes:
                return piece.base_offset, total
            total += piece.size
        return end, total

    def producer_batches(self, at: TopicPartition, start: int, end: int) -> list[tuple[BatchHeader, None]]:
        return []


class ObjectWatch(seam.PartitionWatch):
    """Waits until something is decided."""

    def __init__(self, log: PublishLog) -> None:
        """Nothing is noted yet."""
        self._log, self._number = log, -1

    def note(self, topic: str, partitions: Iterable[int]) -> None:
        self._number = self._log.follow(_POLL_SECONDS).number

    def wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while self._log.follow(_POLL_SECONDS).number == self._number and (seconds_left := end - time.monotonic()) > 0:
            time.sleep(min(seconds_left, _POLL_SECONDS))
