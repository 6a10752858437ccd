"""Keys and values of `__consumer_offsets`, byte for byte as Kafka's group coordinator writes them.

Source of the format: the message definitions `OffsetCommitKey`, `OffsetCommitValue` and `GroupMetadataKey`
of Kafka's group coordinator. A key starts with a version (int16) that gives the record's kind; a value
starts with a version of its own.

This module handles bytes only; `offsets` stores them, and `metadata` decodes a group's members.
Malformed bytes raise `ValueError`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from pyspark_log.storage.groups.log.fields import FieldReader, encode_string

_OFFSET_COMMIT_KEY = 1  # 0 has the same fields and is still read
_GROUP_METADATA_KEY = 2
_OFFSET_COMMIT_VALUE = 3
_EXPIRING_OFFSET_COMMIT_VALUE = 1
# The version of a key, and the length of its first text.
_KEY_START = struct.Struct(">hh")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")

#: The expiry of an offset that stays until it is deleted: the last time that the format can express.
NEVER = 0x7FFFFFFFFFFFFFFF

#: The kinds of records of later kinds of groups (KIP-848, KIP-932, KIP-1071), by the version of their keys.
#: The name of the group is the first field of all of these keys.
LATER_KINDS = {
    3: "ConsumerGroupMetadata", 4: "ConsumerGroupPartitionMetadata", 5: "ConsumerGroupMemberMetadata",
    6: "ConsumerGroupTargetAssignmentMetadata", 7: "ConsumerGroupTargetAssignmentMember",
    8: "ConsumerGroupCurrentMemberAssignment", 9: "ShareGroupPartitionMetadata", 10: "ShareGroupMemberMetadata",
    11: "ShareGroupMetadata", 12: "ShareGroupTargetAssignmentMetadata", 13: "ShareGroupTargetAssignmentMember",
    14: "ShareGroupCurrentMemberAssignment", 15: "ShareGroupStatePartitionMetadata",
    16: "ConsumerGroupRegularExpression", 17: "StreamsGroupMetadata", 18: "StreamsGroupPartitionMetadata",
    19: "StreamsGroupMemberMetadata", 20: "StreamsGroupTargetAssignmentMetadata",
    21: "StreamsGroupTargetAssignmentMember", 22: "StreamsGroupCurrentMemberAssignment", 23: "StreamsGroupTopology",
    24: "StreamsGroupTargetAssignmentResolvedTopicIds",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class OffsetCommitKey:
    """The group and partition of a committed offset's record."""

    group: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class GroupMetadataKey:
    """The group of a record of members and generation."""

    group: str


@dataclass(frozen=True, slots=True)
class OffsetCommitValue:
    """A committed offset.

    Attributes:
        offset: the offset of the next record to read.
        leader_epoch: leader epoch of the last record that was read, or -1.
        metadata: a text of the committer's choice.
        commit_timestamp: when it was committed, in ms.
        expire_timestamp: when it expires, in ms, or -1: by the store's retention. NEVER: it does not.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int = -1


def encode_offset_key(key: OffsetCommitKey) -> bytes:
    """The key of a committed offset, version 1."""
    return b"".join(
        (
            _INT16.pack(_OFFSET_COMMIT_KEY),
            encode_string(key.group),
            encode_string(key.topic),
            _INT32.pack(key.partition),
        )
    )


def encode_group_key(group: str) -> bytes:
    """The key of a group's metadata record, version 2."""
    return _INT16.pack(_GROUP_METADATA_KEY) + encode_string(group)


def decode_key(data: bytes) -> OffsetCommitKey | GroupMetadataKey | None:
    """Decodes a key of `__consumer_offsets`.

    None for the records of later kinds of groups (LATER_KINDS), and for unknown kinds.
    """
    if len(data) >= _KEY_START.size:
        version, size = _KEY_START.unpack_from(data)
        topic_at = _KEY_START.size + size
        if version == _OFFSET_COMMIT_KEY and size >= 0 and len(data) >= topic_at + 2:
            end = len(data) - 4
            if _INT16.unpack_from(data, topic_at)[0] == end - topic_at - 2 >= 0:
                # By far the most frequent kind, so decoded in one step.
                topic = data[topic_at + 2 : end].decode()
                return OffsetCommitKey(data[4:topic_at].decode(), topic, _INT32.unpack_from(data, end)[0])
    reader = FieldReader(data)
    version = reader.int16()
    if 0 <= version <= _OFFSET_COMMIT_KEY:
        return OffsetCommitKey(reader.string(), reader.string(), reader.int32())
    if version == _GROUP_METADATA_KEY:
        return GroupMetadataKey(reader.string())
    if version < 0:
        raise ValueError(f"key version {version}")
    return None


def group_of(data: bytes) -> str | None:
    """The group that a key names, also of the later kinds; None: unknown."""
    what = decode_key(data)
    if what is not None:
        return what.group
    reader = FieldReader(data)
    return reader.string() if reader.int16() in LATER_KINDS else None


def encode_offset_value(value: OffsetCommitValue) -> bytes:
    """Encodes a committed offset: version 3, which Kafka's brokers write; version 1 if it has an expiry.

    No later version has a field for an expiry, and version 1 has none for the leader epoch. Kafka's coordinator
    chooses in the same way (`GroupCoordinatorRecordHelpers`).
    """
    metadata = encode_string(value.metadata)
    if value.expire_timestamp >= 0:
        return b"".join(
            (
                struct.pack(">hq", _EXPIRING_OFFSET_COMMIT_VALUE, value.offset),
                metadata,
                struct.pack(">qq", value.commit_timestamp, value.expire_timestamp),
            )
        )
    return b"".join(
        (
            struct.pack(">hqi", _OFFSET_COMMIT_VALUE, value.offset, value.leader_epoch),
            metadata,
            struct.pack(">q", value.commit_timestamp),
        )
    )


def decode_offset_value(data: bytes) -> OffsetCommitValue:
    """Decodes a committed offset, of any version from 0 to 4."""
    reader = FieldReader(data)
    version = reader.int16()
    if not 0 <= version <= 4:
        raise ValueError(f"offset value of version {version}; this program reads 0 to 4")
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else -1
    metadata = reader.string(compact=version >= 4)
    commit_timestamp = reader.int64()
    expire_timestamp = reader.int64() if version == 1 else -1
    if version >= 4:
        reader.skip_tagged_fields()
    return OffsetCommitValue(offset, leader_epoch, metadata, commit_timestamp, expire_timestamp)


def partition_for(group: str, partitions: int) -> int:
    """The partition of `__consumer_offsets` that holds a group's records, as `GroupCoordinator` places it."""
    code = java_string_hash(group)
    # Kafka's Utils.abs: the smallest int, which has no positive counterpart, counts as 0.
    return (0 if code == -0x80000000 else abs(code)) % partitions


def java_string_hash(text: str) -> int:
    """Java's `String.hashCode`: signed, 32 bits, over UTF-16 code units."""
    code = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for (unit,) in struct.iter_unpack(">H", units):
        code = (31 * code + unit) & 0xFFFFFFFF
    return code - 0x100000000 if code & 0x80000000 else code
