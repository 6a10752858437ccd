"""Plans what a read gets: which offsets, of which partitions, in which ranges, one task a range.

Offsets are resolved, checked against the store that they were read from, limited to what a trigger may take, and cut
into ranges.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_log.errors import UnknownTopicError
from pyspark_log.spark_connector.errors import ConnectorError, data_loss, option_error
from pyspark_log.spark_connector.offsets import AtTimestamp, Everywhere, Identity, Offsets, Position
from pyspark_log.types import EARLIEST, LATEST, TopicPartition

if TYPE_CHECKING:  # Options are parsed where the engine is not loaded.
    from pyspark_log.storage.store import Store


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


def identity_of(store: Store, topics: Iterable[str]) -> Identity:
    """That of topics of a store as they are now. UnknownTopicError."""
    found = {topic: store.recorded_topic_id(topic) for topic in topics}
    return Identity(store.recorded_cluster_id, {topic: one for topic, one in found.items() if one is not None})


def identity_after(store: Store, topics: Iterable[str], known: Identity, read: Iterable[TopicPartition]) -> Identity:
    """The identity of a store and its topics, with what was known before; they must be those that a query has read.

    Args:
        store: what there is now.
        topics: that are to be read on.
        known: what the query's offsets say.
        read: the partitions that the query has read, for the message.

    Raises:
        ConnectorError: PYLOG_DATA_LOSS, it is another store, or one of the topics is another one.
        UnknownTopicError: a topic is missing.
    """
    if known.cluster_id and store.recorded_cluster_id not in (None, known.cluster_id):
        raise data_loss(
            "PARTITIONS_DELETED",
            f"Partitions {names(read)} are gone: {store.path} is another store (cluster id "
            f"{store.recorded_cluster_id}) than the one that the query has read ({known.cluster_id}). Start the query "
            "with the path of that one; to read this one, start it with a new checkpoint.",
        )
    found = identity_of(store, topics)
    for topic, topic_id in found.topic_ids.items():
        before = known.topic_ids.get(topic, topic_id)
        if topic_id != before:
            raise data_loss(
                "PARTITIONS_DELETED",
                f"Partitions {names(at for at in read if at.topic == topic)} have been deleted: {_made_again(topic)} "
                f"(topic id {topic_id}) since the query has read it ({before}). To read the new one, start the query "
                "with a new checkpoint.",
            )
    return Identity(found.cluster_id or known.cluster_id, {**known.topic_ids, **found.topic_ids})


def check_topic(store: Store, at: TopicPartition, topic_id: str | None) -> None:
    """Refuses a topic that is not the one for which a task was planned.

    Args:
        store: where the task reads.
        at: what it reads.
        topic_id: of the topic for which it was planned, if it is known.

    Raises:
        ConnectorError: PYLOG_DATA_LOSS, it is another one.
        UnknownTopicError: there is none.
    """
    found = store.recorded_topic_id(at.topic)
    if topic_id is not None and found not in (None, topic_id):
        raise data_loss(
            "COULD_NOT_READ_OFFSET_RANGE",
            f"Could not read records of topic partition {at}: {_made_again(at.topic)} (topic id {found}) since the "
            f"read was planned ({topic_id}). Call load() again to read the new one.",
        )


def _made_again(topic: str) -> str:
    return f"topic {topic!r} was deleted and made again"


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


@dataclass(frozen=True)
class Splitting:
    """Into how many tasks a read is split; by default, one a topic-partition.

    Attributes:
        min_partitions: about how many tasks there are to be at least, or None.
        max_records: the most offsets that a task may have, or None.
    """

    min_partitions: int | None = None
    max_records: int | None = None

    def is_due(self, ranges: Sequence[OffsetRange]) -> bool:
        """Whether ranges of all partitions, where sentinels count as the numbers that they are, are to be split.

        A batch read decides so, before it looks up what -2 and -1 stand for. From earliest to latest is thus a size
        of 1, which `max_records` alone never splits.
        """
        return (self.min_partitions or 0) > len(ranges) or any(
            one.end - one.start > (self.max_records or math.inf) for one in ranges
        )

    def split(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        """The pieces of ranges, those of one range one after the other; ranges without offsets have none."""
        found = [one for one in ranges if one.start < one.end]
        if self.max_records is not None:
            found = [piece for one in found for piece in _pieces(one, math.ceil(_size(one) / self.max_records))]
        if self.min_partitions is None or self.min_partitions <= len(found):
            return found
        # What is small stays whole, and has no part in how the tasks that are left are shared out.
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
    # Halves go up, as in Java; Python's `round` takes the even number.
    return max(math.floor(_size(one) / total * tasks + 0.5), 1)


def _pieces(one: OffsetRange, count: int) -> list[OffsetRange]:
    """`count` pieces, the later ones larger by what does not come out even; fewer where there are fewer offsets."""
    pieces, start = [], one.start
    for number in range(count):
        end = start + (one.end - start) // (count - number)
        if start < end:
            pieces.append(OffsetRange(one.at, start, end))
        start = end
    return pieces


_LONG_MAX = 2**63 - 1


def limit_ends(
    limit: int, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> Offsets:
    """The ends of a batch of about `limit` offsets, shared in proportion to what each partition has.

    The arithmetic is that of the Kafka connector (KafkaMicroBatchStream.rateLimit): a share below 1 is rounded
    up, so that a small partition is never starved, and any other down. So a batch can be a little larger or
    smaller than the limit. It works in doubles, as there, to cut batches at the same offsets.

    Args:
        limit: offsets for all partitions together.
        starts: where each partition of `ends` begins.
        ends: how far there is anything to read. A partition whose end is not above its start keeps it.
    """
    sizes = {at: end - starts[at] for at, end in ends.items() if end > starts[at]}
    total = float(sum(sizes.values()))
    limited = dict(ends)
    for at, size in sizes.items():
        share = limit * (size / total)
        whole = min(math.ceil(share) if share < 1 else math.floor(share), _LONG_MAX)
        limited[at] = min(ends[at], starts[at] + whole)
    return limited
