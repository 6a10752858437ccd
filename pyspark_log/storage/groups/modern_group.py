"""Describes groups whose partitions the broker itself assigns, from their records in `__consumer_offsets`.

In a group of KIP-848 (`group.protocol=consumer`) each member has records of its own. Source of the format: the message
definitions `ConsumerGroupMetadataValue`, `ConsumerGroupMemberMetadataKey` and `-Value`,
`ConsumerGroupTargetAssignmentMetadataValue` and `ConsumerGroupCurrentMemberAssignmentKey` and `-Value` of Kafka's group
coordinator, and its rules for a group's state (`ConsumerGroup.maybeUpdateGroupState`). Malformed bytes raise
`ValueError`.

The records of a KIP-1071 group (streams) are not decoded: it may have members.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import NamedTuple

from pyspark_log.storage.groups.metadata import GroupDescription, GroupMember, GroupState
from pyspark_log.storage.groups.records import FieldReader
from pyspark_log.types import TopicPartition

#: The displayed protocol types of such groups.
CONSUMER_848 = "consumer (KIP-848)"
STREAMS_1071 = "streams (KIP-1071)"

# The kinds of records, by the version of their keys.
_GROUP, _MEMBER, _TARGET, _CURRENT = 3, 5, 6, 8
_CONSUMER_KINDS = frozenset({*range(3, 9), 16})
_STREAMS_KINDS = frozenset(range(17, 25))
_WITH_VALUE = frozenset({_GROUP, _MEMBER, _TARGET, _CURRENT})
# Kafka's MemberState: the member has its full assignment.
_RECONCILED = 0


class _Member(NamedTuple):
    instance_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    has_pattern: bool


class _Current(NamedTuple):
    epoch: int
    state: int
    partitions: tuple[tuple[bytes, int], ...]  # topic ids, and numbers


def modern_group_of(key: bytes) -> str | None:
    """The group of a record's key, if it is a record of such a group."""
    reader = FieldReader(key)
    return reader.string() if reader.int16() in _CONSUMER_KINDS | _STREAMS_KINDS else None


def kept_value(key: bytes, value: bytes) -> bytes:
    """The part of a record's value that `described` needs: all of it, or nothing."""
    return value if int.from_bytes(key[:2], "big") in _WITH_VALUE else b""


def described(group: str, records: Mapping[bytes, bytes], topic_name: Callable[[str], str | None]) -> GroupDescription:
    """Describes a group from its records.

    Args:
        group: its name.
        records: its newest records without tombstones, by key; at least one. Values as returned by `kept_value`.
        topic_name: the name of the topic with an id, 22 characters, if it is known.

    Returns:
        The description; its state is UNKNOWN if a record cannot be decoded.
    """
    if any(int.from_bytes(key[:2], "big") in _STREAMS_KINDS for key in records):
        return GroupDescription(group, GroupState.UNKNOWN, topics=None, protocol_type=STREAMS_1071)
    values: dict[int, dict[str, bytes]] = {kind: {} for kind in _WITH_VALUE}
    for key, value in records.items():
        kind = int.from_bytes(key[:2], "big")
        if kind in _WITH_VALUE:
            values[kind][_member_id(key) if kind in (_MEMBER, _CURRENT) else ""] = value
    try:
        members = {member_id: _decode_member(value) for member_id, value in values[_MEMBER].items()}
        current = {member_id: _decode_current(value) for member_id, value in values[_CURRENT].items()}
        epoch, target = (_decode_epoch(values[kind].get("")) for kind in (_GROUP, _TARGET))
    except ValueError:
        unclear = tuple(GroupMember(member_id, None, "", "", b"", b"", ()) for member_id in sorted(values[_MEMBER]))
        return GroupDescription(group, GroupState.UNKNOWN, "", unclear, None, CONSUMER_848)
    shown = tuple(
        _describe_member(member_id, member, current.get(member_id), topic_name)
        for member_id, member in sorted(members.items())
    )
    topics = None
    if not any(member.has_pattern for member in members.values()):
        topics = frozenset(topic for member in members.values() for topic in member.topics)
    state = _state(set(members), current, epoch, target)
    return GroupDescription(group, state, "", shown, topics, CONSUMER_848)


def _state(members: set[str], current: Mapping[str, _Current], epoch: int, target: int) -> GroupState:
    if not members:
        return GroupState.EMPTY
    if epoch > target:
        return GroupState.ASSIGNING
    for member_id in members:
        one = current.get(member_id)
        if one is None or (one.epoch, one.state) != (target, _RECONCILED):
            return GroupState.RECONCILING
    return GroupState.STABLE


def _describe_member(
    member_id: str, member: _Member, current: _Current | None, topic_name: Callable[[str], str | None]
) -> GroupMember:
    partitions = []
    for topic_id, number in () if current is None else current.partitions:
        text = base64.urlsafe_b64encode(topic_id).decode().rstrip("=")
        # The id of an unknown topic replaces its name.
        partitions.append(TopicPartition(topic_name(text) or text, number))
    return GroupMember(member_id, member.instance_id, member.client_id, member.client_host, b"", b"", tuple(partitions))


# ---- bytes


def _member_id(key: bytes) -> str:
    reader = FieldReader(key)
    reader.int16()
    reader.string()
    return reader.string()


def _value(data: bytes) -> FieldReader:
    reader = FieldReader(data)
    version = reader.int16()
    if version:
        raise ValueError(f"a group's value of version {version}; this program reads 0")
    return reader


def _decode_epoch(data: bytes | None) -> int:
    return -1 if data is None else _value(data).int32()


def _decode_member(data: bytes) -> _Member:
    reader = _value(data)
    instance_id = reader.nullable_string(compact=True)
    reader.nullable_string(compact=True)  # rack
    client_id, host = reader.string(compact=True), reader.string(compact=True)
    topics = tuple(reader.string(compact=True) for _ in range(reader.count(compact=True)))
    return _Member(instance_id, client_id, host, topics, bool(reader.nullable_string(compact=True)))


def _decode_current(data: bytes) -> _Current:
    reader = _value(data)
    epoch = reader.int32()
    reader.int32()  # the previous epoch
    state, partitions = reader.int8(), list[tuple[bytes, int]]()
    for _ in range(2):  # those that it has, and those of them that it must revoke
        for _ in range(reader.count(compact=True)):
            topic_id = reader.uuid()
            partitions += [(topic_id, reader.int32()) for _ in range(reader.count(compact=True))]
            reader.skip_tagged_fields()
    return _Current(epoch, state, tuple(partitions))
