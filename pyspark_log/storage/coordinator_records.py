"""Keys and values of `__consumer_offsets`, byte for byte as Kafka's group coordinator writes them.

Source of the format: the message definitions `OffsetCommitKey`, `OffsetCommitValue` and `GroupMetadataKey`
of Kafka's group coordinator. A key starts with a version (int16) that tells the record's kind; a value
starts with a version of its own. Integers are big-endian. A string is its length in bytes (int16) and UTF-8;
in "flexible" versions (KIP-482) the length is an unsigned varint of length + 1, and tagged fields close the
value.

This module knows bytes only; `offsets_log` knows where they lie. Malformed bytes raise `ValueError`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

_OFFSET_COMMIT_KEY = 1  # 0 has the same fields and is still read
_GROUP_METADATA_KEY = 2
_OFFSET_COMMIT_VALUE = 3
_MAX_STRING = 0x7FFF


@dataclass(frozen=True, slots=True)
class OffsetCommitKey:
    """Says whose position, and where, the record's value holds."""

    group: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class GroupMetadataKey:
    """Says which group's members and generation the record's value holds."""

    group: str


@dataclass(frozen=True, slots=True)
class OffsetCommitValue:
    """A committed position.

    Attributes:
        offset: the offset of the next record to read.
        leader_epoch: leader epoch of the last record that was read, or -1.
        metadata: a text of the committer's own.
        commit_timestamp: when it was committed, in ms.
        expire_timestamp: when it ends, in ms, or -1 (only version 1 can say so).
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int = -1


class _Reader:
    """Takes fields off the front of a value, never beyond its end."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def _take(self, size: int) -> bytes:
        if not 0 <= size <= len(self._data) - self._at:
            raise ValueError(f"field of {size} bytes at byte {self._at} of {len(self._data)}")
        self._at += size
        return self._data[self._at - size : self._at]

    def int16(self) -> int:
        return int.from_bytes(self._take(2), "big", signed=True)

    def int32(self) -> int:
        return int.from_bytes(self._take(4), "big", signed=True)

    def int64(self) -> int:
        return int.from_bytes(self._take(8), "big", signed=True)

    def string(self) -> str:
        return self._take(self.int16()).decode()  # UnicodeDecodeError is a ValueError

    def compact_string(self) -> str:
        return self._take(self._uvarint() - 1).decode()

    def skip_tagged_fields(self) -> None:
        for _ in range(self._uvarint()):
            self._uvarint()
            self._take(self._uvarint())

    def _uvarint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            (byte,) = self._take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ValueError(f"varint of more than five bytes before byte {self._at}")


def encode_offset_key(key: OffsetCommitKey) -> bytes:
    """The key of a committed offset, version 1."""
    return b"".join((
        struct.pack(">h", _OFFSET_COMMIT_KEY), _string(key.group), _string(key.topic),
        struct.pack(">i", key.partition),
    ))


def decode_key(data: bytes) -> OffsetCommitKey | GroupMetadataKey | None:
    """What a record of `__consumer_offsets` is about.

    None for the kinds that came with later sorts of groups (KIP-848, KIP-932), and for any still to come.
    """
    reader = _Reader(data)
    version = reader.int16()
    if 0 <= version <= _OFFSET_COMMIT_KEY:
        return OffsetCommitKey(reader.string(), reader.string(), reader.int32())
    if version == _GROUP_METADATA_KEY:
        return GroupMetadataKey(reader.string())
    if version < 0:
        raise ValueError(f"key version {version}")
    return None


def encode_offset_value(value: OffsetCommitValue) -> bytes:
    """A committed offset, version 3, the one that Kafka's brokers write; it has no room for an expiry."""
    return b"".join((
        struct.pack(">hqi", _OFFSET_COMMIT_VALUE, value.offset, value.leader_epoch),
        _string(value.metadata), struct.pack(">q", value.commit_timestamp),
    ))


def decode_offset_value(data: bytes) -> OffsetCommitValue:
    """A committed offset, of any version from 0 to 4."""
    reader = _Reader(data)
    version = reader.int16()
    if not 0 <= version <= 4:
        raise ValueError(f"offset value of version {version}; this program reads 0 to 4")
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else -1
    metadata = reader.compact_string() if version >= 4 else reader.string()
    commit_timestamp = reader.int64()
    expire_timestamp = reader.int64() if version == 1 else -1
    if version >= 4:
        reader.skip_tagged_fields()
    return OffsetCommitValue(offset, leader_epoch, metadata, commit_timestamp, expire_timestamp)


def partition_for(group: str, partitions: int) -> int:
    """The partition of `__consumer_offsets` that holds a group's records, as `GroupCoordinator` places it."""
    code = java_string_hash(group)
    # Kafka's Utils.abs: the one number without a positive twin counts as 0.
    return (0 if code == -0x80000000 else abs(code)) % partitions


def java_string_hash(text: str) -> int:
    """Java's `String.hashCode`: signed, 32 bits, over UTF-16 code units."""
    code = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for (unit,) in struct.iter_unpack(">H", units):
        code = (31 * code + unit) & 0xFFFFFFFF
    return code - 0x100000000 if code & 0x80000000 else code


def _string(text: str) -> bytes:
    data = text.encode()
    if len(data) > _MAX_STRING:
        raise ValueError(f"a text of {len(data)} bytes; the format's limit is {_MAX_STRING}")
    return struct.pack(">h", len(data)) + data
