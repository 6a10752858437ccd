"""Plans a read: which offsets of which partitions, in which ranges. reading/task_reader.py puts ranges into tasks.

Offsets are resolved, checked against the store that they were read from, limited to a trigger's maximum, and split into
ranges.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_log.errors import UnknownTopicError
from pyspark_log.spark_connector.errors import ConnectorError, LossPolicy, data_loss, option_error
from pyspark_log.spark_connector.planning.offsets import (
    AtCommitted,
    AtTimestamp,
    Everywhere,
    Identity,
    Offsets,
    Position,
    Specific,
)
from pyspark_log.spark_connector.planning.subscription import Subscription
from pyspark_log.types import EARLIEST, LATEST, TopicPartition

if TYPE_CHECKING:  # Options are parsed in processes that do not load the engine.
    from pyspark_log.storage.store import Store

# By the side of a range: its offsets name other partitions than those that are read.
_NOT_ASSIGNED = {
    "start": "PYLOG_START_OFFSET_DOES_NOT_MATCH_ASSIGNED",
    "end": "PYLOG_END_OFFSET_DOES_NOT_MATCH_ASSIGNED",
}


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
def missing_is_lost(store: Store, read: Collection[TopicPartition]) -> Iterator[None]:
    """Reports a missing topic as data loss if a query has read it (`read`). ConnectorError, PYLOG_DATA_LOSS."""
    try:
        yield
    except UnknownTopicError as error:
        if {at.topic for at in read}.issubset(store.topics()):
            raise  # It is another one, which the query was to read, too.
        raise data_loss("PARTITIONS_DELETED", f"{error}; the query had read {names(read)}.") from error


def _check_not_lost(
    known: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    subscription: Subscription,
    loss: LossPolicy,
) -> None:
    """Reports log ends that contradict a query's position.

    Raises:
        ConnectorError: PYLOG_DATA_LOSS, a partition is missing or ends before the query's position.
    """
    gone = known.keys() - ends.keys()
    left = [at for at in gone if not subscription.covers(at)]
    if left:
        loss.report(
            "PARTITIONS_DELETED",
            f"The query had read partitions {names(left)}, which its options do not name any more. Name them again, or "
            "start the query with a new checkpoint.",
        )
    if gone.difference(left):
        loss.report("PARTITIONS_DELETED", f"Partitions {names(gone.difference(left))} have been deleted.")
    for at in sorted(known.keys() & ends.keys()):
        if ends[at] < known[at]:
            loss.report(
                "PARTITION_OFFSET_CHANGED",
                f"Partition {at} offset was changed from {known[at]} to {ends[at]}: either the topic was "
                "recreated, or restored from a copy, or this is the first batch and its start offset is too high.",
            )


def starts_of(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    earliest: Callable[[TopicPartition], int],
    subscription: Subscription,
    loss: LossPolicy,
) -> Offsets:
    """The start of each partition of `ends`: from `starts`, or the first offset of a new partition.

    Args:
        starts: a query's position.
        ends: the current partitions, with their ends.
        earliest: returns the first offset that a partition holds.
        subscription: which partitions the query is of.
        loss: what to do where records are missing.

    Raises:
        ConnectorError: PYLOG_DATA_LOSS, a partition is missing or ends before the query's position; or a new one has
            lost its first records, or is deleted by now.
    """
    _check_not_lost(starts, ends, subscription, loss)
    begins = {}
    for at in sorted(ends):
        try:
            begins[at] = starts[at] if at in starts else earliest(at)
        except UnknownTopicError as error:
            # In a batch that was planned before, and is run again.
            loss.report("PARTITIONS_DELETED", f"Added partition {at} has been deleted: {error}.")
            begins[at] = ends[at]
            continue
        if at not in starts and begins[at] != 0:
            loss.report(
                "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO",
                f"Added partition {at} starts from {begins[at]} instead of 0.",
            )
    return begins


def ranges_between(begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> list[OffsetRange]:
    """The ranges of a micro-batch, without empty ones, by topic and partition."""
    return [OffsetRange(at, begin, ends[at]) for at, begin in begins.items() if begin < ends[at]]


def identity_of(store: Store, topics: Iterable[str]) -> Identity:
    """The current identity of a store and its topics. UnknownTopicError."""
    return Identity(*store.partitions.recorded_ids(topics))


def identity_after(
    store: Store, topics: Collection[str], known: Identity, read: Iterable[TopicPartition], loss: LossPolicy
) -> Identity:
    """The identity of a store and its topics, which must be those that a query has read.

    Args:
        store: the current store.
        topics: the topics to continue reading.
        known: the identity in the query's offsets.
        read: the partitions that the query has read, for the message.
        loss: what to do if they are others.

    Raises:
        ConnectorError: PYLOG_DATA_LOSS, the store or one of the topics is another one.
        UnknownTopicError: a topic is missing.
    """
    cluster_id = identity_of(store, ()).cluster_id
    if known.cluster_id and cluster_id not in (None, known.cluster_id):
        loss.report(
            "PARTITIONS_DELETED",
            f"Partitions {names(read)} are gone: {store.path} is another store (cluster id "
            f"{cluster_id}) than the query has read so far ({known.cluster_id}). Start the query "
            "with the path of that store; to read this one, start it with a new checkpoint.",
        )
    found = identity_of(store, topics)
    for topic, topic_id in found.topic_ids.items():
        before = known.topic_ids.get(topic, topic_id)
        if topic_id != before:
            loss.report(
                "PARTITIONS_DELETED",
                f"Partitions {names(at for at in read if at.topic == topic)} have been deleted: {_recreated(topic)} "
                f"(topic id {topic_id}) since the query has read it ({before}). To read the new one, start the query "
                "with a new checkpoint.",
            )
    kept = {topic: known.topic_ids[topic] for topic in known.topic_ids.keys() & set(topics)}
    return Identity(found.cluster_id or known.cluster_id, {**kept, **found.topic_ids})


def of_same_topics(offsets: Mapping[TopicPartition, int], known: Identity, now: Identity) -> Offsets:
    """Those of a query's offsets whose topics were not recreated since: a new topic is read from its first record."""
    return {
        at: offset
        for at, offset in offsets.items()
        if known.topic_ids.get(at.topic) in (None, now.topic_ids.get(at.topic, known.topic_ids.get(at.topic)))
    }


def is_same_topic(store: Store, at: TopicPartition, topic_id: str | None, loss: LossPolicy) -> bool:
    """Whether a topic is the one for which a task was planned; reports another topic.

    Args:
        store: the store that the task reads.
        at: the partition that it reads.
        topic_id: the id of the planned topic, if it is known.
        loss: what to do if it is another one.

    Raises:
        ConnectorError: PYLOG_DATA_LOSS, it is another topic.
        UnknownTopicError: no such topic.
    """
    found = identity_of(store, [at.topic]).topic_ids.get(at.topic)
    if topic_id is None or found in (None, topic_id):
        return True
    loss.report(
        "COULD_NOT_READ_OFFSET_RANGE",
        f"Could not read records of topic partition {at}: {_recreated(at.topic)} (topic id {found}) since the "
        f"read was planned ({topic_id}). Call load() again to read the new one.",
    )
    return False


def _recreated(topic: str) -> str:
    return f"topic {topic!r} was deleted and recreated"


def earliest(store: Store, at: TopicPartition) -> int:
    """The first offset that the partition holds."""
    return store.earliest_offset(at.topic, at.partition)


def end_within(store: Store, at: TopicPartition, start: int, end: int, max_bytes: int) -> tuple[int, int]:
    """How far from `start` about `max_bytes` of a partition reach: an offset up to `end`, and the bytes up to it."""
    return store.partitions.end_within(at, start, end, max_bytes)


def latest(store: Store, at: TopicPartition, isolation_level: str) -> int:
    """The offset that the partition's next record will get; for committed records, the last stable offset."""
    # Not by Store.latest_offset, which applies pending decisions each time: the planner has done that for all of them.
    return store.partitions.latest_offsets([at], isolation_level=isolation_level)[at]


def resolved(store: Store, at: TopicPartition, offset: int, isolation_level: str) -> int:
    """Resolves a sentinel to the current offset; returns any other offset unchanged."""
    if offset == EARLIEST:
        return earliest(store, at)
    return latest(store, at, isolation_level) if offset == LATEST else offset


def offsets_at(
    store: Store, assigned: Sequence[TopicPartition], position: Position, side: str, isolation_level: str
) -> Offsets:
    """Resolves a position to an offset for each partition that is read; sentinels stay unresolved.

    Args:
        store: the store.
        assigned: the partitions that are read.
        position: the position from the options.
        side: "start" or "end", for the message.
        isolation_level: the read's isolation level.

    Raises:
        ConnectorError: offsets or timestamps do not name exactly the partitions; or no record of a partition is as
            late as its timestamp, where that is an error.
    """
    if isinstance(position, Everywhere):
        return dict.fromkeys(assigned, position.offset)
    if isinstance(position, Specific):
        advice = "use -1 for latest" + (", -2 for earliest" if side == "start" else "")
        condition = _NOT_ASSIGNED[side]
        _check_named(position.offsets, assigned, condition, f"{side} offsets", f"; {advice}")
        return dict(position.offsets)
    if isinstance(position, AtCommitted):
        committed = store.groups[position.group].committed()
        return {at: committed[at].offset if at in committed else EARLIEST for at in assigned}
    if isinstance(position, AtTimestamp):
        timestamps = dict.fromkeys(assigned, position.timestamp)
    else:
        condition = "PYLOG_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED"
        _check_named(position.timestamps, assigned, condition, f"{side} timestamps")
        timestamps = position.timestamps
    return {
        at: _offset_at_timestamp(store, at, timestamp, isolation_level, or_latest=position.or_latest)
        for at, timestamp in timestamps.items()
    }


def _check_named(
    given: Iterable[TopicPartition], assigned: Iterable[TopicPartition], condition: str, words: str, advice: str = ""
) -> None:
    if set(given) != set(assigned):
        raise ConnectorError(
            condition,
            f"Partitions specified for {words} don't match what are assigned. All of them must be named{advice}. "
            f"Specified: {names(given)} Assigned: {names(assigned)}",
        )


def _offset_at_timestamp(
    store: Store, at: TopicPartition, timestamp: int, isolation_level: str, *, or_latest: bool
) -> int:
    found = store.offset_for_timestamp(at.topic, at.partition, timestamp)
    end = latest(store, at, isolation_level)
    if found is not None and found.offset < end:
        return found.offset
    if or_latest:
        return end
    raise option_error(
        f"No offset matched from request of topic-partition {at} and timestamp {timestamp}. To begin at the log end "
        "there, set startingOffsetsByTimestampStrategy to latest."
    )


@dataclass(frozen=True)
class TriggerLimits:
    """How large a micro-batch is.

    Attributes:
        least: minOffsetsPerTrigger, or None: a trigger with fewer new offsets waits.
        most: maxOffsetsPerTrigger, or None.
        most_bytes: maxBytesPerTrigger, or None: about this many bytes, as stored.
        delay_ms: maxTriggerDelay: this long after the last micro-batch, `least` no longer applies.
    """

    least: int | None
    most: int | None
    most_bytes: int | None
    delay_ms: int


@dataclass(frozen=True)
class Splitting:
    """How a read is split into tasks; by default, one task per topic-partition.

    Attributes:
        min_partitions: the approximate minimum of tasks, or None.
        max_records: the most offsets per task, or None.
    """

    min_partitions: int | None = None
    max_records: int | None = None

    def is_due(self, ranges: Sequence[OffsetRange]) -> bool:
        """Whether the ranges of all partitions are to be split; sentinels count as their numeric values.

        A batch read decides this before it resolves -2 and -1. From earliest to latest thus has size 1, which
        `max_records` alone never splits.
        """
        return (self.min_partitions or 0) > len(ranges) or any(
            one.end - one.start > (self.max_records or math.inf) for one in ranges
        )

    def split(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        """Splits ranges into pieces, in order; empty ranges have none."""
        found = [one for one in ranges if one.start < one.end]
        if self.max_records is not None:
            found = [piece for one in found for piece in _pieces(one, math.ceil(_size(one) / self.max_records))]
        if self.min_partitions is None or self.min_partitions <= len(found):
            return found
        # Small ranges stay whole, and do not count when the remaining tasks are shared out.
        total = sum(map(_size, found))
        small = [one for one in found if _share(one, total, self.min_partitions) == 1]
        small_partitions = {one.at for one in small}
        total -= sum(map(_size, small))
        tasks = max(self.min_partitions - len(small), 1)
        return [
            piece
            for one in found
            for piece in _pieces(one, 1 if one.at in small_partitions else _share(one, total, tasks))
        ]


def _size(one: OffsetRange) -> int:
    return one.end - one.start


def _share(one: OffsetRange, total: int, tasks: int) -> int:
    # Halves are rounded up, as in Java; Python's `round` rounds them to even.
    return max(math.floor(_size(one) / total * tasks + 0.5), 1)


def _pieces(one: OffsetRange, count: int) -> list[OffsetRange]:
    """Splits into `count` pieces, the later ones larger by the remainder; fewer if there are fewer offsets."""
    pieces, start = [], one.start
    for number in range(count):
        end = start + (one.end - start) // (count - number)
        if start < end:
            pieces.append(OffsetRange(one.at, start, end))
        start = end
    return pieces


def limit_ends_by_bytes(
    limit: int,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    end_within: Callable[[TopicPartition, int, int, int], tuple[int, int]],
) -> Offsets:
    """The ends of a batch of about `limit` bytes: as many of each partition as of any other that has more.

    Args:
        limit: bytes, as they are stored, for all partitions together. At least one record batch of each is read.
        starts: where each partition of `ends` begins.
        ends: the exclusive ends of what can be read.
        end_within: returns for a partition, its start and end and a number of bytes how far these reach: an offset,
            and the bytes up to it.
    """
    limited = dict(ends)
    left = sorted(at for at, end in ends.items() if starts[at] < end)
    while left:
        share = limit // len(left)
        found = {at: end_within(at, starts[at], ends[at], max(share, 1)) for at in left}
        whole = {at: size for at, (end, size) in found.items() if end >= ends[at] and size <= share}
        if not whole:
            return {**limited, **{at: end for at, (end, _) in found.items()}}
        # What these do not need the others share.
        limit -= sum(whole.values())
        left = [at for at in left if at not in whole]
    return limited


_LONG_MAX = 2**63 - 1


def limit_ends(limit: int, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> Offsets:
    """The ends of a batch of about `limit` offsets, shared in proportion to what each partition has.

    The arithmetic is that of the Kafka connector (KafkaMicroBatchStream.rateLimit): a share below 1 is rounded
    up, so that a small partition is never starved, and any other down. So a batch can be slightly larger or
    smaller than the limit. It uses doubles, as there, to split batches at the same offsets.

    Args:
        limit: offsets for all partitions together.
        starts: where each partition of `ends` begins.
        ends: the exclusive ends of what can be read. A partition whose end is not above its start keeps its start.
    """
    sizes = {at: end - starts[at] for at, end in ends.items() if end > starts[at]}
    total = float(sum(sizes.values()))
    limited = dict(ends)
    for at, size in sizes.items():
        share = limit * (size / total)
        whole = min(math.ceil(share) if share < 1 else math.floor(share), _LONG_MAX)
        limited[at] = min(ends[at], starts[at] + whole)
    return limited
