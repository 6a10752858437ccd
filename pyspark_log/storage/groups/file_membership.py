"""The members of groups that share the files of a store in a folder, as `__consumer_offsets` has them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pyspark_log.errors import GroupNotEmptyError
from pyspark_log.storage.groups import committed_offsets
from pyspark_log.storage.groups.committed_offsets import CommittedOffsets
from pyspark_log.storage.groups.log import records
from pyspark_log.storage.groups.log.metadata import GroupDescription, GroupState, encode_group_value
from pyspark_log.storage.groups.members.file_group import FileGroup
from pyspark_log.storage.groups.members.member_files import MemberFiles
from pyspark_log.storage.seam import Membership
from pyspark_log.types import TopicPartition
from pyspark_log.units import plural

# How many members an error names.
_MOST_NAMED = 3

#: A group before its first member comes.
NO_MEMBERS = FileGroup(0, "", {})


class FileMembership(Membership):
    """The groups of a store in a folder."""

    def __init__(self, offsets: CommittedOffsets, now: Callable[[], int]) -> None:
        """`now` gives the time of a change in ms."""
        self._offsets, self._now = offsets, now

    @property
    def member_files(self) -> MemberFiles:
        return MemberFiles(self._offsets.logs.path)

    def file_group(self, group: str) -> FileGroup | None:
        value = self._offsets.metadata(group)
        try:
            return None if value is None or not value.is_of_files else FileGroup.decode(value)
        except ValueError as error:
            raise committed_offsets.malformed(group, error) from error

    def change_members(self, group: str, change: Callable[[FileGroup], FileGroup]) -> FileGroup:
        committed_offsets.check(group, {})
        logs, after = self._offsets.logs, NO_MEMBERS

        def batches_of_change() -> list[bytes]:
            nonlocal after
            before = self.file_group(group)
            if before is None:
                check_empty(self._offsets.described(group))
                known = self._offsets.metadata(group)
                before = replace(NO_MEMBERS, generation=0 if known is None else known.generation)
            after = change(before)
            if after == before:
                return []
            # What it had of the protocol of KIP-848, at a server, counts no more.
            keys, now = [*self._offsets.records(group).modern, records.encode_group_key(group)], self._now()
            values = [*[None] * (len(keys) - 1), encode_group_value(after.encode(now))]
            return committed_offsets.batches_of(logs, keys, values, now)

        self._offsets.append(committed_offsets.place_of(logs, group), batches_of_change)
        return after

    def partition_of(self, group: str) -> TopicPartition:
        place = committed_offsets.place_of(self._offsets.logs, group)
        return TopicPartition(place.topic, place.partition)


def check_empty(group: GroupDescription) -> None:
    """Refuses a group whose committed offsets may belong to members. GroupNotEmptyError."""
    if group.may_have_members:
        raise GroupNotEmptyError(
            f"group {group.group!r} {members_of(group)}; it must be empty first: end them. Those of Kafka's clients "
            "that have died are removed by a server (`pylog serve`), once their session time-out is over"
        )


def members_of(group: GroupDescription) -> str:
    """What is known of its members, for an error."""
    if group.state is GroupState.UNKNOWN:
        return f"has records of the protocol {group.protocol_type} that are not understood here, so it may have members"
    members = [f"{member.client_id} on {member.client_host}" for member in group.members[:_MOST_NAMED]]
    more = ", ..." if len(group.members) > _MOST_NAMED else ""
    return f"has {plural(len(group.members), 'member')} ({', '.join(members)}{more})"
