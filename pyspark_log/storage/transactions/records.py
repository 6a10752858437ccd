"""Keys and values of `__transaction_state`, byte for byte as Kafka's transaction coordinator writes them.

Source of the format: the message definitions `TransactionLogKey` and `TransactionLogValue` of Kafka's transaction
coordinator. Values are written in version 1, which is flexible (KIP-915), and read in both. Malformed bytes raise
`ValueError`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from pyspark_log.storage.groups.log.fields import (
    FieldReader,
    compact_array,
    compact_string,
    encode_string,
    unsigned_varint,
)
from pyspark_log.types import TopicPartition

NO_PRODUCER = -1
NO_EPOCH = -1
_KEY_VERSION = 0
_VALUE_VERSION = 1
# The tagged fields, in the order in which they are written: previous id, next id, version of the client, next epoch.
_PREVIOUS_ID, _NEXT_ID, _CLIENT_VERSION = range(3)
_TAGS = {_PREVIOUS_ID: struct.Struct(">q"), _NEXT_ID: struct.Struct(">q"), _CLIENT_VERSION: struct.Struct(">h")}
_HEAD = struct.Struct(">qhib")
_TIMES = struct.Struct(">qq")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class TransactionState(IntEnum):
    """The state of a transactional id; Kafka's numbers."""

    EMPTY = 0  # the producer has not begun a transaction
    ONGOING = 1
    PREPARE_COMMIT = 2  # decided; not all markers are written
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def kafkas_name(self) -> str:
        """As Kafka's requests and tools have it: PrepareCommit."""
        return self.name.title().replace("_", "")


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """What the log has of a transactional id.

    Attributes:
        producer_id, epoch: of its producer, as markers have them.
        timeout: for how long a transaction may last, in ms.
        state: its state.
        partitions: those that the transaction has written to.
        updated: when this was written, in ms.
        started: when the transaction began, in ms; -1: there is none.
        previous_id: the producer id before this one; -1: none.
        next_id: the producer id after the transaction, once this one has no more epochs; -1: it stays.
        last_epoch: the epoch that a client may have whose last answer was lost; -1: none. The log does not have it.
        client_version: of the protocol of transactions that the client uses; 2: each has an epoch of its own.
    """

    producer_id: int
    epoch: int
    timeout: int
    state: TransactionState
    partitions: frozenset[TopicPartition] = frozenset()
    updated: int = -1
    started: int = -1
    previous_id: int = NO_PRODUCER
    next_id: int = NO_PRODUCER
    client_version: int = 0
    last_epoch: int = NO_EPOCH


def encode_key(transactional_id: str) -> bytes:
    """The key of a transactional id. ValueError: it is too long."""
    return _INT16.pack(_KEY_VERSION) + encode_string(transactional_id)


def decode_key(data: bytes) -> str | None:
    """The transactional id; None: a key of another kind."""
    reader = FieldReader(data)
    return reader.string() if reader.int16() == _KEY_VERSION else None


def encode_value(one: TransactionMetadata) -> bytes:
    """The value of a record."""
    head = _INT16.pack(_VALUE_VERSION) + _HEAD.pack(one.producer_id, one.epoch, one.timeout, one.state)
    topics: dict[str, list[int]] = {}
    for at in sorted(one.partitions):
        topics.setdefault(at.topic, []).append(at.partition)
    partitions = compact_array(
        compact_string(topic) + compact_array(map(_INT32.pack, numbers)) + b"\0" for topic, numbers in topics.items()
    )
    if one.state is TransactionState.EMPTY:
        partitions = unsigned_varint(0)  # A null, as Kafka writes it.
    tagged = {_PREVIOUS_ID: one.previous_id, _NEXT_ID: one.next_id, _CLIENT_VERSION: one.client_version}
    written = {tag: value for tag, value in tagged.items() if value != (0 if tag == _CLIENT_VERSION else NO_PRODUCER)}
    tags = unsigned_varint(len(written)) + b"".join(
        unsigned_varint(tag) + unsigned_varint(_TAGS[tag].size) + _TAGS[tag].pack(value)
        for tag, value in written.items()
    )
    return head + partitions + _TIMES.pack(one.updated, one.started) + tags


def decode_value(data: bytes) -> TransactionMetadata:
    """What a record says."""
    reader = FieldReader(data)
    version = reader.int16()
    if version not in (0, _VALUE_VERSION):
        raise ValueError(f"version {version} of a transaction's value")
    flexible = version == _VALUE_VERSION
    producer_id, epoch, timeout, state = reader.int64(), reader.int16(), reader.int32(), reader.int8()
    partitions = set[TopicPartition]()
    for _ in range(reader.count(compact=flexible)):
        topic = reader.string(compact=flexible)
        partitions |= {TopicPartition(topic, reader.int32()) for _ in range(reader.count(compact=flexible))}
        if flexible:
            reader.tagged_fields()
    updated, started = reader.int64(), reader.int64()
    tags: Mapping[int, bytes] = reader.tagged_fields() if flexible else {}
    known = {tag: form.unpack(tags[tag])[0] for tag, form in _TAGS.items() if len(tags.get(tag, b"")) == form.size}
    return TransactionMetadata(
        producer_id,
        epoch,
        timeout,
        TransactionState(state),
        frozenset(partitions),
        updated,
        started,
        known.get(_PREVIOUS_ID, NO_PRODUCER),
        known.get(_NEXT_ID, NO_PRODUCER),
        known.get(_CLIENT_VERSION, 0),
    )
