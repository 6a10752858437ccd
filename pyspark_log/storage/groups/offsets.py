"""Committed offsets of consumer groups, stored in the topic `__consumer_offsets` as Kafka stores them."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Protocol
from zlib import crc32

from pyspark_log.arguments import check_whole
from pyspark_log.config import int_config
from pyspark_log.errors import (
    CorruptRecordError,
    GroupNotEmptyError,
    LockTimeoutError,
    PartitionOwnedError,
    PublishError,
    PylogError,
    RecordTooLargeError,
    UnknownGroupError,
    UnknownTopicError,
)
from pyspark_log.group_records import RecordKey, Value
from pyspark_log.storage.abilities import Missing, refuse
from pyspark_log.storage.catalog import OFFSETS_TOPIC
from pyspark_log.storage.catalog.store_json import STATE_FOLDER
from pyspark_log.storage.compaction import compact_if_due
from pyspark_log.storage.fs import FileLock, files, lock_for, timeouts
from pyspark_log.storage.fs.timeouts import DEFAULT_TIMEOUT
from pyspark_log.storage.groups import committed_offsets, expiry, records
from pyspark_log.storage.groups.changes import GroupChange
from pyspark_log.storage.groups.committed_offsets import CommittedOffsets
from pyspark_log.storage.groups.file_group import FileGroup
from pyspark_log.storage.groups.member_files import MemberFiles
from pyspark_log.storage.groups.metadata import (
    GroupDescription,
    GroupMetadataValue,
    GroupState,
    decode_group_value,
    encode_group_value,
)
from pyspark_log.storage.groups.modern_group import decoded
from pyspark_log.storage.groups.view import GroupRecords, OffsetAndMetadata
from pyspark_log.storage.ingest import packed
from pyspark_log.storage.publish import TopicIdPartition
from pyspark_log.storage.publish.applier import apply_in, waits_in
from pyspark_log.storage.record.builder import BatchBuilder, RecordColumns
from pyspark_log.storage.seam import Membership, Offsets
from pyspark_log.types import OffsetStep, TopicPartition

if TYPE_CHECKING:
    from pyspark_log.storage.groups.handles import Groups

log = logging.getLogger(__name__)

_NO_MEMBERS = FileGroup(0, "", {})


class HasGroups(Protocol):
    """A store."""

    @property
    def groups(self) -> Groups[Offsets]:
        """The store's groups."""


class OffsetsLog(Offsets, Membership):
    """The offsets of a store in a folder, for its users, and for a coordinator of groups.

    Attributes:
        NEVER: as the expiry of a commit: its offsets stay until they are deleted.
    """

    NEVER: ClassVar[int] = records.NEVER
    interval_ms = 0

    def __init__(self, store: HasGroups | CommittedOffsets, clock: Callable[[], float] | None = None) -> None:
        """`clock` gives the time of commits, in seconds since 1970; None: the store's clock.

        UnsupportedByStoreError: the store has no topic of offsets.
        """
        self._offsets = store if isinstance(store, CommittedOffsets) else _committed_offsets(store.groups.log)
        self._logs = logs = self._offsets.logs
        self._clock = clock
        self.retention_ms = int_config(logs.configs, "offsets.retention.minutes") * 60_000
        self._check_interval_ms = int_config(logs.configs, "offsets.retention.check.interval.ms")

    @property
    def writable(self) -> bool:
        return self._logs.writable

    def check_writable(self) -> None:
        self._logs.check_writable()

    def now(self) -> int:
        return self._logs.clock() if self._clock is None else int(self._clock() * 1000)

    def lock(self, group: str, purpose: str) -> FileLock:
        path = f"{self._logs.path}/{STATE_FOLDER}/{purpose}-{crc32(group.encode())}.lock"
        files.make_folder(os.path.dirname(path))
        files.open_or_create(path).close()
        return lock_for(path)

    # ---- committing

    def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int],
        metadata: str = "",
        *,
        expire_timestamp: int = -1,
        expected: Mapping[TopicPartition, int | None] | None = None,
        member: str | None = None,
    ) -> None:
        committed_offsets.check(group, offsets, metadata)
        committed_offsets.check(group, dict.fromkeys(expected or {}, 0))
        check_whole(f"group {group}: expiry", expire_timestamp, low=-1)
        if not offsets:
            return
        logs, now = self._logs, self.now()
        place = committed_offsets.place_of(logs, group)
        batches = committed_offsets.encoded(logs, group, offsets, metadata, now, expire_timestamp)
        steps = [OffsetStep(group, at, before, 0) for at, before in (expected or {}).items()]

        def batches_unless_refused() -> list[bytes]:
            self._offsets.check_unmoved(steps)
            if member is not None:
                (self.file_group(group) or _NO_MEMBERS).check_owned(member, offsets.keys())
            return batches

        self._append(place, batches_unless_refused)
        if self._offsets.is_check_due(now, self._check_interval_ms):
            try:
                self.expire(timeouts.HELP)
            except (PylogError, OSError) as error:
                log.warning("%s: expired offsets could not be deleted: %s", logs.path, error)

    def _append(
        self, place: TopicIdPartition, make: Callable[[], list[bytes]], timeout: float = DEFAULT_TIMEOUT
    ) -> None:
        """Appends the batches that `make` returns under the partition's lock, after applying all pending decisions.

        If it rolls a segment, it compacts the inactive ones, so that the log stays small without any other process.
        """
        logs = self._logs
        while True:
            apply_in(self._offsets.decisions, place, timeout)
            with logs.writer(place.topic, place.partition).hold(timeout) as writer:
                # A publish that moves committed offsets holds this lock too, so nothing comes between check and append.
                if waits_in(self._offsets.decisions, place, writer.state.applied):
                    continue
                active = writer.state.active_base
                for pack in packed(make(), writer.config.segment_bytes):
                    writer.append(pack, sync=False)
                if writer.state.active_base == active:
                    return
            compact_if_due(logs, TopicPartition(place.topic, place.partition))
            return

    def write(self, changes: Sequence[GroupChange]) -> list[PylogError | OSError | ValueError | None]:
        """Writes changes of a coordinator, in their order; those in the same partition of the log at once.

        The coordinator has decided, so nothing is checked but that a group has no members that coordinate themselves.
        Creates a missing topic as `commit` does.

        Returns:
            Why each was not written; None: it was.
        """
        outcomes: list[PylogError | OSError | ValueError | None] = [None] * len(changes)
        by_place: dict[TopicIdPartition, list[int]] = {}
        for number, change in enumerate(changes):
            try:
                change.records()
                by_place.setdefault(committed_offsets.place_of(self._logs, change.group), []).append(number)
            except (PylogError, OSError, ValueError) as error:
                outcomes[number] = error
        for place, numbers in by_place.items():

            def unrefused(numbers: Sequence[int] = numbers) -> list[bytes]:
                for number in numbers:
                    outcomes[number] = self._refusal(changes[number])
                return self._batches_of([changes[number] for number in numbers if outcomes[number] is None])

            try:
                self._append(place, unrefused)
            except (PylogError, OSError) as error:
                for number in numbers:
                    outcomes[number] = error
        return outcomes

    def _refusal(self, change: GroupChange) -> GroupNotEmptyError | None:
        """Why a coordinator may not change a group, whose partition is locked; None: it may."""
        group = change.group
        changes_members = change.members is not None or change.modern or change.ends_classic or change.deletes
        if not changes_members or self.file_group(group) is None or self._offsets.has_died(group):
            return None
        return GroupNotEmptyError(f"group {group!r} has members that share the store's files, without a server")

    def _batches_of(self, changes: Sequence[GroupChange]) -> list[bytes]:
        """The record batches of changes in one partition, which is locked."""
        found = list[tuple[bytes, bytes | None]]()
        for change in changes:
            if change.deletes:
                found += [(key, None) for key in _offset_keys(change.group, self._offsets.committed(change.group))]
            found += change.records()
        return committed_offsets.batches_of(
            self._logs, [key for key, _ in found], [value for _, value in found], self.now()
        )

    def commit_in_transaction(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], producer_id: int, producer_epoch: int
    ) -> None:
        """Commits offsets as a part of a producer's transaction: they count when its marker says so.

        Nothing is checked: the coordinator has decided. They are one batch, so that no failure leaves a part of them.

        Raises:
            RecordTooLargeError: they do not fit into one batch.
            ValueError: a text is too long for the format.
            ProducerError: a later epoch of the producer has written; others as `commit`.
        """
        change = GroupChange(group, offsets).records()
        place = committed_offsets.place_of(self._logs, group)
        keys, values = [key for key, _ in change], [value for _, value in change]
        config, now = self._logs.topic_config(place.topic), self.now()
        builder = BatchBuilder(config.max_message_bytes, config.max_message_bytes)
        if builder.append(RecordColumns.of_pairs(keys, values, now), None, 0, len(keys)) < len(keys):
            raise RecordTooLargeError(f"group {group}: {len(keys)} offsets do not fit into one batch: commit fewer")
        batch = builder.seal(producer_id=producer_id, producer_epoch=producer_epoch, transactional=True)
        self._append(place, lambda: [batch])

    # ---- members that share the files of the store

    @property
    def membership(self) -> Membership:
        return self

    @property
    def member_files(self) -> MemberFiles:
        return MemberFiles(self._logs.path)

    def file_group(self, group: str) -> FileGroup | None:
        value = self._offsets.metadata(group)
        try:
            return None if value is None or not value.is_of_files else FileGroup.decode(value)
        except ValueError as error:
            raise committed_offsets.malformed(group, error) from error

    def change_members(self, group: str, change: Callable[[FileGroup], FileGroup]) -> FileGroup:
        committed_offsets.check(group, {})

        after = _NO_MEMBERS

        def record() -> list[bytes]:
            nonlocal after
            before = self.file_group(group)
            if before is None:
                check_empty(self.describe(group))
                known = self._offsets.metadata(group)
                before = replace(_NO_MEMBERS, generation=0 if known is None else known.generation)
            after = change(before)
            if after == before:
                return []
            # What it had of the protocol of KIP-848, at a server, counts no more.
            keys = [*self._offsets.records(group).modern, records.encode_group_key(group)]
            value = encode_group_value(after.encode(self.now()))
            return committed_offsets.batches_of(self._logs, keys, [*[None] * (len(keys) - 1), value], self.now())

        self._append(committed_offsets.place_of(self._logs, group), record)
        return after

    def partition_of(self, group: str) -> TopicPartition:
        place = committed_offsets.place_of(self._logs, group)
        return TopicPartition(place.topic, place.partition)

    # ---- fetching

    def pending(self, group: str) -> set[TopicPartition]:
        """The partitions for which an open transaction may commit an offset of the group. Raises: as `fetch`."""
        return self._offsets.pending(group)

    def fetch(self, group: str, *, with_resets: bool = False) -> dict[TopicPartition, OffsetAndMetadata]:
        logs = self._logs
        place, _, _ = self._offsets.read(group)
        if place is not None and logs.writable:
            try:
                apply_in(self._offsets.decisions, place, timeouts.HELP)
            except (OSError, LockTimeoutError, PublishError) as error:
                log.debug("%s: a decided commit of group %s is not applied: %s", logs.path, group, error)
        committed = self._offsets.committed(group)
        return committed if with_resets else {at: kept for at, kept in committed.items() if kept.offset >= 0}

    def groups(self) -> list[str]:
        return self._offsets.groups()

    def members(
        self, partitions: Iterable[int] | None = None
    ) -> tuple[dict[str, GroupMetadataValue | None], dict[str, dict[RecordKey, Value]]]:
        """The members of each group as the log has them; of those in some of its partitions, if they are named.

        Returns:
            Those of classic groups, None: it has committed offsets alone; and the records of groups of the new protocol
            (KIP-848). Groups of later protocols are left out, and those with a record in no known format.

        Raises:
            CorruptRecordError: a record of the log is damaged.
        """
        classic, modern = dict[str, GroupMetadataValue | None](), dict[str, dict[RecordKey, Value]]()
        try:
            partitions = self._logs.written_partitions(OFFSETS_TOPIC) if partitions is None else partitions
        except UnknownTopicError:
            return classic, modern
        for partition in partitions:
            for name, group in self._offsets.in_partition(partition)[1].items():
                try:
                    if group.modern:
                        modern[name] = decoded(group.modern)
                    else:
                        value = None if group.metadata is None else decode_group_value(group.metadata)
                        # Those that share the store's files are no members of a server.
                        classic[name] = None if value is None or value.is_of_files else value
                except ValueError as error:
                    log.warning("%s: the members of group %r are unknown: %s", self._logs.path, name, error)
        return classic, modern

    def describe(self, group: str) -> GroupDescription:
        return self._offsets.described(group)

    # ---- deleting

    def delete_group(self, group: str) -> None:
        logs = self._logs
        if self.describe(group).state is GroupState.DEAD:
            raise UnknownGroupError(f"there is no group {group!r} in {logs.path}")
        place = committed_offsets.place_of(logs, group)

        def tombstones_of_group() -> list[bytes]:
            check_empty(self.describe(group))
            keys = _offset_keys(group, self._offsets.committed(group))
            known = self._offsets.records(group)
            if known.metadata is not None:
                keys.append(records.encode_group_key(group))
            keys += known.modern
            return committed_offsets.tombstones(logs, keys, self.now())

        self._append(place, tombstones_of_group)

    def delete_offsets(self, group: str, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        logs, gone = self._logs, list[TopicPartition]()
        if self.describe(group).state is GroupState.DEAD:
            raise UnknownGroupError(f"there is no group {group!r} in {logs.path}")

        def tombstones_if_unread() -> list[bytes]:
            found = self.describe(group)
            for at in partitions:
                if found.topics is None or at.topic in found.topics:
                    members = _members_of(found)
                    raise GroupNotEmptyError(f"group {group!r} {members}, which read {at.topic}, or may read it")
            committed = self._offsets.committed(group)
            gone[:] = sorted(at for at in set(partitions) if at in committed)
            return committed_offsets.tombstones(logs, _offset_keys(group, gone), self.now())

        self._append(committed_offsets.place_of(logs, group), tombstones_if_unread)
        return gone

    def forget_topic(self, topic: str) -> bool:
        """Deletes what all groups have committed for a topic that was deleted, and groups of which nothing is left.

        These offsets mean nothing in a topic of that name that is created later. What cannot be deleted is logged.

        Returns:
            Whether all of it is deleted.
        """

        def of_topic(group: GroupRecords) -> list[TopicPartition]:
            return [at for at in group.offsets if at.topic == topic]

        try:
            self._in_each_partition(lambda partition: self._delete_in(partition, of_topic, timeouts.CLEANING))
        except (PylogError, OSError) as error:
            log.warning(
                "%s: topic %s is deleted, but not all that groups have committed for it: delete that by "
                "`pylog groups delete-offsets` before another topic gets this name: %s",
                self._logs.path, topic, error,
            )  # fmt: skip
            return False
        return True

    def expire(self, timeout: float = DEFAULT_TIMEOUT) -> int:
        now = self.now()

        def expire_in(partition: int) -> int:
            for name, group in self._offsets.in_partition(partition)[1].items():
                # What cannot be decoded is reported below.
                with contextlib.suppress(CorruptRecordError):
                    if group.metadata is not None and self._offsets.has_died(name):
                        self.change_members(name, lambda group: replace(group, members={}))
            return self._delete_in(partition, lambda group: expiry.expired(group, now, self.retention_ms), timeout)

        return self._in_each_partition(expire_in)

    def _in_each_partition(self, delete_in: Callable[[int], int]) -> int:
        """The sum of what is deleted in each partition of the topic that is this process's to write."""
        count = 0
        failed: PylogError | OSError | None = None
        try:
            partitions = self._logs.written_partitions(OFFSETS_TOPIC)
        except UnknownTopicError:
            return 0
        for partition in partitions:
            try:
                count += delete_in(partition)
            except PartitionOwnedError:
                continue  # The broker that leads it does that.
            except (PylogError, OSError) as error:
                failed = failed or error
        if failed is not None:
            raise failed
        return count

    def _delete_in(
        self, partition: int, chosen: Callable[[GroupRecords], Collection[TopicPartition]], timeout: float
    ) -> int:
        """Deletes those offsets of each group in a partition, which is locked only if there are some.

        `chosen` raises ValueError for a group that cannot be decoded: it is kept.
        """
        logs, known = self._logs, self._offsets
        count = 0

        def tombstones_of_chosen() -> list[bytes]:
            nonlocal count
            keys, count = list[bytes](), 0
            for name, group in known.in_partition(partition)[1].items():
                try:
                    gone = chosen(group)
                    for at in gone:
                        del group.offsets[at]
                    keys += _offset_keys(name, gone)
                    count += len(gone)
                    if expiry.is_dead(group):
                        keys.append(records.encode_group_key(name))
                except ValueError as error:
                    log.warning("%s: group %r is kept, because its members are unknown: %s", logs.path, name, error)
            return committed_offsets.tombstones(logs, keys, self.now())

        if tombstones_of_chosen():
            # Check again, as another process may have committed, or decided to, since.
            self._append(known.in_partition(partition)[0], tombstones_of_chosen, timeout)
        return count


def check_empty(group: GroupDescription) -> None:
    """Refuses a group whose committed offsets may belong to members. GroupNotEmptyError."""
    if group.may_have_members:
        raise GroupNotEmptyError(
            f"group {group.group!r} {_members_of(group)}; it must be empty first. A server removes members that are "
            "gone once their session time-out is over: if none runs, start one (`pylog serve`)"
        )


def _members_of(group: GroupDescription) -> str:
    if group.state is GroupState.UNKNOWN:
        return f"has records of the protocol {group.protocol_type} that are not understood here, so it may have members"
    return f"has {len(group.members)} members"


def _committed_offsets(log: Offsets) -> CommittedOffsets:
    """What a store's log of offsets is built on."""
    return log._offsets if isinstance(log, OffsetsLog) else refuse(Missing.OFFSETS_TOPIC, "OffsetsLog")


def _offset_keys(group: str, partitions: Collection[TopicPartition]) -> list[bytes]:
    return [records.encode_offset_key(records.OffsetCommitKey(group, at.topic, at.partition)) for at in partitions]


def move_offsets(
    log: Offsets,
    group: str,
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    offsets: Mapping[TopicPartition, int],
) -> None:
    """Moves a group; when its offsets never expire, the new ones do not either.

    Args:
        committed: what the group had committed when the caller read it.
        offsets: what it is to have committed.

    Raises:
        OffsetConflictError: the group was moved meanwhile; nothing was changed.
    """
    before = {at: committed[at].offset if at in committed else None for at in offsets}
    stays = any(kept.expire_timestamp == records.NEVER for kept in committed.values())
    log.commit(group, offsets, expected=before, expire_timestamp=records.NEVER if stays else -1)
