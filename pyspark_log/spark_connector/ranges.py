"""Which offsets a micro-batch reads from each partition, and what is refused before it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark_log.errors import UnknownTopicError
from pyspark_log.spark_connector.errors import data_loss
from pyspark_log.spark_connector.offsets import Offsets
from pyspark_log.types import TopicPartition


@dataclass(frozen=True)
class OffsetRange:
    """The offsets [start, end) of a partition; in a batch read either may be a sentinel, -2 or -1."""

    at: TopicPartition
    start: int
    end: int


def names(partitions: Iterable[TopicPartition]) -> str:
    """Partitions in order, for a message."""
    return ", ".join(str(at) for at in sorted(partitions))


@contextmanager
def missing_is_lost(read: Iterable[TopicPartition]) -> Iterator[None]:
    """Makes a missing topic a data loss, if a query has read partitions (`read`); ConnectorError, PYLOG_DATA_LOSS."""
    try:
        yield
    except UnknownTopicError as error:
        known = names(read)
        if not known:
            raise
        raise data_loss("PARTITIONS_DELETED", f"{error}; the query had read {known}.") from error


def check_not_lost(known: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
    """Refuses log ends that contradict what a query has read already.

    Raises:
        ConnectorError: PYLOG_DATA_LOSS, a partition is gone or ends before the query's position.
    """
    gone = known.keys() - ends.keys()
    if gone:
        raise data_loss("PARTITIONS_DELETED", f"Partitions {names(gone)} have been deleted.")
    for at in sorted(known):
        if ends[at] < known[at]:
            raise data_loss(
                "PARTITION_OFFSET_CHANGED",
                f"Partition {at} offset was changed from {known[at]} to {ends[at]}: either the topic was made "
                "anew or restored from a copy, or this is the first batch and its start offset is too high.",
            )


def starts_of(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    earliest: Callable[[TopicPartition], int],
) -> Offsets:
    """Where each partition of `ends` begins: as `starts` says, and a new one at its first offset.

    Args:
        starts: a query's position.
        ends: the partitions that there are now, with their ends.
        earliest: the first offset that a partition holds.

    Raises:
        ConnectorError: PYLOG_DATA_LOSS, as in `check_not_lost`, or a new partition has lost its first records.
    """
    check_not_lost(starts, ends)
    begins = {}
    for at in sorted(ends):
        begins[at] = starts[at] if at in starts else earliest(at)
        if at not in starts and begins[at] != 0:
            raise data_loss(
                "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO",
                f"Added partition {at} starts from {begins[at]} instead of 0.",
            )
    return begins


def plan_ranges(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    earliest: Callable[[TopicPartition], int],
) -> list[OffsetRange]:
    """The ranges of a micro-batch, empty ones left out, by topic and partition. Errors as of `starts_of`."""
    begins = starts_of(starts, ends, earliest)
    return [OffsetRange(at, begin, ends[at]) for at, begin in begins.items() if begin < ends[at]]
