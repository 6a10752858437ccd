"""Members of consumer groups, as Kafka's group coordinator keeps them in `__consumer_offsets`.

Source of the format: the message definition `GroupMetadataValue` of Kafka's group coordinator, and of its clients
`ConsumerProtocolSubscription` and `ConsumerProtocolAssignment`, in which a member subscribes to topics and
receives its assignment. Malformed bytes raise `ValueError`.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum

from pyspark_log.storage.groups.log.fields import FieldReader, encode_string
from pyspark_log.types import TopicPartition

#: The protocol type of groups whose members are Kafka's consumers.
CONSUMER = "consumer"

_WRITTEN_VERSION = 3
_INT16, _INT32, _INT64 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
_NO_DATA = _INT32.pack(-1)


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group.

    Attributes:
        member_id: its id in this generation.
        instance_id: `group.instance.id`, or None.
        client_id, client_host: its client.
        subscription, assignment: bytes in the protocol of the group's type.
        partitions: its partitions, if its records name them (KIP-848); None: see `assignment`.
        rebalance_timeout, session_timeout: how long it may take to join again, and to send its next heartbeat, in ms;
            -1: unknown.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    subscription: bytes
    assignment: bytes
    partitions: tuple[TopicPartition, ...] | None = None
    rebalance_timeout: int = -1
    session_timeout: int = -1


@dataclass(frozen=True, slots=True)
class GroupMetadataValue:
    """A group as of the last change of its members.

    Attributes:
        protocol_type: the kind of group, usually CONSUMER; "" if it never had members.
        generation: the number of changes.
        protocol: the assignor that the members agreed on, or None.
        leader: the member that assigned; None: there is none, or each may assign (see file_group.py).
        state_timestamp: when it entered its state, in ms, or -1.
        members: the generation's members; none: the group is empty.
    """

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp: int
    members: tuple[GroupMember, ...]

    @property
    def is_of_files(self) -> bool:
        """Whether it has members that share the files of the store: those of a server have a leader."""
        return bool(self.members) and self.leader is None


class GroupState(Enum):
    """The state of a group, as far as its records say; Kafka's names."""

    STABLE = "Stable"  # it has members
    ASSIGNING = "Assigning"  # it has members, and the assignment is being computed (KIP-848)
    RECONCILING = "Reconciling"  # it has members, some of which do not have their assignment yet
    EMPTY = "Empty"  # it has committed offsets, or had members
    DEAD = "Dead"  # it has no records
    UNKNOWN = "Unknown"  # it has records that cannot be decoded, so it may have members


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group as its records describe it.

    Attributes:
        group: its name.
        state: its state.
        protocol: the assignor that its members agreed on, "" if it has none.
        members: its active members.
        topics: the topics that they subscribe to; None: unknown.
        protocol_type: the kind of group; "" if it never had members.
    """

    group: str
    state: GroupState
    protocol: str = ""
    members: tuple[GroupMember, ...] = ()
    topics: frozenset[str] | None = frozenset()
    protocol_type: str = ""

    @property
    def may_have_members(self) -> bool:
        """Whether its committed offsets may belong to active members."""
        return self.state not in (GroupState.EMPTY, GroupState.DEAD)


def decode_group_value(data: bytes) -> GroupMetadataValue:
    """Decodes a group's metadata, of any version from 0 to 4."""
    reader = FieldReader(data)
    version = reader.int16()
    if not 0 <= version <= 4:
        raise ValueError(f"group value of version {version}; this program reads 0 to 4")
    compact = version >= 4
    protocol_type, generation = reader.string(compact=compact), reader.int32()
    protocol, leader = reader.nullable_string(compact=compact), reader.nullable_string(compact=compact)
    state_timestamp = reader.int64() if version >= 2 else -1
    members = tuple(_member(reader, version) for _ in range(reader.count(compact=compact)))
    if compact:
        reader.skip_tagged_fields()
    return GroupMetadataValue(protocol_type, generation, protocol, leader, state_timestamp, members)


def _member(reader: FieldReader, version: int) -> GroupMember:
    compact = version >= 4
    member_id = reader.string(compact=compact)
    instance_id = reader.nullable_string(compact=compact) if version >= 3 else None
    client_id, client_host = reader.string(compact=compact), reader.string(compact=compact)
    rebalance_timeout = reader.int32() if version >= 1 else -1
    session_timeout = reader.int32()
    subscription, assignment = reader.byte_array(compact=compact), reader.byte_array(compact=compact)
    if compact:
        reader.skip_tagged_fields()
    return GroupMember(
        member_id,
        instance_id,
        client_id,
        client_host,
        subscription,
        assignment,
        rebalance_timeout=rebalance_timeout,
        session_timeout=session_timeout,
    )


def encode_group_value(group: GroupMetadataValue) -> bytes:
    """Encodes a group's metadata: version 3, which Kafka's brokers write. ValueError: a text is too long."""
    parts = [
        _INT16.pack(_WRITTEN_VERSION),
        encode_string(group.protocol_type),
        _INT32.pack(group.generation),
        encode_string(group.protocol),
        encode_string(group.leader),
        _INT64.pack(group.state_timestamp),
        _INT32.pack(len(group.members)),
    ]
    for one in group.members:
        parts += (encode_string(text) for text in (one.member_id, one.instance_id, one.client_id, one.client_host))
        parts += (_INT32.pack(time) for time in (one.rebalance_timeout, one.session_timeout))
        for data in (one.subscription, one.assignment):
            parts += (_INT32.pack(len(data)), data)
    return b"".join(parts)


def subscribed_topics(subscription: bytes) -> tuple[str, ...]:
    """The topics that a consumer's subscription names; all versions start with the same fields."""
    reader = FieldReader(subscription)
    reader.int16()
    return tuple(reader.string() for _ in range(reader.count()))


def owned_partitions(subscription: bytes) -> tuple[TopicPartition, ...]:
    """The partitions that a consumer has, as its subscription says since version 1."""
    reader = FieldReader(subscription)
    version = reader.int16()
    for _ in range(reader.count()):
        reader.string()
    reader.byte_array()
    return _partitions(reader) if version >= 1 else ()


def encode_subscription(topics: Sequence[str], owned: Collection[TopicPartition]) -> bytes:
    """A consumer's subscription: version 1, the first that has what it owns. ValueError: a text is too long."""
    names = b"".join(map(encode_string, topics))
    return _INT16.pack(1) + _INT32.pack(len(topics)) + names + _NO_DATA + _encode_partitions(owned)


def encode_assignment(partitions: Collection[TopicPartition]) -> bytes:
    """What a consumer is to have: version 1. ValueError: a text is too long."""
    return _INT16.pack(1) + _encode_partitions(partitions) + _NO_DATA


def _encode_partitions(partitions: Collection[TopicPartition]) -> bytes:
    by_topic = dict[str, list[int]]()
    for at in sorted(partitions):
        by_topic.setdefault(at.topic, []).append(at.partition)
    parts = [_INT32.pack(len(by_topic))]
    for topic, numbers in by_topic.items():
        parts += (encode_string(topic), struct.pack(f">i{len(numbers)}i", len(numbers), *numbers))
    return b"".join(parts)


def topics_read(group: GroupMetadataValue) -> frozenset[str] | None:
    """The topics that the members of a group subscribe to; None: they are not consumers, so it is unknown."""
    if group.members and group.protocol_type != CONSUMER:
        return None
    return frozenset(topic for member in group.members for topic in subscribed_topics(member.subscription))


def assigned_partitions(assignment: bytes) -> tuple[TopicPartition, ...]:
    """The partitions assigned to a consumer; empty if it has no assignment."""
    if not assignment:
        return ()
    reader = FieldReader(assignment)
    reader.int16()
    return _partitions(reader)


def _partitions(reader: FieldReader) -> tuple[TopicPartition, ...]:
    found = list[TopicPartition]()
    for _ in range(reader.count()):
        topic = reader.string()
        found += [TopicPartition(topic, reader.int32()) for _ in range(reader.count())]
    return tuple(found)
