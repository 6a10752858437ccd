"""The committed offsets of groups: the topic `__consumer_offsets`, and decided moves that are not applied to it yet.

The log is authoritative; the state in memory is a view that follows it. A group's records are all in one
partition, chosen by the hash of its name, so one append commits all offsets of a call atomically, and the newest
record of a key counts. A null value deletes a committed offset.

A publish can move committed offsets too. Their records are part of its decision, and count as soon as it is made,
not only when it is applied.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from pyspark_log.arguments import check_text, check_whole
from pyspark_log.config import INT_MAX
from pyspark_log.errors import (
    CorruptRecordError,
    InvalidConfigError,
    OffsetConflictError,
    StagedOutputError,
    UnknownTopicError,
)
from pyspark_log.storage.catalog import OFFSETS_TOPIC, check_name, store_json
from pyspark_log.storage.catalog.store_json import STAGING_FOLDER
from pyspark_log.storage.compaction import compact_if_due
from pyspark_log.storage.fs import Mutex, contextmanager
from pyspark_log.storage.fs.locking import timeouts
from pyspark_log.storage.fs.locking.timeouts import DEFAULT_TIMEOUT
from pyspark_log.storage.groups.log import modern_group, records
from pyspark_log.storage.groups.log.metadata import (
    GroupDescription,
    GroupMetadataValue,
    GroupState,
    decode_group_value,
    topics_read,
)
from pyspark_log.storage.groups.log.view import GroupRecords, OffsetAndMetadata, PartitionView
from pyspark_log.storage.groups.members.file_group import FileGroup
from pyspark_log.storage.groups.members.member_files import MemberFiles
from pyspark_log.storage.ingest import encode_pairs, packed
from pyspark_log.storage.log_manager import LogManager, TopicAdmin
from pyspark_log.storage.publish import Decision, DecisionLog, StagedPart, TopicIdPartition
from pyspark_log.storage.publish.applier import apply_in, waits_in
from pyspark_log.storage.publish.staging import manifest
from pyspark_log.storage.record.layout import CRC_AT
from pyspark_log.types import OffsetStep, TopicPartition

#: Kafka's `offset.metadata.max.bytes`.
MAX_METADATA_BYTES = 4096
# The longest text in Kafka's group records.
_MAX_NAME_BYTES = 0x7FFF

_TOPIC_CONFIGS = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    # How long a tombstone must survive so that followers observe the deletion.
    "delete.retention.ms": "86400000",
    "max.message.bytes": "1048588",
    # Kafka has 100 MiB. Only inactive segments are compacted, and each process reads this whole log: so all 50
    # partitions together stay below 13 MiB, besides the newest record of each key.
    "segment.bytes": str(256 << 10),
}


# ---- writing


def place_of(logs: LogManager, group: str) -> TopicIdPartition:
    """The partition of a group's committed offsets; creates the topic if needed."""
    topic = TopicAdmin(logs).internal(OFFSETS_TOPIC, "offsets.topic.num.partitions", _TOPIC_CONFIGS)
    return TopicIdPartition(OFFSETS_TOPIC, topic.topic_id, records.partition_for(group, topic.partitions))


def check(group: str, offsets: Mapping[TopicPartition, int], metadata: str = "") -> None:
    """Refuses offsets that cannot be committed. InvalidConfigError; InvalidTopicError: the topic's name is invalid."""
    if not group:
        raise InvalidConfigError("a group needs a name")
    check_text("a group's name", group, _MAX_NAME_BYTES)
    for at, offset in offsets.items():
        check_name(at.topic)
        check_whole(f"group {group}, topic {at.topic}: partition", at.partition, high=INT_MAX)
        if offset < 0:
            raise InvalidConfigError(f"group {group}: offset {offset} for {at} is negative")
        check_whole(f"group {group}: offset for {at}", offset)
    check_text(f"group {group}: metadata", metadata)
    size = len(metadata.encode())
    if size > MAX_METADATA_BYTES:
        raise InvalidConfigError(
            f"group {group}: metadata of {size} bytes; offset.metadata.max.bytes is {MAX_METADATA_BYTES}"
        )


def encoded(
    logs: LogManager,
    group: str,
    offsets: Mapping[TopicPartition, int],
    metadata: str,
    now: int,
    expire_timestamp: int = -1,
) -> list[bytes]:
    """The record batches that commit offsets, for the group's partition; `now` and `expire_timestamp` in ms."""
    values = [records.OffsetCommitValue(offset, -1, metadata, now, expire_timestamp) for offset in offsets.values()]
    return batches_of(logs, offset_keys(group, offsets), list(map(records.encode_offset_value, values)), now)


def offset_keys(group: str, partitions: Collection[TopicPartition]) -> list[bytes]:
    """The keys of a group's committed offsets for some partitions."""
    return [records.encode_offset_key(records.OffsetCommitKey(group, at.topic, at.partition)) for at in partitions]


def tombstones(logs: LogManager, keys: Sequence[bytes], now: int) -> list[bytes]:
    """The record batches of tombstones for some keys, for their partition; `now` in ms."""
    return batches_of(logs, keys, [None] * len(keys), now)


def batches_of(logs: LogManager, keys: Sequence[bytes], values: Sequence[bytes | None], now: int) -> list[bytes]:
    """The record batches of some keys and values, for their partition; `now` in ms."""
    # Built as for a topic with one partition: the caller knows the partition.
    return encode_pairs(OFFSETS_TOPIC, logs.topic_config(OFFSETS_TOPIC), keys, values, now)


# ---- reading


def describe_classic(group: str, value: GroupMetadataValue | None, has_offsets: bool) -> GroupDescription:
    """Describes a group of the classic protocol from its metadata, whose members are a server's. CorruptRecordError."""
    if value is None:
        return GroupDescription(group, GroupState.EMPTY if has_offsets else GroupState.DEAD)
    try:
        topics = topics_read(value)
    except ValueError as error:
        raise malformed(group, error) from error
    state = GroupState.STABLE if value.members else GroupState.EMPTY
    return GroupDescription(group, state, value.protocol or "", value.members, topics, value.protocol_type)


def _described(
    group: str, value: GroupMetadataValue | None, has_offsets: bool, members: MemberFiles
) -> GroupDescription:
    """The same of one whose members may share the store's files."""
    if value is None or not value.is_of_files:
        return describe_classic(group, value, has_offsets)
    try:
        is_settled = FileGroup.decode(value).is_settled
    except ValueError as error:
        raise malformed(group, error) from error
    living = replace(value, members=tuple(filter(members.counts, value.members)))
    described = describe_classic(group, living, has_offsets)
    return described if is_settled or not living.members else replace(described, state=GroupState.RECONCILING)


def malformed(group: str, error: ValueError) -> CorruptRecordError:
    """What a record of a group's members is that cannot be decoded."""
    return CorruptRecordError(
        f"{OFFSETS_TOPIC}: the record of the members of group {group!r} is not in a format of Kafka's: {error}"
    )


@lru_cache(maxsize=64)
def _decoded(members: bytes) -> GroupMetadataValue:
    """As decode_group_value; each commit of a member asks for the same again."""
    return decode_group_value(members)


class CommittedOffsets:
    """A store's committed offsets, as this process has read them. Thread-safe.

    Attributes:
        logs: the store's logs.
        decisions: the store's decisions, which can also move committed offsets.
    """

    def __init__(self, decisions: DecisionLog) -> None:
        """Creates an empty view."""
        self.logs, self.decisions = decisions.logs, decisions
        self._mutex = Mutex()
        self._stamp = (-1, -1)  # of the store that all this was read from
        self._topic_id = ""
        self._views: list[PartitionView] = []
        self._next_check: int | None = None  # when to check for expired offsets

    def read(self, group: str) -> tuple[TopicIdPartition | None, int, dict[TopicPartition, OffsetAndMetadata]]:
        """A group's partition (None: no such topic), the last decision applied there, and the committed offsets."""
        _recover(self.logs, group)
        with self._mutex.lock:
            found = self._view_of(group)
            if found is None:
                return None, -1, {}
            view, applied = found
            place = TopicIdPartition(OFFSETS_TOPIC, self._topic_id, view.partition)
            return place, applied, dict(view.groups.get(group, _NO_RECORDS).offsets)

    def pending(self, group: str) -> set[TopicPartition]:
        """The partitions for which an open transaction may commit an offset of a group."""
        _recover(self.logs, group)
        with self._mutex.lock:
            found = self._view_of(group)
            return set() if found is None else found[0].pending(group)

    def records(self, group: str) -> GroupRecords:
        """A group's current records in the log."""
        _recover(self.logs, group)
        with self._mutex.lock:
            found = self._view_of(group)
            return _NO_RECORDS if found is None else _copy(found[0].groups.get(group, _NO_RECORDS))

    def committed(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """The committed offsets of a group: those in the log, overlaid with decided moves that are still pending.

        Those below 0 are among them, though they say that the group has none.

        Empty for an unknown group. Reads only what is new since the last call, and writes nothing.

        Raises:
            CorruptRecordError: a record of the group's partition cannot be decoded.
            StagedOutputError: a pending decision's moves cannot be read.
        """
        decisions = self.decisions
        while True:
            decisions.follow()
            # Before the log is read: decisions applied from now on are found there.
            undone = decisions.in_order()
            place, applied, committed = self.read(group)
            try:
                for decision in undone:
                    if decision.offset > applied and place in decision.places:
                        committed |= _decided(self.logs, group, decision)
            except FileNotFoundError as error:
                decisions.follow()
                if decision.offset in decisions.undone:
                    raise StagedOutputError(
                        f"decision {decision.offset} of publisher {decision.publisher!r}, which commits offsets of "
                        f"group {group!r} or its neighbours: its manifest {error.filename} is missing"
                    ) from None
            else:
                return committed

    def described(self, group: str) -> GroupDescription:
        """Describes a group from its records. Raises: as `committed`."""
        known = self.records(group)
        if known.modern:
            names = {}
            for name in self.logs.topics(internal=True):
                with contextlib.suppress(UnknownTopicError):  # It may be deleted by now.
                    names[self.logs.describe_topic(name).topic_id] = name
            return modern_group.described(group, known.modern, names.get)
        members = MemberFiles(self.logs.path)
        return _described(group, self.metadata(group), bool(self.committed(group)), members)

    def metadata(self, group: str) -> GroupMetadataValue | None:
        """The members of a group of the classic protocol; None: it never had any. CorruptRecordError."""
        members = self.records(group).metadata
        try:
            return None if members is None else _decoded(members)
        except ValueError as error:
            raise malformed(group, error) from error

    def has_died(self, group: str) -> bool:
        """Whether a group has members that share the store's files, and none of them lives. CorruptRecordError."""
        value, members = self.metadata(group), MemberFiles(self.logs.path)
        return value is not None and value.is_of_files and not any(map(members.counts, value.members))

    def append(
        self, place: TopicIdPartition, make: Callable[[], list[bytes]], timeout: float = DEFAULT_TIMEOUT
    ) -> None:
        """Appends the batches that `make` returns under the partition's lock, after applying all pending decisions.

        If it rolls a segment, it compacts the inactive ones, so that the log stays small without any other process.
        """
        logs = self.logs
        while True:
            apply_in(self.decisions, place, timeout)
            with logs.writer(place.topic, place.partition).hold(timeout) as writer:
                # A publish that moves committed offsets holds this lock too, so nothing comes between check and append.
                if waits_in(self.decisions, place, writer.state.applied):
                    continue
                active = writer.state.active_base
                for pack in packed(make(), writer.config.segment_bytes):
                    writer.append(pack, sync=False)
                if writer.state.active_base == active:
                    return
            compact_if_due(logs, TopicPartition(place.topic, place.partition))
            return

    def check_unmoved(self, steps: Sequence[OffsetStep]) -> None:
        """Refuses steps that do not start from the committed offsets. OffsetConflictError; raises also as `committed`.

        The locks of the groups' partitions are held, so the result stays valid.
        """
        known: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
        for step in steps:
            if step.group not in known:
                known[step.group] = self.committed(step.group)
            committed = known[step.group].get(step.at)
            found = None if committed is None or committed.offset < 0 else committed.offset
            if found != step.expected:
                raise OffsetConflictError(step.group, step.at.topic, step.at.partition, step.expected, found)

    def groups(self) -> list[str]:
        """The names of all groups with a record in the log, sorted."""
        _recover(self.logs)
        with self._mutex.lock:
            views = self._current_views()
            for view in views:
                view.follow(self.logs)
            return sorted(name for view in views for name in view.groups)

    def is_check_due(self, now: int, interval: int) -> bool:
        """Whether this process should check for expired offsets at `now`: once every `interval` ms, so True resets the
        timer. It skips its first `interval`.
        """
        if self._next_check is None:
            self._next_check = now + interval
        if now < self._next_check:
            return False
        self._next_check = now + interval
        return True

    def in_partition(self, partition: int) -> tuple[TopicIdPartition, dict[str, GroupRecords]]:
        """A partition of the topic, and all its groups' records. UnknownTopicError."""
        self.logs.recovered(OFFSETS_TOPIC, partition)
        with self._mutex.lock:
            views = self._current_views()
            if partition >= len(views):
                raise UnknownTopicError(f"there is no partition {OFFSETS_TOPIC}-{partition}")
            view = views[partition]
            view.follow(self.logs)
            groups = {name: _copy(one) for name, one in view.groups.items()}
            return TopicIdPartition(OFFSETS_TOPIC, self._topic_id, partition), groups

    def _view_of(self, group: str) -> tuple[PartitionView, int] | None:
        """The up-to-date view with a group, and the last decision applied there. The mutex is held."""
        views = self._current_views()
        if not views:
            return None
        view = views[records.partition_for(group, len(views))]
        if self.logs.is_brokers:
            # The folder need not have all partitions of the topic, so their number is not known.
            for one in views:
                one.follow(self.logs)
            view = next((one for one in views if group in one.groups), view)
        return view, view.follow(self.logs)

    def _current_views(self) -> list[PartitionView]:
        """One view per partition; new ones if the topic was recreated, or the store was replaced by a copy."""
        stamp = store_json.stamp(self.logs.path)
        if stamp != self._stamp:
            self._stamp, self._topic_id = stamp, ""
        try:
            topic = self.logs.describe_topic(OFFSETS_TOPIC)
        except UnknownTopicError:
            self._topic_id, self._views = "", []
            return self._views
        if topic.topic_id != self._topic_id:
            self._views = [PartitionView(number) for number in range(topic.partitions)]
            self._topic_id = topic.topic_id
        return self._views


def _decided(logs: LogManager, group: str, decision: Decision) -> dict[TopicPartition, OffsetAndMetadata]:
    folder = f"{logs.path}/{STAGING_FOLDER}"
    steps = manifest.read_steps(folder, decision.manifest, decision.manifest_crc)
    return {
        step.at: OffsetAndMetadata(step.offset, -1, "", decision.time, records.NEVER)
        for step in steps
        if step.group == group
    }


@dataclass(frozen=True)
class OffsetMoves:
    """Moves of committed offsets that are atomic with a publish (see publish.Participant).

    Attributes:
        offsets: the store's committed offsets.
        steps: the moves; each names its required current offset.
    """

    offsets: CommittedOffsets
    steps: Sequence[OffsetStep]

    def parts(self) -> list[StagedPart]:
        """The records that a publish adds to `__consumer_offsets` to move the offsets.

        These offsets never expire: a publisher that continues from them takes a missing one for a fresh start, and
        would process everything again.

        Raises:
            InvalidConfigError: an offset is moved twice, or cannot be committed.
        """
        moved: dict[str, dict[TopicPartition, int]] = {}
        for step in self.steps:
            offsets = moved.setdefault(step.group, {})
            if step.at in offsets:
                raise InvalidConfigError(f"group {step.group}: one publish cannot commit two offsets of {step.at}")
            offsets[step.at] = step.offset
        parts, now = [], self.offsets.logs.clock()
        for group, offsets in moved.items():
            check(group, offsets)
            place = place_of(self.offsets.logs, group)
            batches = encoded(self.offsets.logs, group, offsets, "", now, records.NEVER)
            data, crcs = b"".join(batches), b"".join(batch[CRC_AT : CRC_AT + 4] for batch in batches)
            parts.append(StagedPart(**place._asdict(), count=len(offsets), size=len(data), crcs=crcs, data=data))
        return parts

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Locks the groups' partitions, so that no process commits for them between `check` and the decision.

        A process that locks a partition after the decision finds the decision, and applies it first.
        """
        logs = self.offsets.logs
        with contextlib.ExitStack() as held:
            for partition in sorted({place_of(logs, step.group).partition for step in self.steps}):
                writer = held.enter_context(logs.writer(OFFSETS_TOPIC, partition).hold(timeouts.WHILE_DECIDING))
                if writer.state.synced < writer.state.position:
                    writer.log.flush()  # The decision must not outlive the offset that it starts from.
            yield

    def check(self) -> None:
        """Refuses moves that do not start from the committed offsets. OffsetConflictError; others as `committed`."""
        self.offsets.check_unmoved(self.steps)


def _recover(logs: LogManager, group: str | None = None) -> None:
    """Recovers a group's partition, or all, after a power loss. It may wait for a lock, so the mutex must be free: the
    lock's holder may read committed offsets.
    """
    with contextlib.suppress(UnknownTopicError):
        count = logs.describe_topic(OFFSETS_TOPIC).partitions
        for partition in range(count) if group is None else [records.partition_for(group, count)]:
            logs.recovered(OFFSETS_TOPIC, partition)


def _copy(group: GroupRecords) -> GroupRecords:
    return replace(group, offsets=dict(group.offsets), modern=dict(group.modern))


_NO_RECORDS = GroupRecords()
