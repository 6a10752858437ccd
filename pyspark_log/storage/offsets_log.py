"""Committed positions of consumer groups, kept in the topic `__consumer_offsets` as Kafka keeps them.

The log is the truth; what is held in memory is a view that follows it. A group's records all lie in one
partition, chosen by its name's hash, so one append commits all positions of a call together, and the newest
record of a key counts. A null value takes a position back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from pyspark_log.storage import coordinator_records as records
from pyspark_log.storage.config import store_setting
from pyspark_log.storage.errors import (
    CorruptRecordError,
    InvalidConfigError,
    TopicExistsError,
    UnknownTopicError,
)
from pyspark_log.storage.locks import Mutex
from pyspark_log.storage.store import Store
from pyspark_log.storage.topics import OFFSETS_TOPIC
from pyspark_log.storage.types import EARLIEST, TopicPartition

#: Kafka's `offset.metadata.max.bytes`.
MAX_METADATA_BYTES = 4096

_TOPIC_CONFIGS = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    "max.message.bytes": "1048588",
    # Kafka's offsets.topic.segment.bytes: small segments let compaction keep the log short to load.
    "segment.bytes": str(100 << 20),
}


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A committed position.

    Attributes:
        offset: the offset of the next record to read.
        leader_epoch: leader epoch of the last record that was read, or -1 if the committer did not say.
        metadata: a text of the committer's own, "" if none.
        commit_timestamp: when it was committed, in ms since 1970.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int


class OffsetsLog:
    """Commits and fetches positions of groups; safe to use from several threads and processes."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self._mutex = Mutex()
        self._topic_id = ""
        self._views: list[_PartitionView] = []

    def commit(self, group: str, offsets: Mapping[TopicPartition, int], metadata: str = "") -> None:
        """Commits the offsets of the next records to read, all of them or none.

        Makes the topic if the store has none (`offsets.topic.num.partitions` partitions, Kafka's 50).

        Raises:
            InvalidConfigError: the group has no name, an offset is negative, or `metadata` is larger than
                4096 bytes; nothing was written.
        """
        _check(group, offsets, metadata)
        if not offsets:
            return
        now = int(self._clock() * 1000)
        keys = [records.OffsetCommitKey(group, at.topic, at.partition) for at in offsets]
        values = [records.OffsetCommitValue(offset, -1, metadata, now) for offset in offsets.values()]
        batch = pa.record_batch({
            "key": pa.array(map(records.encode_offset_key, keys), pa.binary()),
            "value": pa.array(map(records.encode_offset_value, values), pa.binary()),
            "timestamp": pa.array([now] * len(keys), pa.int64()),
        })
        partition = records.partition_for(group, self._make_topic())
        self._store.append_to(OFFSETS_TOPIC, batch, partition=partition)

    def fetch(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """The positions of a group; empty for one that nobody has heard of.

        Reads only what was committed since the last call.

        Raises:
            CorruptRecordError: a record of the group's partition cannot be understood.
        """
        with self._mutex:
            views = self._current_views()
            if not views:
                return {}
            view = views[records.partition_for(group, len(views))]
            view.follow(self._store)
            return dict(view.groups.get(group, {}))

    def groups(self) -> list[str]:
        """The names of all groups with a committed position, sorted."""
        with self._mutex:
            views = self._current_views()
            for view in views:
                view.follow(self._store)
            return sorted(name for view in views for name in view.groups)

    def _make_topic(self) -> int:
        """How many partitions the topic has, after making it if need be."""
        try:
            return self._store.describe_topic(OFFSETS_TOPIC).partitions
        except UnknownTopicError:
            pass
        try:
            count = int(str(store_setting(self._store.settings, "offsets.topic.num.partitions")))
            self._store.create_topic(OFFSETS_TOPIC, count, _TOPIC_CONFIGS)
        except TopicExistsError:
            pass  # another process was faster
        return self._store.describe_topic(OFFSETS_TOPIC).partitions

    def _current_views(self) -> list[_PartitionView]:
        """One view a partition; new ones if the topic was made anew."""
        try:
            topic = self._store.describe_topic(OFFSETS_TOPIC)
        except UnknownTopicError:
            self._topic_id, self._views = "", []
            return self._views
        if topic.topic_id != self._topic_id:
            self._views = [_PartitionView(number) for number in range(topic.partitions)]
            self._topic_id = topic.topic_id
        return self._views


class _PartitionView:
    """What one partition of the log says, up to a position."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.groups: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
        self._position = EARLIEST

    def follow(self, store: Store) -> None:
        """Reads on to the log's end."""
        end = store.latest_offset(OFFSETS_TOPIC, self.partition)
        if self._position == EARLIEST:
            self._position = store.earliest_offset(OFFSETS_TOPIC, self.partition)
        if self._position >= end:
            return
        for batch in store.read(OFFSETS_TOPIC, self.partition, self._position, end):
            keys, values, offsets = (batch.column(name).to_pylist() for name in ("key", "value", "offset"))
            for key, value, offset in zip(keys, values, offsets, strict=True):
                try:
                    self._apply(key, value)
                except ValueError as error:
                    raise CorruptRecordError(
                        f"the record at offset {offset} is no group record of Kafka's: {error}",
                        base_offset=offset, topic=OFFSETS_TOPIC, partition=self.partition,
                    ) from error
        self._position = end

    def _apply(self, key: bytes | None, value: bytes | None) -> None:
        what = records.decode_key(key or b"")
        if not isinstance(what, records.OffsetCommitKey):
            return  # members and generations are not kept here
        at = TopicPartition(what.topic, what.partition)
        if value is not None:
            kept = records.decode_offset_value(value)
            self.groups.setdefault(what.group, {})[at] = OffsetAndMetadata(
                kept.offset, kept.leader_epoch, kept.metadata, kept.commit_timestamp
            )
        elif what.group in self.groups:
            positions = self.groups[what.group]
            positions.pop(at, None)
            if not positions:
                del self.groups[what.group]


def _check(group: str, offsets: Mapping[TopicPartition, int], metadata: str) -> None:
    if not group:
        raise InvalidConfigError("a group needs a name")
    for at, offset in offsets.items():
        if offset < 0:
            raise InvalidConfigError(f"group {group}: offset {offset} for {at} is negative")
    size = len(metadata.encode())
    if size > MAX_METADATA_BYTES:
        raise InvalidConfigError(
            f"group {group}: metadata of {size} bytes; offset.metadata.max.bytes is {MAX_METADATA_BYTES}"
        )
