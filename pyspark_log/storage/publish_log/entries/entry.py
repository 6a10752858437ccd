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
from typing import Any

from pyspark_log.config import INT_MAX, LONG_MAX
from pyspark_log.errors import CorruptRecordError
from pyspark_log.storage.catalog.topics import check_id
from pyspark_log.storage.fs.json_fields import Fields, text, whole
from pyspark_log.storage.publish import Decision
from pyspark_log.storage.publish.decision import About, Origin
from pyspark_log.storage.publish_log.entries.changes import (
    Addition,
    Document,
    GroupRecord,
    LogStart,
    Merge,
    Numbered,
    OffsetMove,
    Place,
    Region,
    ServerNote,
    Staged,
    StagedOffset,
    Step,
    TransactionStep,
)
from pyspark_log.storage.record import crc32c
from pyspark_log.types import TopicDescription, TopicPartition

# The newest version, of entries with documents; that of others which only servers write; and that of all others.
VERSION, _OF_SERVERS, _FIRST_VERSION = 3, 2, 1
_MAGIC = b"PYLOGPL\0"
_START = struct.Struct(">8sII")
#: As much as is read of an entry at first: most heads are smaller.
FIRST_BYTES = 64 * 1024


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
        staged, staged_offsets: of transactions that are open.
        steps: what becomes of transactions.
        server: what the server says of itself that has made it; None: nothing.
        documents: those of the servers that are changed.
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
    staged: tuple[Staged, ...] = ()
    staged_offsets: tuple[StagedOffset, ...] = ()
    steps: tuple[TransactionStep, ...] = ()
    server: ServerNote | None = None
    documents: tuple[Document, ...] = ()
    log_starts: tuple[LogStart, ...] = ()
    merges: tuple[Merge, ...] = ()
    horizon: int | None = None
    floor: int | None = None
    head_size: int = field(default=0, compare=False)

    @property
    def is_of_server(self) -> bool:
        """Whether it has what only servers write."""
        return bool(
            self.numbered or self.group_records or self.staged or self.staged_offsets or self.steps or self.server
        )


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
        "version": VERSION if entry.documents else _OF_SERVERS if entry.is_of_server else _FIRST_VERSION,
        "number": entry.number,
        "token": entry.token,
        **entry.origin._asdict(),
    }
    if entry.topics:
        fields["topics"] = [topic_fields(each) for each in entry.topics]
    if entry.deleted:
        fields["deleted"] = entry.deleted
    if entry.publisher is not None:
        fields["publisher"] = publisher_fields(entry.publisher)
    if entry.additions:
        fields["additions"] = entry.additions
    if entry.moves:
        fields["moves"] = [
            [each.group, each.at.topic, each.at.partition, each.before, each.offset, each.metadata]
            for each in entry.moves
        ]
    if entry.documents:
        fields["documents"] = entry.documents
    if entry.log_starts:
        fields["log_starts"] = entry.log_starts
    if entry.merges:
        fields["merges"] = entry.merges
    if entry.horizon is not None:
        fields["horizon"] = entry.horizon
    if entry.floor is not None:
        fields["floor"] = entry.floor
    return fields | (_fields_of_server(entry) if entry.is_of_server else {})


def _fields_of_server(entry: Entry) -> dict[str, Any]:
    return {
        "numbered": entry.numbered,
        "group_records": [group_record_fields(record) for record in entry.group_records],
        "staged": entry.staged,
        "staged_offsets": [staged_offset_fields(offset) for offset in entry.staged_offsets],
        "steps": [
            [step.transactional_id, bytes_field(step.value), step.last_epoch, step.producer_id, step.epoch, step.step]
            for step in entry.steps
        ],
        **({} if entry.server is None else {"server": _fields_of_note(entry.server)}),
    }


def bytes_field(data: bytes | None) -> str | None:
    """Bytes as JSON."""
    return None if data is None else b64encode(data).decode()


def bytes_of(value: object) -> bytes | None:
    """The inverse of bytes_field. ValueError."""
    return None if value is None else b64decode(text(value, "bytes"))


def group_record_fields(record: GroupRecord) -> list[str | None]:
    """A record of a group as JSON."""
    return [record.group, bytes_field(record.key), bytes_field(record.value)]


def staged_offset_fields(staged: StagedOffset) -> list[Any]:
    """An offset of an open transaction as JSON."""
    return [staged.producer_id, staged.group, staged.at.topic, staged.at.partition, staged.offset, staged.metadata]


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
        topics=tuple(topic_of(Fields(each)) for each in listed("topics")),
        deleted=tuple(_id(each) for each in listed("deleted")),
        publisher=publisher_of(Fields(content.value("publisher"))) if content.has("publisher") else None,
        additions=tuple(_addition(_items(each, 4)) for each in listed("additions")),
        numbered=tuple(_numbered(_items(each, 7)) for each in listed("numbered")),
        moves=tuple(_move(_items(each, 6)) for each in listed("moves")),
        group_records=tuple(group_record_of(each) for each in listed("group_records")),
        staged=tuple(_staged(_items(each, 4)) for each in listed("staged")),
        staged_offsets=tuple(staged_offset_of(each) for each in listed("staged_offsets")),
        steps=tuple(_step(_items(each, 6)) for each in listed("steps")),
        server=_server(content.value("server")) if content.has("server") else None,
        documents=tuple(document_of(each) for each in listed("documents")),
        log_starts=tuple(_log_start(_items(each, 3)) for each in listed("log_starts")),
        merges=tuple(_merge(_items(each, 6)) for each in listed("merges")),
        horizon=content.whole("horizon") if content.has("horizon") else None,
        floor=content.whole("floor") if content.has("floor") else None,
        head_size=size,
    )


def _items(value: object, count: int) -> list[Any]:
    if not isinstance(value, list) or len(value) != count:
        raise ValueError(f"{value!r} where a list of {count} should be")
    return value


def _id(value: object) -> str:
    name = text(value, "topic_id")
    check_id(name)
    return name


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
    checked = tuple(_region(_items(region, 6)) for region in regions)
    return Addition(
        _id(topic_id), whole(partition, "partition", 0, INT_MAX), whole(base_offset, "base_offset"), checked
    )


def _numbered(items: list[Any]) -> Numbered:
    topic_id, partition, producer_id, epoch, base_sequence, base_offset, count = items
    return Numbered(
        _id(topic_id),
        whole(partition, "partition", 0, INT_MAX),
        whole(producer_id, "producer_id"),
        whole(epoch, "epoch"),
        whole(base_sequence, "base_sequence", 0, INT_MAX),
        whole(base_offset, "base_offset", -1),
        whole(count, "records", 1),
    )


def _merge(items: list[Any]) -> Merge:
    topic_id, partition, base_offset, next_offset, regions, cleaned_to = items
    return Merge(
        _id(topic_id),
        whole(partition, "partition", 0, INT_MAX),
        whole(base_offset, "base_offset"),
        whole(next_offset, "next_offset", base_offset + 1),
        tuple(_region(_items(region, 6)) for region in regions),
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
    return GroupRecord(text(group, "group"), bytes_of(key) or b"", bytes_of(data))


def staged_offset_of(value: object) -> StagedOffset:
    """The inverse of staged_offset_fields. ValueError."""
    producer_id, group, topic, partition, offset, metadata = _items(value, 6)
    at = TopicPartition(text(topic, "topic"), whole(partition, "partition", 0, INT_MAX))
    return StagedOffset(
        whole(producer_id, "producer_id"), text(group, "group"), at, whole(offset, "offset", -1),
        text(metadata, "metadata"),
    )  # fmt: skip


def _staged(items: list[Any]) -> Staged:
    producer_id, topic_id, partition, regions = items
    return Staged(
        whole(producer_id, "producer_id"), _id(topic_id), whole(partition, "partition", 0, INT_MAX),
        tuple(_region(_items(region, 6)) for region in regions),
    )  # fmt: skip


def _step(items: list[Any]) -> TransactionStep:
    transactional_id, value, last_epoch, producer_id, epoch, step = items
    return TransactionStep(
        text(transactional_id, "transactional_id"), bytes_of(value), whole(last_epoch, "last_epoch", -1),
        whole(producer_id, "producer_id", -1), whole(epoch, "epoch", -1), Step(text(step, "step")),
    )  # fmt: skip


def _fields_of_note(note: ServerNote) -> list[Any]:
    """A rack is there if there is one: servers of earlier versions know of none."""
    host, port, rack = note.place
    return [note.node_id, note.run, host, port, note.coordinates, note.leaves, *([rack] if rack else [])]


def _server(value: Any) -> ServerNote:  # noqa: ANN401  (what JSON gives)
    has_rack = isinstance(value, list) and len(value) == 7
    node_id, run, host, port, coordinates, leaves, *rack = _items(value, 7 if has_rack else 6)
    return ServerNote(
        whole(node_id, "node_id", 0, INT_MAX), text(run, "run"),
        Place(text(host, "host"), whole(port, "port", 0, 65535), *(text(name, "rack") for name in rack)),
        bool(coordinates), bool(leaves),
    )  # fmt: skip


def document_of(value: object) -> Document:
    """A document as JSON has it. ValueError."""
    name, place, crc = _items(value, 3)
    return Document(text(name, "document"), text(place, "object"), whole(crc, "crc"))


def _log_start(items: list[Any]) -> LogStart:
    topic_id, partition, offset = items
    return LogStart(_id(topic_id), whole(partition, "partition", 0, INT_MAX), whole(offset, "offset"))
