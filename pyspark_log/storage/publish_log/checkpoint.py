"""Checkpoints: the state after an entry, so that a process need not read all entries before it.

    magic (8 bytes), CRC-32C of the rest (4), zstd: JSON

A checkpoint is a fold of the entries up to its number, so any process that writes it writes the same. `checkpoint/last`
names one that is there; it is a hint alone, and may be an older one.
"""

from __future__ import annotations

import json
import logging
import re
import struct
from typing import Any

import zstandard

from pyspark_log.errors import CorruptRecordError, LogDamagedError, PylogError
from pyspark_log.storage.fs.json_fields import Fields
from pyspark_log.storage.log.producers import WrittenBatch
from pyspark_log.storage.objects import Objects
from pyspark_log.storage.publish_log.entries.changes import GroupRecord, Place
from pyspark_log.storage.publish_log.entries.entry import (
    bytes_field,
    bytes_of,
    document_of,
    group_record_fields,
    group_record_of,
    publisher_fields,
    publisher_of,
    staged_offset_fields,
    staged_offset_of,
    topic_fields,
    topic_of,
)
from pyspark_log.storage.publish_log.state import (
    NO_COORDINATOR,
    Committed,
    Coordinator,
    OpenTransaction,
    PartitionLog,
    Piece,
    Producer,
    Server,
    State,
    TransactionalId,
)
from pyspark_log.storage.record import crc32c
from pyspark_log.types import TopicPartition

_log = logging.getLogger(__name__)

#: After how many entries the next checkpoint is written.
EVERY = 256
# The newest version, of those with documents; that of others with what only servers write; and that of all others.
VERSION, _OF_SERVERS, _FIRST_VERSION = 3, 2, 1
_MAGIC = b"PYLOGCP\0"
_START = struct.Struct(">8sI")
_LAST = "checkpoint/last"
# Far more than the state of a hundred thousand partitions takes.
_MOST_BYTES = 4 << 30


def name_of(number: int) -> str:
    """The name of the checkpoint after an entry."""
    return f"checkpoint/{number:020}"


def write(objects: Objects, state: State) -> None:
    """Writes a checkpoint of a state; best effort, as all that it has can be read from the entries."""
    try:
        objects.put(name_of(state.number), encode(state))
        name_last(objects, state.number)
    except (PylogError, OSError) as error:
        _log.warning("%s: a checkpoint could not be written: %s", objects.address, error)


def name_last(objects: Objects, number: int) -> None:
    """Names a checkpoint that is there as a late one. ObjectStoreError."""
    objects.put(_LAST, b"%d" % number)


def read_last(objects: Objects) -> State:
    """The state of a late checkpoint; that of no entry, if there is none. CorruptRecordError: it is damaged."""
    found = objects.get(_LAST)
    if found is None or not re.fullmatch(rb"\d{1,19}", bytes(found.data)):
        return State()
    return find(objects, int(bytes(found.data))) or State()


def read(objects: Objects, number: int) -> State:
    """The state of a checkpoint. LogDamagedError: there is none. CorruptRecordError: it is damaged."""
    found = find(objects, number)
    if found is None:
        raise LogDamagedError(f"{objects.address}/{name_of(number)} is missing, and entries before it were deleted")
    return found


def find(objects: Objects, number: int) -> State | None:
    """The same; None: there is none."""
    found = objects.get(name_of(number))
    if found is None:
        return None
    try:
        return decode(number, found.data)
    except CorruptRecordError as error:
        raise error.located(0, f"{objects.address}/{name_of(number)}", "", -1) from None


def encode(state: State) -> bytes:
    """A state as a checkpoint."""
    data = zstandard.ZstdCompressor().compress(json.dumps(_fields(state), separators=(",", ":")).encode())
    return _START.pack(_MAGIC, crc32c(data)) + data


def _is_of_servers(state: State) -> bool:
    """Whether it has what only servers write."""
    return bool(state.producers or state.members or state.servers or state.transactional or state.open)


def _fields_of(server: Server) -> list[Any]:
    """A rack is there if there is one, as in entries."""
    host, port, rack = server.place
    return [server.run, host, port, server.number, server.time, *([rack] if rack else [])]


def _server(run: str, host: str, port: int, number: int, time: int, rack: str = "") -> Server:
    return Server(run, Place(host, port, rack), number, time)


def _fields(state: State) -> dict[str, Any]:
    return {
        "version": VERSION if state.documents else _OF_SERVERS if _is_of_servers(state) else _FIRST_VERSION,
        "number": state.number,
        "topics": [topic_fields(one) for one in state.topics.values()],
        "partitions": [
            [*at, one.log_start, one.log_end, one.cleaned_to, one.pieces] for at, one in state.partitions.items()
        ],
        "publishers": [publisher_fields(one) for one in state.publishers.values()],
        "groups": {
            group: [[at.topic, at.partition, *one] for at, one in offsets.items()]
            for group, offsets in state.groups.items()
        },
        "members": [
            group_record_fields(GroupRecord(group, key, value))
            for group, records in state.members.items()
            for key, value in records.items()
        ],
        "servers": [[node_id, _fields_of(server)] for node_id, server in state.servers.items()],
        "coordinator": state.coordinator,
        "transactional": [
            [name, bytes_field(record.value), *record[1:]] for name, record in state.transactional.items()
        ],
        "open": [
            [producer_id, name, epoch, pieces, list(map(staged_offset_fields, offsets))]
            for producer_id, (name, epoch, pieces, offsets) in state.open.items()
        ],
        "producers": [
            [*at, producer_id, producer.epoch, producer.number, producer.time, producer.batches]
            for at, producers in state.producers.items()
            for producer_id, producer in producers.items()
        ],
        "time": state.time,
        "horizon": state.horizon,
        "floor": state.floor,
        "floors": state.floors,
        **({"documents": list(state.documents.values())} if state.documents else {}),
    }


def decode(number: int, data: bytes | memoryview) -> State:
    """The state of a checkpoint. CorruptRecordError, StoreVersionError."""
    magic, crc = _START.unpack_from(data) if len(data) >= _START.size else (b"", 0)
    packed = bytes(data[_START.size :])
    if magic != _MAGIC or crc32c(packed) != crc:
        raise CorruptRecordError("it is no checkpoint, or a damaged one", 0, number)
    try:
        content = Fields.parse(zstandard.ZstdDecompressor().decompress(packed, _MOST_BYTES))
        content.check_version(VERSION, name_of(number))
        return _state(number, content)
    except (ValueError, TypeError, zstandard.ZstdError) as error:
        raise CorruptRecordError(f"its content makes no sense: {error}", 0, number) from None


def _state(number: int, content: Fields) -> State:
    if content.whole("number") != number:
        raise ValueError(f"it is that of the entry {content.whole('number')}")
    topics = [topic_of(Fields(one)) for one in content.list("topics")]
    publishers = [publisher_of(Fields(one)) for one in content.list("publishers")]
    # The checksum has covered the rest: what is in these lists is what was written.
    partitions: list[Any] = content.list("partitions")
    groups: Any = content.value("groups")
    producers = dict[tuple[str, int], dict[int, Producer]]()
    listed: list[Any] = content.list("producers") if content.has("producers") else []
    for topic_id, partition, producer_id, epoch, last, time, batches in listed:
        of_partition = producers.setdefault((topic_id, partition), {})
        of_partition[producer_id] = Producer(epoch, last, time, tuple(WrittenBatch(*batch) for batch in batches))
    members = dict[str, dict[bytes, bytes]]()
    for record in map(group_record_of, content.list("members") if content.has("members") else []):
        members.setdefault(record.group, {})[record.key] = record.value or b""
    servers: list[Any] = content.list("servers") if content.has("servers") else []
    coordinator: Any = content.value("coordinator") if content.has("coordinator") else NO_COORDINATOR
    transactional: list[Any] = content.list("transactional") if content.has("transactional") else []
    unended: list[Any] = content.list("open") if content.has("open") else []
    documents = map(document_of, content.list("documents") if content.has("documents") else [])
    return State(
        number,
        {one.name: one for one in topics},
        {
            (topic_id, partition): PartitionLog.of(start, end, cleaned_to, [Piece(*piece) for piece in pieces])
            for topic_id, partition, start, end, cleaned_to, pieces in partitions
        },
        {one.publisher: one for one in publishers},
        {
            group: {TopicPartition(topic, partition): Committed(*rest) for topic, partition, *rest in offsets}
            for group, offsets in groups.items()
        },
        members,
        {node_id: _server(*server) for node_id, server in servers},
        Coordinator(*coordinator),
        {name: TransactionalId(bytes_of(value) or b"", *rest) for name, value, *rest in transactional},
        {
            producer_id: OpenTransaction(
                name,
                epoch,
                tuple(((topic_id, partition), Piece(*piece)) for (topic_id, partition), piece in pieces),
                tuple(map(staged_offset_of, offsets)),
            )
            for producer_id, name, epoch, pieces, offsets in unended
        },
        producers,
        content.whole("time"),
        content.whole("horizon"),
        content.whole("floor", -1),
        content.whole("floors"),
        {document.name: document for document in documents},
    )
