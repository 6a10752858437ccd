"""Reads pieces of partitions, and puts what becomes of them into new objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from pyspark_log.errors import CorruptRecordError, LogDamagedError
from pyspark_log.storage.fs import side_by_side
from pyspark_log.storage.objects import Objects
from pyspark_log.storage.publish_log import naming
from pyspark_log.storage.publish_log.entries.changes import Merge, Region
from pyspark_log.storage.publish_log.log import PublishLog
from pyspark_log.storage.publish_log.parts.staging import OBJECT_BYTES
from pyspark_log.storage.publish_log.proposals import Replacement
from pyspark_log.storage.publish_log.reading import bytes_of
from pyspark_log.storage.publish_log.state import Piece
from pyspark_log.storage.record import crc32c, scan
from pyspark_log.storage.record.layout import crcs_of
from pyspark_log.types import TopicPartition

#: A piece of this size or more is not merged any more, and is in an object of its own.
SETTLED_BYTES = OBJECT_BYTES // 2
#: About how many bytes are rewritten by one decision, which is also what a process holds in memory.
DECISION_BYTES = 4 * OBJECT_BYTES
# How many objects are read at the same time.
_AT_ONCE = 8

# How many bytes of pieces are in memory at a time, unless one of them is larger, when they are only read.
_TURN_BYTES = 2 * OBJECT_BYTES

#: The bytes of pieces, or what is wrong with them.
Fetched = Mapping[Piece, memoryview | CorruptRecordError | LogDamagedError]


class Group(NamedTuple):
    """Pieces of a partition that follow each other, and are to become one.

    Attributes:
        at, topic_id: the partition.
        pieces: in their order.
    """

    at: TopicPartition
    topic_id: str
    pieces: Sequence[Piece]

    @property
    def size(self) -> int:
        """Their bytes."""
        return sum(piece.size for piece in self.pieces)


_Sized = TypeVar("_Sized", Piece, Group)


def in_turns(items: Sequence[_Sized], most_bytes: int | None = None, most: int = _AT_ONCE) -> Iterator[list[_Sized]]:
    """Pieces or groups in their order, some at a time: by default as many as are read at the same time."""
    turn, size, most_bytes = list[_Sized](), 0, _TURN_BYTES if most_bytes is None else most_bytes
    for one in items:
        if turn and (size + one.size > most_bytes or len(turn) == most):
            yield turn
            turn, size = [], 0
        turn.append(one)
        size += one.size
    if turn:
        yield turn


def fetch(objects: Objects, groups: Iterable[Group]) -> Fetched:
    """The bytes of all pieces of groups, with their offsets; each object is read once.

    Raises: ObjectStoreError.
    """
    wanted: dict[str, list[tuple[TopicPartition, Piece]]] = {}
    for group in groups:
        for piece in group.pieces:
            wanted.setdefault(piece.object, []).append((group.at, piece))

    def read(name: str) -> Fetched:
        try:
            found = bytes_of(objects, name, wanted[name])
        except (CorruptRecordError, LogDamagedError):
            return {piece: _fetch_one(objects, at, piece) for at, piece in wanted[name]}
        return {
            piece: _checked(data, objects, at, piece) for data, (at, piece) in zip(found, wanted[name], strict=True)
        }

    return {piece: data for found in side_by_side(read, wanted, _AT_ONCE) for piece, data in found.items()}


def _fetch_one(objects: Objects, at: TopicPartition, piece: Piece) -> memoryview | CorruptRecordError | LogDamagedError:
    try:
        return _checked(bytes_of(objects, piece.object, [(at, piece)])[0], objects, at, piece)
    except (CorruptRecordError, LogDamagedError) as error:
        return error


def _checked(data: memoryview, objects: Objects, at: TopicPartition, piece: Piece) -> memoryview | CorruptRecordError:
    """The bytes, if the checksums of all batches are right: damage is not copied, but stays where it is."""
    try:
        scan(data, 0, len(data), check_crcs=True)
    except CorruptRecordError as error:
        return error.located(piece.position, f"{objects.address}/{piece.object}", at.topic, at.partition)
    return data


@dataclass(slots=True)
class Rewrites:
    """Collects what groups have become, writes it to objects, and decides that it takes their place.

    Attributes:
        log: the publish log.
        now: the time, for names (ms).
        size: bytes that are collected.
    """

    log: PublishLog
    now: int
    size: int = 0
    _groups: list[tuple[Group, Sequence[bytes | memoryview], int]] = field(default_factory=list)

    def add(self, group: Group, data: Sequence[bytes | memoryview], cleaned_to: int = -1) -> None:
        """Collects what a group has become; `cleaned_to` as in Merge."""
        self._groups.append((group, data, cleaned_to))
        self.size += sum(map(len, data))

    def write(self) -> list[Replacement]:
        """Writes what is collected to new objects; none of it counts yet. ObjectStoreError."""
        found, shared, size, name = list[Replacement](), list[bytes | memoryview](), 0, ""
        objects = self.log.objects
        for group, data, cleaned_to in self._groups:
            length = sum(map(len, data))
            if length >= SETTLED_BYTES:
                own = naming.segment(group.at, group.pieces[0].base_offset, self.now)
                objects.put(own, b"".join(data))
                found.append(_replacement(group, own, 0, data, cleaned_to))
                continue
            if size + length > OBJECT_BYTES:
                objects.put(name, b"".join(shared))
                shared, size = [], 0
            if not shared:
                name = naming.new(naming.MERGED, self.now)
            found.append(_replacement(group, name, size, data, cleaned_to))
            shared += data
            size += length
        if shared:
            objects.put(name, b"".join(shared))
        self._groups, self.size = [], 0
        return found


def _replacement(
    group: Group, name: str, position: int, data: Sequence[bytes | memoryview], cleaned_to: int
) -> Replacement:
    first, last = group.pieces[0].base_offset, group.pieces[-1].next_offset
    headers = [header for part in data for header in scan(part, 0, len(part))]
    newest, crc = max(header.max_timestamp for header in headers), crc32c(crcs_of(headers))
    region = Region(name, position, sum(map(len, data)), last - first, newest, crc)
    return Replacement(group.pieces, Merge(group.topic_id, group.at.partition, first, last, (region,), cleaned_to))
