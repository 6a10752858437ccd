"""The committed offsets of groups in a store in an object store: they are in its publish log."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import NoReturn

from pyspark_log.arguments import check_whole
from pyspark_log.config import int_config
from pyspark_log.errors import OffsetConflictError, UnknownGroupError
from pyspark_log.group_records import RecordKey, Value
from pyspark_log.storage.abilities import Missing, refuse
from pyspark_log.storage.groups import NEVER, GroupDescription, GroupState, OffsetAndMetadata, check_empty, expiry
from pyspark_log.storage.groups.changes import GroupChange
from pyspark_log.storage.groups.committed_offsets import check, describe_classic, malformed
from pyspark_log.storage.groups.log import modern_group
from pyspark_log.storage.groups.log.metadata import GroupMetadataValue, decode_group_value
from pyspark_log.storage.groups.log.modern_group import decoded
from pyspark_log.storage.groups.log.records import encode_group_key
from pyspark_log.storage.groups.log.view import GroupRecords
from pyspark_log.storage.groups.unread import check_unread
from pyspark_log.storage.publish_log import proposals
from pyspark_log.storage.publish_log.entries.changes import GroupRecord, OffsetMove
from pyspark_log.storage.publish_log.log import PublishLog
from pyspark_log.storage.publish_log.proposals import Proposal
from pyspark_log.storage.publish_log.state import State
from pyspark_log.storage.seam import Offsets
from pyspark_log.types import TopicPartition

log = logging.getLogger(__name__)


class ObjectOffsets(Offsets):
    """Commits by decisions; each is durable."""

    writable = True
    interval_ms = 60_000

    def __init__(self, log: PublishLog, configs: Mapping[str, str]) -> None:
        """Of one store."""
        self._log = log
        self.retention_ms = int_config(configs, "offsets.retention.minutes") * 60_000

    @property
    def membership(self) -> NoReturn:
        refuse(Missing.MEMBERS, "group")

    def lock(self, group: str, purpose: str) -> NoReturn:
        refuse(Missing.LOCKS, f"group {group}, a lock for {purpose}")

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
        if member is not None:
            refuse(Missing.MEMBERS, f"group {group}")
        check(group, offsets, metadata)
        check_whole(f"group {group}: expiry", expire_timestamp, low=-1)
        if expire_timestamp not in (-1, NEVER):
            refuse(Missing.OFFSET_EXPIRY, f"group {group}")

        def propose(state: State) -> Proposal | None:
            committed = state.groups.get(group, {})
            for at, offset in (expected or {}).items():
                current = committed[at].offset if at in committed else None
                if current != offset:
                    raise OffsetConflictError(group, at.topic, at.partition, offset, current)
            return proposals.commit(state, group, offsets, metadata) if offsets else None

        self._log.decide(propose)

    def fetch(self, group: str, *, with_resets: bool = False) -> dict[TopicPartition, OffsetAndMetadata]:
        # None of them is below 0 here.
        return committed_in(self._log.follow(), group)

    def groups(self) -> list[str]:
        state = self._log.follow()
        return sorted({*state.groups, *state.members})

    def describe(self, group: str) -> GroupDescription:
        return _described(self._log.follow(), group)

    def delete_group(self, group: str) -> None:
        def propose(state: State) -> Proposal:
            check_empty(self._known(state, group))
            return coordinated(state, [GroupChange(group, deletes=True)])

        self._log.decide(propose)

    def delete_offsets(self, group: str, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        def propose(state: State) -> Proposal | None:
            check_unread(self._known(state, group), partitions)
            gone = [at for at in state.groups.get(group, {}) if at in partitions]
            return proposals.commit(state, group, dict.fromkeys(gone)) if gone else None

        entry = self._log.decide(propose)
        return [] if entry is None else sorted(move.at for move in entry.moves)

    def expire(self) -> int:
        return 0

    def _known(self, state: State, group: str) -> GroupDescription:
        described = _described(state, group)
        if described.state is GroupState.DEAD:
            raise UnknownGroupError(f"there is no group {group!r} in {self._log.objects.address}")
        return described


def committed_in(state: State, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
    """A group's committed offsets, as a state has them."""
    return {
        at: OffsetAndMetadata(committed.offset, -1, committed.metadata, committed.time)
        for at, committed in state.groups.get(group, {}).items()
    }


def coordinated(state: State, changes: Sequence[GroupChange]) -> Proposal:
    """What a coordinator has decided of groups, in that order. ValueError: a text is too long."""
    moves, records = list[OffsetMove](), list[GroupRecord]()
    touched = dict[str, set[TopicPartition]]()
    for change in changes:
        committed, group = state.groups.get(change.group, {}), change.group
        # One that is deleted loses what earlier changes have given it, too.
        earlier = touched.setdefault(group, set())
        offsets = {**dict.fromkeys([*committed, *earlier] if change.deletes else ()), **change.offsets}
        earlier.update(offsets)
        for at, kept in offsets.items():
            before = committed[at].offset if at in committed else None
            # One below 0, with which a group starts over, is as none.
            if kept is None or kept.offset < 0:
                moves.append(OffsetMove(group, at, before, None))
            else:
                moves.append(OffsetMove(group, at, before, kept.offset, kept.metadata))
        gone = list[bytes]()
        if change.deletes:
            gone = [*state.members.get(group, {}), *(record.key for record in records if record.group == group)]
        written = {**dict.fromkeys(gone), **dict(change.member_records())}
        records += [GroupRecord(group, key, value) for key, value in written.items()]
    return Proposal(moves=tuple(moves), group_records=tuple(records))


def expired(state: State, now: int, retention_ms: int) -> Proposal | None:
    """Deletes offsets that are not kept any more at a time (ms), and groups of which nothing is left; None: none is.

    Those of groups that never had members are kept: they are of queries, which go by them after any time.
    """
    changes = list[GroupChange]()
    for group in state.members:
        records = _records(state, group)
        try:
            gone = expiry.expired(records, now, retention_ms)
            for at in gone:
                del records.offsets[at]
            changes.append(GroupChange(group, dict.fromkeys(gone), deletes=expiry.is_dead(records)))
        except ValueError as error:
            log.warning("group %r is kept, because its members are unknown: %s", group, error)
    changes = [change for change in changes if change.offsets or change.deletes]
    return coordinated(state, changes) if changes else None


def members_in(state: State) -> tuple[dict[str, GroupMetadataValue | None], dict[str, dict[RecordKey, Value]]]:
    """The members of groups, as a state has them: as GroupsLog.members. Groups with an unknown record are left out."""
    classic, modern = dict[str, GroupMetadataValue | None](), dict[str, dict[RecordKey, Value]]()
    for group in {*state.groups, *state.members}:
        records = _records(state, group)
        try:
            if records.modern:
                modern[group] = decoded(records.modern)
            else:
                classic[group] = None if records.metadata is None else decode_group_value(records.metadata)
        except ValueError as error:
            log.warning("the members of group %r are unknown: %s", group, error)
    return classic, modern


def _records(state: State, group: str) -> GroupRecords:
    """A group's records, as a log of groups in a folder would have them."""
    records = dict(state.members.get(group, {}))
    metadata = records.pop(encode_group_key(group), None)
    return GroupRecords(committed_in(state, group), metadata, records)


def _described(state: State, group: str) -> GroupDescription:
    records = _records(state, group)
    if records.modern:
        names = {topic.topic_id: name for name, topic in state.topics.items()}
        return modern_group.described(group, records.modern, names.get)
    try:
        members = None if records.metadata is None else decode_group_value(records.metadata)
    except ValueError as error:
        raise malformed(group, error) from error
    return describe_classic(group, members, bool(records.offsets))
