"""What a partition consists of at a moment: the ends of its log, its segments, its size, and whether it can be used."""

from __future__ import annotations

import os
from dataclasses import dataclass

from pyspark_log.errors import PylogError, UnknownTopicError
from pyspark_log.storage.log.state import EMPTY
from pyspark_log.storage.log_manager.manager import LogManager


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """One partition. Its numbers are -1 if it cannot be read.

    Attributes:
        partition: its number.
        problem: why it cannot be read; "" if it can.
        log_dir: the absolute path of the log dir that its log is in; "": it has no log yet.
        leader_epoch: Kafka's leader epoch, which each new record batch gets.
        log_start: the first offset that can be read.
        log_end: the offset that the next record gets.
        high_watermark: readers see the records below it.
        last_stable_offset: readers of committed records see those below it.
        segments: how many segments it has.
        size: the bytes of their `.log` files.
    """

    partition: int
    problem: str = ""
    log_dir: str = ""
    leader_epoch: int = -1
    log_start: int = -1
    log_end: int = -1
    high_watermark: int = -1
    last_stable_offset: int = -1
    segments: int = -1
    size: int = -1

    @property
    def records(self) -> int:
        """How many offsets the log has; in a compacted topic some of them have no record any more. -1: unknown."""
        return -1 if self.problem else self.log_end - self.log_start


def describe_partition(logs: LogManager, topic: str, partition: int) -> PartitionDescription:
    """Describes a partition of a topic. UnknownTopicError: there is none, or it was deleted meanwhile."""
    try:
        reader = logs.recovered(topic, partition)
        state = reader.state()
        if state == EMPTY:
            return PartitionDescription(partition, "", "", state.leader_epoch, 0, 0, 0, 0, 0, 0)
        return PartitionDescription(
            partition, "", os.path.dirname(reader.place_in(state).folder), state.leader_epoch, state.log_start,
            state.next_offset, state.high_watermark, reader.last_stable_offset(), reader.segment_count(),
            reader.size(),
        )  # fmt: skip
    except UnknownTopicError:
        raise
    except (PylogError, OSError) as error:
        return PartitionDescription(partition, str(error))
