"""The records of consumer groups of KIP-848 (`group.protocol=consumer`), byte for byte as Kafka writes them.

Source of the format: the message definitions of Kafka's group coordinator whose names begin with `ConsumerGroup`, such
as `ConsumerGroupMemberMetadataKey` and `-Value`. A key has a kind, the group, and for some kinds a name; values are in
version 0, which is flexible. Malformed bytes raise `ValueError`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

from pyspark_log.group_records import (
    Current,
    GroupEpoch,
    Kind,
    MatchedTopics,
    MemberMetadata,
    MemberState,
    Owned,
    RecordKey,
    Target,
    TargetEpoch,
    Value,
)
from pyspark_log.storage.groups.log.fields import (
    FieldReader,
    compact_array,
    compact_string,
    encode_string,
    unsigned_varint,
)

_VERSION = struct.pack(">h", 0)
_INT16, _INT32, _INT64 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
_NO_TAGS = b"\0"
# The tagged fields of a member: it says nothing in the classic protocol. That is not the default of the format.
_NOT_CLASSIC = b"\1\0\1\0"
# The kinds whose keys have a name.
_NAMED = frozenset({Kind.MEMBER, Kind.TARGET, Kind.CURRENT, Kind.REGEX})


# ---- keys


def encode_key(group: str, key: RecordKey) -> bytes:
    """The key of a record. ValueError: a text is too long for the format."""
    name = encode_string(key.name) if key.kind in _NAMED else b""
    return _INT16.pack(key.kind) + encode_string(group) + name


def decode_key(data: bytes) -> tuple[str, RecordKey] | None:
    """The group and what the record is about; None: it is of another kind."""
    reader = FieldReader(data)
    kind = reader.int16()
    if kind not in set(Kind):
        return None
    group = reader.string()
    return group, RecordKey(Kind(kind), reader.string() if kind in _NAMED else "")


# ---- values


def encode_value(value: Value) -> bytes:
    """The value of a record."""
    match value:
        case GroupEpoch():
            body = _INT32.pack(value.epoch) + _tagged_int64(value.metadata_hash)
        case TargetEpoch():
            body = _INT32.pack(value.epoch) + _tagged_int64(value.timestamp)
        case Target():
            body = compact_array(_topic(*one) + _NO_TAGS for one in value.partitions.items()) + _NO_TAGS
        case MatchedTopics():
            body = (
                compact_array(map(compact_string, value.topics))
                + struct.pack(">qq", value.version, value.timestamp)
                + _NO_TAGS
            )
        case MemberMetadata():
            body = _member(value)
        case Current():
            numbers = _INT32.pack(value.epoch) + _INT32.pack(value.previous_epoch) + value.state.to_bytes(1, "big")
            body = numbers + _owned(value.assigned) + _owned(value.revoking) + _NO_TAGS
    return _VERSION + body


def decode_value(kind: Kind, data: bytes) -> Value:
    """Decodes a value, by its key's kind."""
    reader = FieldReader(data)
    version = reader.int16()
    if version:
        raise ValueError(f"a group's value of version {version}; this program reads 0")
    return _DECODERS[kind](reader)


def _member(value: MemberMetadata) -> bytes:
    return b"".join(
        (
            *map(compact_string, (value.instance_id, value.rack_id, value.client_id, value.client_host)),
            compact_array(map(compact_string, value.topics)),
            compact_string(value.regex),
            _INT32.pack(value.rebalance_timeout),
            compact_string(value.assignor),
            _NOT_CLASSIC,
        )
    )


def _owned(owned: Owned) -> bytes:
    return compact_array(
        _topic(topic_id, tuple(epochs)) + _tagged(compact_array(map(_INT32.pack, epochs.values())))
        for topic_id, epochs in owned.items()
    )


def _topic(topic_id: bytes, partitions: tuple[int, ...]) -> bytes:
    return topic_id + compact_array(map(_INT32.pack, partitions))


def _tagged(data: bytes) -> bytes:
    """The tagged fields of a struct that has the one with tag 0."""
    return unsigned_varint(1) + unsigned_varint(0) + unsigned_varint(len(data)) + data


def _tagged_int64(number: int) -> bytes:
    """The tagged fields of a struct whose field of tag 0 is 0 by default."""
    return _tagged(_INT64.pack(number)) if number else _NO_TAGS


def _decode_group(reader: FieldReader) -> GroupEpoch:
    return GroupEpoch(reader.int32(), _tagged_number(reader))


def _decode_target_epoch(reader: FieldReader) -> TargetEpoch:
    return TargetEpoch(reader.int32(), _tagged_number(reader))


def _tagged_number(reader: FieldReader) -> int:
    return int.from_bytes(reader.tagged_fields().get(0, b""), "big", signed=True)


def _decode_member(reader: FieldReader) -> MemberMetadata:
    value = MemberMetadata(
        reader.nullable_string(compact=True),
        reader.nullable_string(compact=True),
        reader.string(compact=True),
        reader.string(compact=True),
        tuple(reader.string(compact=True) for _ in range(reader.count(compact=True))),
        reader.nullable_string(compact=True),
        reader.int32(),
        reader.nullable_string(compact=True),
    )
    reader.skip_tagged_fields()
    return value


def _decode_target(reader: FieldReader) -> Target:
    found = dict[bytes, tuple[int, ...]]()
    for _ in range(reader.count(compact=True)):
        topic_id, numbers = reader.uuid(), _numbers(reader)
        reader.skip_tagged_fields()
        found[topic_id] = numbers
    return Target(found)


def _decode_current(reader: FieldReader) -> Current:
    epoch, previous_epoch, state = reader.int32(), reader.int32(), MemberState(reader.int8())
    return Current(epoch, previous_epoch, state, _decode_owned(reader, epoch), _decode_owned(reader, epoch))


def _decode_owned(reader: FieldReader, epoch: int) -> Owned:
    found = dict[bytes, dict[int, int]]()
    for _ in range(reader.count(compact=True)):
        topic_id, numbers = reader.uuid(), _numbers(reader)
        written = reader.tagged_fields().get(0)
        # Kafka 4.2 and before do not write them.
        epochs = _numbers(FieldReader(written)) if written else (max(epoch, 0),) * len(numbers)
        found[topic_id] = dict(zip(numbers, epochs, strict=True))
    return found


def _numbers(reader: FieldReader) -> tuple[int, ...]:
    return tuple(reader.int32() for _ in range(reader.count(compact=True)))


def _decode_regex(reader: FieldReader) -> MatchedTopics:
    topics = tuple(reader.string(compact=True) for _ in range(reader.count(compact=True)))
    return MatchedTopics(topics, reader.int64(), reader.int64())


_DECODERS: Mapping[Kind, Callable[[FieldReader], Value]] = {
    Kind.GROUP: _decode_group,
    Kind.MEMBER: _decode_member,
    Kind.TARGET_EPOCH: _decode_target_epoch,
    Kind.TARGET: _decode_target,
    Kind.CURRENT: _decode_current,
    Kind.REGEX: _decode_regex,
}
