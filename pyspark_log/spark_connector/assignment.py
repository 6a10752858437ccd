"""Looks up in a store what options mean: which partitions, and which offsets."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark_log.spark_connector.errors import ConnectorError, option_error
from pyspark_log.spark_connector.offsets import Offsets
from pyspark_log.spark_connector.positions import AtTimestamp, Everywhere, Position
from pyspark_log.spark_connector.ranges import names
from pyspark_log.storage.store import Store
from pyspark_log.types import EARLIEST, LATEST, TopicPartition


def assigned_partitions(store: Store, topics: Iterable[str]) -> list[TopicPartition]:
    """All partitions of the topics. UnknownTopicError."""
    return [
        TopicPartition(topic, number)
        for topic in topics
        for number in range(store.describe_topic(topic).partitions)
    ]


def earliest(store: Store, at: TopicPartition) -> int:
    """The first offset that the partition holds."""
    return store.earliest_offset(at.topic, at.partition)


def latest(store: Store, at: TopicPartition, isolation_level: str) -> int:
    """The offset that the partition's next record will get; for committed records, the last stable offset."""
    return store.latest_offset(at.topic, at.partition, isolation_level=isolation_level)


def resolved(store: Store, at: TopicPartition, offset: int, isolation_level: str) -> int:
    """The offset that a sentinel stands for now; any other offset is itself."""
    if offset == EARLIEST:
        return earliest(store, at)
    return latest(store, at, isolation_level) if offset == LATEST else offset


def offsets_at(
    store: Store, topics: Iterable[str], position: Position, side: str, isolation_level: str
) -> Offsets:
    """What a position is in each partition of the topics; sentinels stay as they are.

    Args:
        store: where to look.
        topics: what is read.
        position: from the options.
        side: "start" or "end", for the message.
        isolation_level: what is read.

    Raises:
        ConnectorError: specific offsets do not name exactly the partitions there are, or no record of a partition
            is as late as the timestamp.
        UnknownTopicError: there is no such topic.
    """
    assigned = assigned_partitions(store, topics)
    if isinstance(position, Everywhere):
        return dict.fromkeys(assigned, position.offset)
    if isinstance(position, AtTimestamp):
        return {at: _offset_at_timestamp(store, at, position.timestamp, isolation_level) for at in assigned}
    if position.offsets.keys() != set(assigned):
        raise ConnectorError(
            f"PYLOG_{side.upper()}_OFFSET_DOES_NOT_MATCH_ASSIGNED",
            f"Partitions specified for {side} offsets don't match what are assigned. All of them must be named; "
            f"use -1 for latest, -2 for earliest. Specified: {names(position.offsets)} Assigned: {names(assigned)}",
        )
    return dict(position.offsets)


def _offset_at_timestamp(store: Store, at: TopicPartition, timestamp: int, isolation_level: str) -> int:
    found = store.offset_for_timestamp(at.topic, at.partition, timestamp)
    if found is None or found.offset >= latest(store, at, isolation_level):
        raise option_error(f"No offset matched from request of topic-partition {at} and timestamp {timestamp}.")
    return found.offset
