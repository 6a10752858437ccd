"""What administrators see of groups of KIP-848, and which offsets their members may commit and fetch."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pyspark_log.group_records import Current, MemberState
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import ConsumerGroupDescribeResponse
from pyspark_log.server.coordinator.modern_group import ModernGroup, Topics

_Group = ConsumerGroupDescribeResponse.DescribedGroup
_Member = ConsumerGroupDescribeResponse.Member
_Assignment = ConsumerGroupDescribeResponse.Assignment
_Topic = ConsumerGroupDescribeResponse.TopicPartitions
_NOTHING = Current(0, -1, MemberState.STABLE, {}, {})
# From this version on, OffsetCommit has the member's epoch.
_HAS_EPOCH = 9
# The kind of a member in ConsumerGroupDescribe: one that uses the new protocol.
_CONSUMER_MEMBER = 1


def described(group: ModernGroup, topics: Topics) -> _Group:
    """A group as ConsumerGroupDescribe has it."""
    names = topics.names()
    return _Group(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch.epoch,
        assignor_name=group.assignor,
        members=[_member(group, member_id, names) for member_id in sorted(group.members)],
    )


def _member(group: ModernGroup, member_id: str, names: Mapping[bytes, str]) -> _Member:
    member, current = group.members[member_id], group.current.get(member_id, _NOTHING)
    return _Member(
        member_id,
        member.instance_id,
        member.rack_id,
        current.epoch,
        member.client_id,
        member.client_host,
        list(member.topics),
        member.regex,
        _assignment(_all_of(current), names),
        _assignment(group.target.get(member_id, {}), names),
        _CONSUMER_MEMBER,
    )


def _all_of(current: Current) -> dict[bytes, list[int]]:
    """The partitions that a member has, and those that it has yet to give up."""
    found = dict[bytes, list[int]]()
    for owned in (current.assigned, current.revoking):
        for topic_id, numbers in owned.items():
            found.setdefault(topic_id, []).extend(numbers)
    return found


def _assignment(partitions: Mapping[bytes, Collection[int]], names: Mapping[bytes, str]) -> _Assignment:
    return _Assignment(
        [
            _Topic(topic_id, names[topic_id], sorted(numbers))
            for topic_id, numbers in sorted(partitions.items())
            if topic_id in names
        ]
    )


def check_modern_commit(
    group: ModernGroup, member_id: str, instance_id: str | None, epoch: int, version: int,
    partitions: Collection[tuple[str, int]], *, transactional: bool,
) -> ErrorCode:  # fmt: skip
    """Whether offsets may be committed, see Coordinator.check_commit."""
    if epoch < 0 and (not group.members or (transactional and not member_id and instance_id is None)):
        return ErrorCode.NONE
    if member_id not in group.members:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if not transactional and version < _HAS_EPOCH:
        return ErrorCode.UNSUPPORTED_VERSION
    current = group.current.get(member_id, _NOTHING)
    if epoch == current.epoch or (epoch < current.epoch and _has_had(group, current, epoch, partitions)):
        return ErrorCode.NONE
    return ErrorCode.ILLEGAL_GENERATION if transactional else ErrorCode.STALE_MEMBER_EPOCH


def _has_had(group: ModernGroup, current: Current, epoch: int, partitions: Collection[tuple[str, int]]) -> bool:
    """Whether a member has had partitions since an epoch."""
    since = {
        (topic_id, number): since
        for owned in (current.revoking, current.assigned)
        for topic_id, numbers in owned.items()
        for number, since in numbers.items()
    }
    known = {} if group.topics is None else group.topics.topics
    places = [(known[name].topic_id, number) for name, number in partitions if name in known]
    return 0 < len(places) == len(partitions) and all(at in since and since[at] <= epoch for at in places)


def check_modern_fetch(group: ModernGroup, member_id: str | None, epoch: int) -> ErrorCode:
    """Whether committed offsets may be fetched: by clients that are no members, and by members with their epoch."""
    if member_id is None and epoch < 0:
        return ErrorCode.NONE
    if member_id is None or member_id not in group.members:
        return ErrorCode.UNKNOWN_MEMBER_ID
    is_its = epoch == group.current.get(member_id, _NOTHING).epoch
    return ErrorCode.NONE if is_its else ErrorCode.STALE_MEMBER_EPOCH
