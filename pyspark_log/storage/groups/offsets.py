"""Committed offsets of consumer groups, stored in the topic `__consumer_offsets` as Kafka stores them."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar
from zlib import crc32

from pyspark_log.arguments import check_whole
from pyspark_log.config import int_config
from pyspark_log.errors import (
    CorruptRecordError,
    LockTimeoutError,
    PartitionOwnedError,
    PublishError,
    PylogError,
    UnknownGroupError,
    UnknownTopicError,
)
from pyspark_log.storage.abilities import Missing, refuse
from pyspark_log.storage.catalog import OFFSETS_TOPIC
from pyspark_log.storage.catalog.store_json import STATE_FOLDER
from pyspark_log.storage.fs import FileLock, files, lock_for
from pyspark_log.storage.fs.locking import timeouts
from pyspark_log.storage.fs.locking.timeouts import DEFAULT_TIMEOUT
from pyspark_log.storage.groups import committed_offsets, expiry
from pyspark_log.storage.groups.committed_offsets import CommittedOffsets
from pyspark_log.storage.groups.file_membership import NO_MEMBERS, FileMembership, check_empty
from pyspark_log.storage.groups.log import records
from pyspark_log.storage.groups.log.metadata import GroupDescription, GroupState
from pyspark_log.storage.groups.log.view import GroupRecords, OffsetAndMetadata
from pyspark_log.storage.groups.unread import check_unread
from pyspark_log.storage.publish import TopicIdPartition
from pyspark_log.storage.publish.applier import apply_in
from pyspark_log.storage.seam import Offsets
from pyspark_log.types import OffsetStep, TopicPartition

if TYPE_CHECKING:
    from pyspark_log.storage.store import Store

log = logging.getLogger(__name__)


class OffsetsLog(Offsets):
    """The offsets of a store in a folder.

    Attributes:
        NEVER: as the expiry of a commit: its offsets stay until they are deleted.
    """

    NEVER: ClassVar[int] = records.NEVER
    interval_ms = 0

    def __init__(self, store: Store | CommittedOffsets, clock: Callable[[], float] | None = None) -> None:
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

    @property
    def membership(self) -> FileMembership:
        return FileMembership(self._offsets, self._now)

    def _now(self) -> int:
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
        logs, now = self._logs, self._now()
        place = committed_offsets.place_of(logs, group)
        batches = committed_offsets.encoded(logs, group, offsets, metadata, now, expire_timestamp)
        steps = [OffsetStep(group, at, before, 0) for at, before in (expected or {}).items()]

        def batches_unless_refused() -> list[bytes]:
            self._offsets.check_unmoved(steps)
            if member is not None:
                (self.membership.file_group(group) or NO_MEMBERS).check_owned(member, offsets.keys())
            return batches

        self._offsets.append(place, batches_unless_refused)
        if self._offsets.is_check_due(now, self._check_interval_ms):
            try:
                self.expire(timeouts.HELP)
            except (PylogError, OSError) as error:
                log.warning("%s: expired offsets could not be deleted: %s", logs.path, error)

    # ---- fetching

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

    def describe(self, group: str) -> GroupDescription:
        return self._offsets.described(group)

    # ---- deleting

    def delete_group(self, group: str) -> None:
        def tombstones_of_group() -> list[bytes]:
            check_empty(self.describe(group))
            keys = committed_offsets.offset_keys(group, self._offsets.committed(group))
            known = self._offsets.records(group)
            if known.metadata is not None:
                keys.append(records.encode_group_key(group))
            keys += known.modern
            return committed_offsets.tombstones(self._logs, keys, self._now())

        self._offsets.append(self._place_of_known(group), tombstones_of_group)

    def delete_offsets(self, group: str, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        gone = list[TopicPartition]()

        def tombstones_if_unread() -> list[bytes]:
            check_unread(self.describe(group), partitions)
            committed = self._offsets.committed(group)
            gone[:] = sorted(at for at in set(partitions) if at in committed)
            return committed_offsets.tombstones(self._logs, committed_offsets.offset_keys(group, gone), self._now())

        self._offsets.append(self._place_of_known(group), tombstones_if_unread)
        return gone

    def _place_of_known(self, group: str) -> TopicIdPartition:
        if self.describe(group).state is GroupState.DEAD:
            raise UnknownGroupError(f"there is no group {group!r} in {self._logs.path}")
        return committed_offsets.place_of(self._logs, group)

    def expire(self, timeout: float = DEFAULT_TIMEOUT) -> int:
        now = self._now()

        def expire_in(partition: int) -> int:
            for name, group in self._offsets.in_partition(partition)[1].items():
                # What cannot be decoded is reported below.
                with contextlib.suppress(CorruptRecordError):
                    if group.metadata is not None and self._offsets.has_died(name):
                        self.membership.change_members(name, lambda group: replace(group, members={}))
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
                    keys += committed_offsets.offset_keys(name, gone)
                    count += len(gone)
                    if expiry.is_dead(group):
                        keys.append(records.encode_group_key(name))
                except ValueError as error:
                    log.warning("%s: group %r is kept, because its members are unknown: %s", logs.path, name, error)
            return committed_offsets.tombstones(logs, keys, self._now())

        if tombstones_of_chosen():
            # Check again, as another process may have committed, or decided to, since.
            self._offsets.append(known.in_partition(partition)[0], tombstones_of_chosen, timeout)
        return count


def _committed_offsets(log: Offsets) -> CommittedOffsets:
    """What a store's log of offsets is built on."""
    return log._offsets if isinstance(log, OffsetsLog) else refuse(Missing.OFFSETS_TOPIC, "OffsetsLog")


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
