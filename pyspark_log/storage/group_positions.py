"""What groups have committed: the topic `__consumer_offsets`, and what is decided to be added to it.

The log is the truth; what is held in memory is a view that follows it. A group's records all lie in one
partition, chosen by its name's hash, so one append commits all positions of a call together, and the newest
record of a key counts. A null value takes a position back.

A publish can move positions too. Their records are a part of its decision, and count from the moment when that is
made, not only when it is applied.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from pyspark_log.storage import coordinator_records as records
from pyspark_log.storage import manifest, store_folder
from pyspark_log.storage.batch import CRC_AT
from pyspark_log.storage.config import store_setting
from pyspark_log.storage.decision import Decision, Place
from pyspark_log.storage.decision_log import DecisionLog
from pyspark_log.storage.encoder import encode
from pyspark_log.storage.errors import (
    CorruptRecordError,
    InvalidConfigError,
    OffsetConflictError,
    StagedOutputError,
    TopicExistsError,
    UnknownTopicError,
)
from pyspark_log.storage.isolation import READ_COMMITTED
from pyspark_log.storage.locks import Mutex
from pyspark_log.storage.staging import StagedPart
from pyspark_log.storage.store import Store
from pyspark_log.storage.store_folder import STAGING_FOLDER
from pyspark_log.storage.topics import OFFSETS_TOPIC
from pyspark_log.storage.types import EARLIEST, OffsetStep, TopicPartition

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


# ---- writing


def place_of(store: Store, group: str) -> Place:
    """The partition that holds a group's positions; its topic is made if need be."""
    try:
        topic = store.describe_topic(OFFSETS_TOPIC)
    except UnknownTopicError:
        try:
            count = int(str(store_setting(store.settings, "offsets.topic.num.partitions")))
            store.create_topic(OFFSETS_TOPIC, count, _TOPIC_CONFIGS)
        except TopicExistsError:
            pass  # another process was faster
        topic = store.describe_topic(OFFSETS_TOPIC)
    return Place(OFFSETS_TOPIC, topic.topic_id, records.partition_for(group, topic.partitions))


def check(group: str, offsets: Mapping[TopicPartition, int], metadata: str = "") -> None:
    """Refuses positions that nobody could commit. InvalidConfigError."""
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


def encoded(
    store: Store, group: str, offsets: Mapping[TopicPartition, int], metadata: str, now: int
) -> list[bytes]:
    """The record batches that commit positions, for the group's partition; `now` in ms."""
    keys = [records.OffsetCommitKey(group, at.topic, at.partition) for at in offsets]
    values = [records.OffsetCommitValue(offset, -1, metadata, now) for offset in offsets.values()]
    data = pa.record_batch({
        "key": pa.array(map(records.encode_offset_key, keys), pa.binary()),
        "value": pa.array(map(records.encode_offset_value, values), pa.binary()),
    })
    # As if there were one partition only: which of them it is, is known.
    return encode(OFFSETS_TOPIC, 1, store.topic_config(OFFSETS_TOPIC), data, now)[0]


def staged(store: Store, steps: Sequence[OffsetStep], now: int) -> list[StagedPart]:
    """The records that a publish adds to `__consumer_offsets` to move positions; `now` in ms.

    Raises:
        InvalidConfigError: a position is moved twice, or is none that can be committed.
    """
    moved: dict[str, dict[TopicPartition, int]] = {}
    for step in steps:
        offsets = moved.setdefault(step.group, {})
        if step.at in offsets:
            raise InvalidConfigError(f"group {step.group}: one publish cannot move its position in {step.at} twice")
        offsets[step.at] = step.offset
    parts = []
    for group, offsets in moved.items():
        check(group, offsets)
        place = place_of(store, group)
        batches = encoded(store, group, offsets, "", now)
        data, crcs = b"".join(batches), b"".join(batch[CRC_AT : CRC_AT + 4] for batch in batches)
        parts.append(StagedPart(**place._asdict(), count=len(offsets), size=len(data), crcs=crcs, data=data))
    return parts


# ---- reading


def committed(store: Store, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
    """The positions of a group: those that its log holds, and on top of them those that are decided to follow.

    Empty for a group that nobody has heard of. Reads only what is new since the last call, and writes nothing.

    Raises:
        CorruptRecordError: a record of the group's partition cannot be understood.
        StagedOutputError: what a decision that is not applied does to them cannot be found out.
    """
    decisions = DecisionLog.of(store)
    while True:
        decisions.follow(store)
        # Before the log is read: what is applied from now on is found there.
        undone = decisions.in_order()
        place, applied, positions = GroupPositions.of(store).read(store, group)
        try:
            for decision in undone:
                if decision.offset > applied and place in decision.places:
                    positions |= _decided(store, group, decision)
        except FileNotFoundError as error:
            decisions.follow(store)
            if decision.offset in decisions.undone:
                raise StagedOutputError(
                    f"decision {decision.offset} of publisher {decision.publisher!r}, which moves positions of group "
                    f"{group!r} or its neighbours: its manifest {error.filename} is missing"
                ) from None
        else:
            return positions


def _decided(store: Store, group: str, decision: Decision) -> dict[TopicPartition, OffsetAndMetadata]:
    folder = f"{store.path}/{STAGING_FOLDER}"
    steps = manifest.read_steps(folder, decision.manifest, decision.manifest_crc)
    return {step.at: OffsetAndMetadata(step.offset, -1, "", decision.time) for step in steps if step.group == group}


def check_unmoved(store: Store, steps: Sequence[OffsetStep]) -> None:
    """Refuses steps that do not start from the committed positions. OffsetConflictError; errors as of `committed`.

    The locks of the decision log and of the groups' partitions are held, so what is found stays so.
    """
    known: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
    for step in steps:
        if step.group not in known:
            known[step.group] = committed(store, step.group)
        position = known[step.group].get(step.at)
        found = None if position is None else position.offset
        if found != step.expected:
            raise OffsetConflictError(step.group, step.at.topic, step.at.partition, step.expected, found)


class GroupPositions:
    """The positions that a store's log holds, as this process has read them. Safe to use from several threads."""

    def __init__(self) -> None:
        self._mutex = Mutex()
        self._stamp = (-1, -1)  # of the store that all this was read in
        self._topic_id = ""
        self._views: list[_PartitionView] = []

    @classmethod
    def of(cls, store: Store) -> GroupPositions:
        """The positions of an open store: one object as long as the store's lives."""
        with _known_mutex:
            found = _known.get(store)
            if found is None:
                found = _known[store] = cls()
            return found

    def read(self, store: Store, group: str) -> tuple[Place | None, int, dict[TopicPartition, OffsetAndMetadata]]:
        """A group's partition (None: there is no such topic), the last decision applied there, and its positions."""
        _put_right(store, group)
        with self._mutex:
            views = self._current_views(store)
            if not views:
                return None, -1, {}
            view = views[records.partition_for(group, len(views))]
            if store.is_brokers:
                # It need not have all partitions of the topic, so how many there are is not known.
                for view in views:
                    view.follow(store)
                view = next((one for one in views if group in one.groups), view)
            applied = view.follow(store)
            place = Place(OFFSETS_TOPIC, self._topic_id, view.partition)
            return place, applied, dict(view.groups.get(group, {}))

    def groups(self, store: Store) -> list[str]:
        """The names of all groups with a position in the log, sorted."""
        _put_right(store)
        with self._mutex:
            views = self._current_views(store)
            for view in views:
                view.follow(store)
            return sorted(name for view in views for name in view.groups)

    def _current_views(self, store: Store) -> list[_PartitionView]:
        """One view a partition; new ones if the topic was made anew, or the store was replaced by a copy."""
        stamp = store_folder.stamp(store.path)
        if stamp != self._stamp:
            self._stamp, self._topic_id = stamp, ""
        try:
            topic = store.describe_topic(OFFSETS_TOPIC)
        except UnknownTopicError:
            self._topic_id, self._views = "", []
            return self._views
        if topic.topic_id != self._topic_id:
            self._views = [_PartitionView(number) for number in range(topic.partitions)]
            self._topic_id = topic.topic_id
        return self._views


def _put_right(store: Store, group: str | None = None) -> None:
    """After a power loss: puts a group's partition right, or all. It can wait for a lock, so the mutex must be free:
    who holds the lock may look for positions.
    """
    with contextlib.suppress(UnknownTopicError):
        count = store.describe_topic(OFFSETS_TOPIC).partitions
        for partition in range(count) if group is None else [records.partition_for(group, count)]:
            store.recovered(OFFSETS_TOPIC, partition)


_known: weakref.WeakKeyDictionary[Store, GroupPositions] = weakref.WeakKeyDictionary()
_known_mutex = Mutex()


class _PartitionView:
    """What one partition of the log says, up to a position."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.groups: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
        self._position = EARLIEST

    def follow(self, store: Store) -> int:
        """Reads on to the log's end; gives the last decision that is applied up to there."""
        state = store.recovered(OFFSETS_TOPIC, self.partition).state()
        end = state.next_offset
        if store.is_brokers:
            # Kafka's clients commit in transactions, which are appended like others.
            end = store.latest_offset(OFFSETS_TOPIC, self.partition, isolation_level=READ_COMMITTED)
        if self._position == EARLIEST:
            self._position = state.log_start
        if self._position < end:
            self._read(store, end)
        return state.applied

    def _read(self, store: Store, end: int) -> None:
        for batch in store.read(OFFSETS_TOPIC, self.partition, self._position, end, isolation_level=READ_COMMITTED):
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
