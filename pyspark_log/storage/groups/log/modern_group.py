"""Describes groups whose partitions the broker itself assigns, from their records in `__consumer_offsets`.

In a group of KIP-848 (`group.protocol=consumer`) each member has records of its own, see modern_records.py. Source of
the rules for a group's state: `ConsumerGroup.maybeUpdateGroupState` of Kafka's group coordinator.

The records of a KIP-1071 group (streams) are not decoded: it may have members.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark_log.group_records import (
    Current,
    GroupEpoch,
    Kind,
    MemberMetadata,
    MemberState,
    RecordKey,
    TargetEpoch,
    Value,
)
from pyspark_log.storage.catalog.topics import id_text
from pyspark_log.storage.groups.log.fields import FieldReader
from pyspark_log.storage.groups.log.metadata import GroupDescription, GroupMember, GroupState
from pyspark_log.storage.groups.log.modern_records import decode_key, decode_value
from pyspark_log.types import TopicPartition

#: The displayed protocol types of such groups.
CONSUMER_848 = "consumer (KIP-848)"
STREAMS_1071 = "streams (KIP-1071)"

# The kinds of records, by the version of their keys.
_CONSUMER_KINDS = frozenset({*range(3, 9), 16})
_STREAMS_KINDS = frozenset(range(17, 25))


def modern_group_of(key: bytes) -> str | None:
    """The group of a record's key, if it is a record of such a group."""
    reader = FieldReader(key)
    return reader.string() if reader.int16() in _CONSUMER_KINDS | _STREAMS_KINDS else None


def kept_value(key: bytes, value: bytes) -> bytes:
    """The part of a record's value that is ever needed: all of it, or nothing."""
    return value if int.from_bytes(key[:2], "big") in set(Kind) else b""


def decoded(records: Mapping[bytes, bytes]) -> dict[RecordKey, Value]:
    """The records of a group of KIP-848. ValueError: one cannot be decoded, or the group is of a later protocol."""
    found = dict[RecordKey, Value]()
    for data, value in records.items():
        if int.from_bytes(data[:2], "big") in _STREAMS_KINDS:
            raise ValueError(f"a record of {STREAMS_1071}")
        known = decode_key(data)
        if known is not None:
            found[known[1]] = decode_value(known[1].kind, value)
    return found


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
    try:
        values = decoded(records)
    except ValueError:
        found = (decode_key(key) for key in records)
        names = sorted(one[1].name for one in found if one is not None and one[1].kind is Kind.MEMBER)
        unclear = tuple(GroupMember(member_id, None, "", "", b"", b"", ()) for member_id in names)
        return GroupDescription(group, GroupState.UNKNOWN, "", unclear, None, CONSUMER_848)
    members = {key.name: value for key, value in values.items() if isinstance(value, MemberMetadata)}
    current = {key.name: value for key, value in values.items() if isinstance(value, Current)}
    shown = tuple(
        _describe_member(member_id, member, current.get(member_id), topic_name)
        for member_id, member in sorted(members.items())
    )
    topics = None
    if not any(member.regex for member in members.values()):
        topics = frozenset(topic for member in members.values() for topic in member.topics)
    state = _state(set(members), current, _epoch(values, Kind.GROUP), _epoch(values, Kind.TARGET_EPOCH))
    return GroupDescription(group, state, "", shown, topics, CONSUMER_848)


def _epoch(values: Mapping[RecordKey, Value], kind: Kind) -> int:
    value = values.get(RecordKey(kind))
    return value.epoch if isinstance(value, (GroupEpoch, TargetEpoch)) else -1


def _state(members: set[str], current: Mapping[str, Current], epoch: int, target: int) -> GroupState:
    if not members:
        return GroupState.EMPTY
    if epoch > target:
        return GroupState.ASSIGNING
    for member_id in members:
        one = current.get(member_id)
        if one is None or (one.epoch, one.state) != (target, MemberState.STABLE):
            return GroupState.RECONCILING
    return GroupState.STABLE


def _describe_member(
    member_id: str, member: MemberMetadata, current: Current | None, topic_name: Callable[[str], str | None]
) -> GroupMember:
    partitions = []
    for owned in () if current is None else (current.assigned, current.revoking):
        for topic_id, numbers in owned.items():
            text = id_text(topic_id)
            # The id of an unknown topic replaces its name.
            partitions += [TopicPartition(topic_name(text) or text, number) for number in numbers]
    return GroupMember(member_id, member.instance_id, member.client_id, member.client_host, b"", b"", tuple(partitions))
