"""An entry of the publish log: one decision, which is one object.

    magic (8 bytes), length of the head (4), CRC-32C of the head (4), head (JSON), record batches

The head says what changes: any of topics, publishers, records, committed offsets, log starts, merged records, horizon
and floor, all at once. An entry with what only servers write (producers, groups, themselves) is of version 2, any other
of version 1, which older versions of the engine read. Record batches that are small follow the head; others are in
objects of their own. Which offsets they have, the head says: those of staged output count from 0.
"""

from __future__ import annotations

import json
import struct
from base64 import b64decode, b64encode
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pyspark_log.config import INT_MAX, LONG_MAX
from pyspark_log.errors import CorruptRecordError
from pyspark_log.storage.catalog.topics import check_id
from pyspark_log.storage.fs.json_fields import Fields, text, whole
from pyspark_log.storage.publish import Decision
from pyspark_log.storage.publish.decision import About, Origin
from pyspark_log.storage.record import crc32c
from pyspark_log.types import TopicDescription, TopicPartition

# The newest version; and the one of entries that have nothing of it.
VERSION, _FIRST_VERSION = 2, 1
_MAGIC = b"PYLOGPL\0"
_START = struct.Struct(">8sII")
#: As much as is read of an entry at first: most heads are smaller.
FIRST_BYTES = 64 * 1024


class Region(NamedTuple):
    """Record batches, back to back, in an object.

    Attributes:
        object: the object's name; "": they are in the entry itself.
        position, size: where they are in it, in bytes; in the entry: after its head.
        records: how many offsets they take.
        max_timestamp: the largest time of their records (ms), or NO_TIMESTAMP.
        crc: CRC-32C of the checksums of the batches, one after the other. It identifies them.
    """

    object: str
    position: int
    size: int
    records: int
    max_timestamp: int
    crc: int


class Addition(NamedTuple):
    """Records that a partition gets.

    Attributes:
        topic_id, partition: which partition.
        base_offset: the offset of the first of them, which is where the partition ended before.
        regions: where they are, in their order.
    """

    topic_id: str
    partition: int
    base_offset: int
    regions: tuple[Region, ...]

    @property
    def next_offset(self) -> int:
        """The offset after the last of them."""
        return self.base_offset + sum(region.records for region in self.regions)


class Numbered(NamedTuple):
    """A record batch of an idempotent producer (KIP-98) among the records that a partition gets.

    Attributes:
        topic_id, partition: which partition.
        producer_id, epoch: the producer.
        base_sequence: the sequence number of its first record.
        base_offset: the offset of that.
        records: how many offsets it takes.
    """

    topic_id: str
    partition: int
    producer_id: int
    epoch: int
    base_sequence: int
    base_offset: int
    records: int


class OffsetMove(NamedTuple):
    """A move of a group's committed offset.

    Attributes:
        group, at: whose, and of which partition.
        before: the committed offset from which it starts; None: there is none.
        offset: the new one; None: it is deleted.
        metadata: the committer's text.
    """

    group: str
    at: TopicPartition
    before: int | None
    offset: int | None
    metadata: str = ""


class GroupRecord(NamedTuple):
    """A record of a group's members, as Kafka's coordinator writes it to `__consumer_offsets`.

    Attributes:
        group: whose.
        key, value: as there; None: it is deleted.
    """

    group: str
    key: bytes
    value: bytes | None


class ServerNote(NamedTuple):
    """What a server of the store says of itself.

    Attributes:
        node_id: Kafka's `broker.id`.
        run: 22 characters that no other start of a server has.
        host, port: where clients find it.
        coordinates: whether it coordinates groups and transactions from then on.
        leaves: whether it ends.
    """

    node_id: int
    run: str
    host: str
    port: int
    coordinates: bool
    leaves: bool


class LogStart(NamedTuple):
    """The first offset that a partition keeps."""

    topic_id: str
    partition: int
    offset: int


class Merge(NamedTuple):
    """Records that move to another object; those that are compacted away are not in it.

    Attributes:
        topic_id, partition: which partition.
        base_offset, next_offset: the offsets that they have: [base, next).
        regions: where they are from then on, in their order; together they take these offsets.
        cleaned_to: up to which offset the partition is compacted from then on; -1: as before.
    """

    topic_id: str
    partition: int
    base_offset: int
    next_offset: int
    regions: tuple[Region, ...]
    cleaned_to: int = -1


@dataclass(frozen=True, slots=True)
class Entry:
    """One decision.

    Attributes:
        number: its own number; the first is 0.
        token: 32 hex digits by which its writer knows it as its own.
        origin: which process has made it, and when.
        topics: those that are created or changed, as they are from then on.
        deleted: the ids of topics that are deleted.
        publisher: what is known of a publisher from then on; its `offset` is the entry's number. None: of none.
        additions: the records that it publishes.
        numbered: the batches among them that have a producer.
        moves: of committed offsets.
        group_records: of groups' members.
        server: what the server says of itself that has made it; None: nothing.
        log_starts: of partitions whose first records are deleted.
        merges: records that are elsewhere from then on.
        horizon: a time (ms): no later entry adds staged output that is older; None: it stays.
        floor: up to which number entries may be deleted; None: it stays.
        head_size: bytes before the record batches in the entry's object; 0 before it is encoded.
    """

    number: int
    token: str
    origin: Origin
    topics: tuple[TopicDescription, ...] = ()
    deleted: tuple[str, ...] = ()
    publisher: Decision | None = None
    additions: tuple[Addition, ...] = ()
    numbered: tuple[Numbered, ...] = ()
    moves: tuple[OffsetMove, ...] = ()
    group_records: tuple[GroupRecord, ...] = ()
    server: ServerNote | None = None
    log_starts: tuple[LogStart, ...] = ()
    merges: tuple[Merge, ...] = ()
    horizon: int | None = None
    floor: int | None = None
    head_size: int = field(default=0, compare=False)


def name_of(number: int) -> str:
    """The name of an entry's object."""
    return f"log/{number:020}"


def encode(entry: Entry, data: Iterable[bytes | memoryview] = ()) -> bytes:
    """The bytes of an entry's object; `data`: the record batches that are in it."""
    head = json.dumps(_fields(entry), separators=(",", ":")).encode()
    return b"".join([_START.pack(_MAGIC, len(head), crc32c(head)), head, *data])


def size_of_head(start: bytes | memoryview) -> int:
    """How many bytes come before the record batches, by the first 16 bytes of an entry. CorruptRecordError."""
    magic, length, _ = _START.unpack_from(start) if len(start) >= _START.size else (b"", 0, 0)
    if magic != _MAGIC:
        raise CorruptRecordError("it does not begin as an entry of a publish log", 0)
    return _START.size + int(length)


def decode(number: int, data: bytes | memoryview) -> Entry:
    """The entry of a number from at least its head.

    Raises:
        CorruptRecordError: it is damaged, or is no entry, or that of another number.
        StoreVersionError: a newer version wrote it.
    """
    size = size_of_head(data)
    head = bytes(data[_START.size : size])
    if len(head) < size - _START.size or crc32c(head) != _START.unpack_from(data)[2]:
        raise CorruptRecordError("its head is damaged", 0, number)
    try:
        content = Fields.parse(head)
        content.check_version(VERSION, name_of(number))
        entry = _entry(content, size)
    except ValueError as error:
        raise CorruptRecordError(f"its head makes no sense: {error}", 0, number) from None
    if entry.number != number:
        raise CorruptRecordError(f"it is the entry {entry.number}: objects were copied or renamed", 0, number)
    return entry


# ---- the head as JSON


def _fields(entry: Entry) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "version": VERSION if entry.numbered or entry.group_records or entry.server else _FIRST_VERSION,
        "number": entry.number,
        "token": entry.token,
        **entry.origin._asdict(),
    }
    if entry.topics:
        fields["topics"] = [topic_fields(one) for one in entry.topics]
    if entry.deleted:
        fields["deleted"] = entry.deleted
    if entry.publisher is not None:
        fields["publisher"] = publisher_fields(entry.publisher)
    if entry.additions:
        fields["additions"] = entry.additions
    if entry.numbered:
        fields["numbered"] = entry.numbered
    if entry.moves:
        fields["moves"] = [
            [one.group, one.at.topic, one.at.partition, one.before, one.offset, one.metadata] for one in entry.moves
        ]
    if entry.group_records:
        fields["group_records"] = [group_record_fields(record) for record in entry.group_records]
    if entry.server is not None:
        fields["server"] = entry.server
    if entry.log_starts:
        fields["log_starts"] = entry.log_starts
    if entry.merges:
        fields["merges"] = entry.merges
    if entry.horizon is not None:
        fields["horizon"] = entry.horizon
    if entry.floor is not None:
        fields["floor"] = entry.floor
    return fields


def group_record_fields(record: GroupRecord) -> list[str | None]:
    """A record of a group as JSON."""
    value = None if record.value is None else b64encode(record.value).decode()
    return [record.group, b64encode(record.key).decode(), value]


def topic_fields(topic: TopicDescription) -> dict[str, Any]:
    """A topic as JSON."""
    return {
        "name": topic.name, "topic_id": topic.topic_id, "partitions": topic.partitions, "configs": dict(topic.configs)
    }  # fmt: skip


def publisher_fields(publisher: Decision) -> dict[str, Any]:
    """What is known of a publisher, as JSON."""
    return {
        "publisher": publisher.publisher,
        "number": publisher.number,
        "decision": publisher.offset,
        "run": publisher.run,
        "replaced": publisher.replaced,
        "location": publisher.location,
        "plan": publisher.plan,
        "records": publisher.records,
        "holder": publisher.holder._asdict(),
        **Origin(publisher.host, publisher.process, publisher.time)._asdict(),
        **publisher.about.to_json(),
    }


def _entry(content: Fields, size: int) -> Entry:
    def listed(name: str) -> list[object]:
        return content.list(name) if content.has(name) else []

    return Entry(
        number=content.whole("number"),
        token=content.text("token"),
        origin=_origin(content),
        topics=tuple(topic_of(Fields(one)) for one in listed("topics")),
        deleted=tuple(_id(one) for one in listed("deleted")),
        publisher=publisher_of(Fields(content.value("publisher"))) if content.has("publisher") else None,
        additions=tuple(_addition(_items(one, 4)) for one in listed("additions")),
        numbered=tuple(_numbered(_items(one, 7)) for one in listed("numbered")),
        moves=tuple(_move(_items(one, 6)) for one in listed("moves")),
        group_records=tuple(group_record_of(one) for one in listed("group_records")),
        server=_server(_items(content.value("server"), 6)) if content.has("server") else None,
        log_starts=tuple(_log_start(_items(one, 3)) for one in listed("log_starts")),
        merges=tuple(_merge(_items(one, 6)) for one in listed("merges")),
        horizon=content.whole("horizon") if content.has("horizon") else None,
        floor=content.whole("floor") if content.has("floor") else None,
        head_size=size,
    )


def _items(value: object, count: int) -> list[Any]:
    if not isinstance(value, list) or len(value) != count:
        raise ValueError(f"{value!r} where a list of {count} should be")
    return value


def _id(value: object) -> str:
    found = text(value, "topic_id")
    check_id(found)
    return found


def _origin(content: Fields) -> Origin:
    return Origin(content.text("host"), content.whole("process"), content.whole("time"))


def topic_of(content: Fields) -> TopicDescription:
    """The inverse of topic_fields. ValueError."""
    return TopicDescription(
        content.text("name"),
        _id(content.value("topic_id")),
        content.whole("partitions", 1, INT_MAX),
        dict(content.texts("configs")),
    )


def publisher_of(content: Fields) -> Decision:
    """The inverse of publisher_fields. ValueError."""
    host, process, time = _origin(content)
    return Decision(
        content.text("publisher"),
        content.whole("number", low=-LONG_MAX - 1),
        content.whole("decision"),
        done=True,
        run=content.text("run"),
        replaced=tuple(text(run, "replaced") for run in content.list("replaced")),
        location=content.text("location"),
        plan=content.text("plan"),
        records=content.whole("records"),
        host=host,
        process=process,
        time=time,
        holder=_origin(Fields(content.value("holder"))),
        about=About.from_json(content),
    )


def _addition(items: list[Any]) -> Addition:
    topic_id, partition, base_offset, regions = items
    found = tuple(_region(_items(one, 6)) for one in regions)
    return Addition(_id(topic_id), whole(partition, "partition", 0, INT_MAX), whole(base_offset, "base_offset"), found)


def _numbered(items: list[Any]) -> Numbered:
    topic_id, partition, producer_id, epoch, base_sequence, base_offset, count = items
    return Numbered(
        _id(topic_id),
        whole(partition, "partition", 0, INT_MAX),
        whole(producer_id, "producer_id"),
        whole(epoch, "epoch"),
        whole(base_sequence, "base_sequence", 0, INT_MAX),
        whole(base_offset, "base_offset"),
        whole(count, "records", 1),
    )


def _merge(items: list[Any]) -> Merge:
    topic_id, partition, base_offset, next_offset, regions, cleaned_to = items
    return Merge(
        _id(topic_id),
        whole(partition, "partition", 0, INT_MAX),
        whole(base_offset, "base_offset"),
        whole(next_offset, "next_offset", base_offset + 1),
        tuple(_region(_items(one, 6)) for one in regions),
        whole(cleaned_to, "cleaned_to", -1),
    )


def _region(items: list[Any]) -> Region:
    name, position, size, count, timestamp, crc = items
    return Region(
        text(name, "object"),
        whole(position, "position"),
        whole(size, "size", 1),
        whole(count, "records", 1),
        whole(timestamp, "max_timestamp", -1),
        whole(crc, "crc"),
    )


def _move(items: list[Any]) -> OffsetMove:
    group, topic, partition, before, offset, metadata = items
    return OffsetMove(
        text(group, "group"),
        TopicPartition(text(topic, "topic"), whole(partition, "partition", 0, INT_MAX)),
        None if before is None else whole(before, "before"),
        None if offset is None else whole(offset, "offset"),
        text(metadata, "metadata"),
    )


def group_record_of(value: object) -> GroupRecord:
    """The inverse of group_record_fields. ValueError."""
    group, key, data = _items(value, 3)
    return GroupRecord(
        text(group, "group"), b64decode(text(key, "key")), None if data is None else b64decode(text(data, "value"))
    )


def _server(items: list[Any]) -> ServerNote:
    node_id, run, host, port, coordinates, leaves = items
    return ServerNote(
        whole(node_id, "node_id", 0, INT_MAX), text(run, "run"), text(host, "host"), whole(port, "port", 0, 65535),
        bool(coordinates), bool(leaves),
    )  # fmt: skip


def _log_start(items: list[Any]) -> LogStart:
    topic_id, partition, offset = items
    return LogStart(_id(topic_id), whole(partition, "partition", 0, INT_MAX), whole(offset, "offset"))
