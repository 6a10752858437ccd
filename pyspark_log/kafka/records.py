"""The records of a cluster's metadata: what the values in the log of Kafka's controllers (KRaft) are.

A value is, as Kafka's AbstractApiMessageSerde writes it, three unsigned varints (the frame's version, which is 1, the
type of the record, its version) and the record in that version.
"""

from __future__ import annotations

from typing import NamedTuple

from pyspark_log.kafka.errors import MessageError, UnknownRecordError
from pyspark_log.kafka.schemas import Struct, message_of, metadata_record
from pyspark_log.kafka.wire import decode, encode

_FRAME_VERSION = 1
_LENGTH = 4  # bytes, before what the engine writes


class MetadataRecord(NamedTuple):
    """A record.

    Attributes:
        name: the name of its type, as `PartitionRecord`.
        version: the one that it was written in.
        value: what it says.
    """

    name: str
    version: int
    value: Struct


def decode_record(data: bytes | bytearray | memoryview) -> MetadataRecord:
    """Reads the value of a record of a cluster's metadata.

    Raises:
        UnknownRecordError: its type or its version is not known, nor therefore what it means. A node that has such a
            record does not know the state of its cluster any more.
        MessageError: it is no such record.
    """
    frame, position = _varint(data, 0)
    record_type, position = _varint(data, position)
    version, position = _varint(data, position)
    if frame != _FRAME_VERSION:
        raise UnknownRecordError(f"a record of the cluster's metadata has frame version {frame}, expected 1")
    try:
        of = metadata_record(record_type)
    except KeyError:
        raise UnknownRecordError(f"the cluster's metadata has a record of an unknown type, {record_type}") from None
    if version not in of.versions:
        raise UnknownRecordError(
            f"the cluster's metadata has a {of.name} of version {version}, and version {of.versions[-1]} is the newest "
            "that is known"
        )
    try:
        value, end = decode(of.plan(version), data, position)
    except MessageError as error:
        raise MessageError(f"{of.name} version {version}: {error}") from None
    if end != len(data):
        raise MessageError(f"{of.name} version {version}: {len(data) - end} bytes too many")
    return MetadataRecord(of.name, version, value)


def encode_record(value: Struct, version: int) -> bytes:
    """Writes a record of a cluster's metadata. MessageError: a value does not fit its field."""
    of = message_of(value)
    if of.record_type is None:
        raise TypeError(f"{of.name} is no record of a cluster's metadata")
    start = bytes([_FRAME_VERSION, of.record_type, version])  # each is less than 128
    return start + b"".join(encode(None, None, of.plan(version), value))[_LENGTH:]


def _varint(data: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """A number, and the position after it."""
    value = 0
    for shift in range(0, 35, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise MessageError(f"byte {position}: the number before it has no end")
