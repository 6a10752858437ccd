"""What a store in an object store is: a fold of the entries of its publish log. Pure: no request, no clock."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pyspark_log.errors import LogDamagedError
from pyspark_log.storage.log.producers import REMEMBERED_BATCHES, ProducerEntry, WrittenBatch, sequence_after
from pyspark_log.storage.publish import Decision
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
    StagedOffset,
    Step,
    TransactionStep,
)
from pyspark_log.storage.publish_log.entries.entry import Entry, name_of
from pyspark_log.types import TopicDescription, TopicPartition

# A producer is forgotten once it was idle for a day (ms; Kafka's default of producer.id.expiration.ms) and for so many
# decisions: times are those of their writers' clocks, and one that is wrong must not let a retry be stored twice.
_IDLE_MS, _IDLE_ENTRIES = 24 * 60 * 60 * 1000, 4096
# The same of transactional ids (transactional.id.expiration.ms).
_IDLE_IDS_MS = 7 * _IDLE_MS
# How often that is looked at, in entries.
_EXPIRE_EVERY = 256


class Piece(NamedTuple):
    """Record batches of a partition, back to back, in an object.

    Attributes:
        base_offset, next_offset: the offsets that they have.
        object: the object's name.
        position, size: where they are in it, in bytes.
        max_timestamp: the largest time of their records (ms), or NO_TIMESTAMP.
        crc: identifies the batches, as Region's.
    """

    base_offset: int
    next_offset: int
    object: str
    position: int
    size: int
    max_timestamp: int
    crc: int


@dataclass(frozen=True, slots=True, eq=False)
class PartitionLog:
    """A partition. It never changes; what is added to it makes another one, which shares its pieces.

    Attributes:
        log_start: the first offset that is kept.
        log_end: the offset that the next record gets.
        cleaned_to: up to which offset it is compacted.
    """

    log_start: int = 0
    log_end: int = 0
    cleaned_to: int = 0
    # The first `_count` are its own; what comes after them was added later.
    _pieces: list[Piece] = field(default_factory=list)
    _count: int = 0

    @classmethod
    def of(cls, log_start: int, log_end: int, cleaned_to: int, pieces: list[Piece]) -> PartitionLog:
        """One with these pieces, whose list must not be changed any more."""
        return cls(log_start, log_end, cleaned_to, pieces, len(pieces))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartitionLog) and self._compared() == other._compared()

    __hash__ = None  # type: ignore[assignment]

    def _compared(self) -> tuple[int, int, int, list[Piece]]:
        return self.log_start, self.log_end, self.cleaned_to, self.pieces

    @property
    def pieces(self) -> list[Piece]:
        """Where its records are, in order. The first one may begin before the log start."""
        return self._pieces[: self._count]

    def between(self, start: int, end: int) -> list[Piece]:
        """The pieces that have offsets of [start, end)."""
        first = self._first_after(start)
        return self._pieces[
            first : bisect_left(self._pieces, end, first, self._count, key=lambda piece: piece.base_offset)
        ]

    def _first_after(self, offset: int) -> int:
        """The index of the first piece that has an offset from `offset` on."""
        return bisect_right(self._pieces, offset, 0, self._count, key=lambda piece: piece.next_offset)

    def added(self, pieces: Sequence[Piece]) -> PartitionLog:
        """With more pieces at its end."""
        shared = self._pieces if len(self._pieces) == self._count else self.pieces
        shared.extend(pieces)
        return PartitionLog.of(self.log_start, pieces[-1].next_offset, self.cleaned_to, shared)

    def started_at(self, offset: int) -> PartitionLog:
        """Without the records before an offset."""
        start = max(self.log_start, offset)
        return PartitionLog.of(start, self.log_end, self.cleaned_to, self.pieces[self._first_after(start) :])

    def merged(self, base_offset: int, next_offset: int, pieces: Sequence[Piece], cleaned_to: int) -> PartitionLog:
        """With these pieces instead of those of [base_offset, next_offset), which are whole ones."""
        first, replaced = self._first_after(base_offset), self.between(base_offset, next_offset)
        changed = self.pieces
        changed[first : first + len(replaced)] = pieces
        return PartitionLog.of(self.log_start, self.log_end, max(self.cleaned_to, cleaned_to), changed)


class Committed(NamedTuple):
    """A committed offset, with the text of its committer and the time of the commit (ms)."""

    offset: int
    metadata: str
    time: int


class Producer(NamedTuple):
    """What a partition knows of an idempotent producer.

    Attributes:
        epoch: its latest epoch.
        number, time: of the last entry that has a batch of it; the time in ms.
        batches: its last ones in that epoch, oldest first, with the times of their entries.
    """

    epoch: int
    number: int
    time: int
    batches: tuple[WrittenBatch, ...]

    def entry(self, producer_id: int) -> ProducerEntry:
        """The same, as the rules of producers have it."""
        return ProducerEntry(producer_id, self.epoch, -1, self.time, None, self.batches)


class TransactionalId(NamedTuple):
    """What is known of a transactional id of Kafka's clients.

    Attributes:
        value, last_epoch: as of TransactionStep.
        number, time: of the last entry that says so; the time in ms.
    """

    value: bytes
    last_epoch: int
    number: int
    time: int


class OpenTransaction(NamedTuple):
    """What a transaction has staged.

    Attributes:
        transactional_id: whose it is.
        epoch: its producer's.
        pieces: by topic id and number of partitions, in their order, with offsets from 0.
        offsets: what it commits.
    """

    transactional_id: str
    epoch: int
    pieces: tuple[tuple[tuple[str, int], Piece], ...] = ()
    offsets: tuple[StagedOffset, ...] = ()


class Server(NamedTuple):
    """A server of the store.

    Attributes:
        run: which start of it.
        place: where it is.
        number, time: of the last entry in which it says so; the time in ms.
    """

    run: str
    place: Place
    number: int
    time: int


class Coordinator(NamedTuple):
    """Which start of a server coordinates groups and transactions, and since which entry."""

    run: str
    since: int


NO_COORDINATOR = Coordinator("", -1)


@dataclass(slots=True)
class State:
    """A store after some entry of its log.

    Attributes:
        number: of that entry; -1: there is none yet.
        topics: by name.
        partitions: those that have records, by topic id and number.
        publishers: what is known of each, by its id.
        groups: the committed offsets of each, by its name.
        members: the records of groups' members, by the groups' names and the records' keys.
        servers: those of the store by their node ids; some may have died.
        coordinator: which of them coordinates groups and transactions.
        transactional: what is known of transactional ids.
        open: the transactions that are open, by their producers' ids.
        producers: those of each partition, by topic id and number, and by their ids.
        documents: those of the servers, by name.
        time: that of the entry (ms), by its writer's clock.
        horizon: staged output of an earlier time (ms) is void, unless it is published already.
        floor: up to which number entries may be deleted; -1: none.
        floors: how many floors there were.
    """

    number: int = -1
    topics: dict[str, TopicDescription] = field(default_factory=dict)
    partitions: dict[tuple[str, int], PartitionLog] = field(default_factory=dict)
    publishers: dict[str, Decision] = field(default_factory=dict)
    groups: dict[str, dict[TopicPartition, Committed]] = field(default_factory=dict)
    members: dict[str, dict[bytes, bytes]] = field(default_factory=dict)
    servers: dict[int, Server] = field(default_factory=dict)
    coordinator: Coordinator = NO_COORDINATOR
    transactional: dict[str, TransactionalId] = field(default_factory=dict)
    open: dict[int, OpenTransaction] = field(default_factory=dict)
    producers: dict[tuple[str, int], dict[int, Producer]] = field(default_factory=dict)
    time: int = 0
    horizon: int = 0
    floor: int = -1
    floors: int = 0
    documents: dict[str, Document] = field(default_factory=dict)
    # The groups, and the partitions' producers, that no other state has: these are changed in place, others replaced by
    # a copy.
    _own_groups: set[str] = field(default_factory=set, init=False, repr=False, compare=False)
    _own_producers: set[tuple[str, int]] = field(default_factory=set, init=False, repr=False, compare=False)

    def next(self) -> State:
        """One that begins as this one does. It can be changed, and this one must not be any more."""
        return State(
            self.number, dict(self.topics), dict(self.partitions), dict(self.publishers), dict(self.groups),
            dict(self.members), dict(self.servers), self.coordinator, dict(self.transactional), dict(self.open),
            dict(self.producers), self.time, self.horizon, self.floor, self.floors,
            dict(self.documents),
        )  # fmt: skip

    def log_end(self, topic_id: str, partition: int) -> int:
        """The offset that the next record of a partition gets."""
        found = self.partitions.get((topic_id, partition))
        return 0 if found is None else found.log_end

    def apply(self, entry: Entry) -> None:
        """Takes in the next entry.

        Raises:
            LogDamagedError: it does not follow from this state, so it was not decided on it. Nothing was changed.
        """
        self.check(entry)
        for topic in entry.topics:
            self.topics[topic.name] = topic
        for topic_id in entry.deleted:
            self._delete(topic_id)
        for addition in entry.additions:
            self._add(entry, addition)
        for start in entry.log_starts:
            self._move_start(start)
        for merge in entry.merges:
            self._merge(merge)
        for move in entry.moves:
            self._commit(move, entry.origin.time)
        self._take_in_servers(entry)
        for document in entry.documents:
            self.documents[document.name] = document
        if entry.publisher is not None:
            self.publishers[entry.publisher.publisher] = entry.publisher
        if entry.horizon is not None:
            self.horizon = entry.horizon
        if entry.floor is not None:
            self.floor, self.floors = entry.floor, self.floors + 1
        self.number, self.time = entry.number, entry.origin.time
        if (entry.number + 1) % _EXPIRE_EVERY == 0:
            self._expire_producers()
            # What is known of one whose transaction is open is needed to end that.
            busy = {transaction.transactional_id for transaction in self.open.values()}
            self.transactional = {
                name: record
                for name, record in self.transactional.items()
                if name in busy or not self._is_idle(record, _IDLE_IDS_MS)
            }
            self.servers = {node_id: server for node_id, server in self.servers.items() if not self._is_idle(server)}

    def check(self, entry: Entry) -> None:
        """Raises as `apply`."""
        where = name_of(entry.number)
        if entry.number != self.number + 1:
            raise LogDamagedError(f"{where} follows the entry {self.number}")
        ends: dict[tuple[str, int], int] = {}
        for addition in entry.additions:
            topic_id, partition, base_offset, _ = addition
            end = ends.get((topic_id, partition), self.log_end(topic_id, partition))
            if base_offset != end:
                raise LogDamagedError(
                    f"{where} adds records from offset {base_offset} on to partition {partition} of the topic with id "
                    f"{topic_id}, which ends at {end}: an entry was lost, or another writer has replaced one"
                )
            ends[topic_id, partition] = addition.next_offset
        named = {part.producer_id for part in entry.staged} | {offset.producer_id for offset in entry.staged_offsets}
        ended = [step.producer_id for step in entry.steps if step.step in (Step.COMMIT, Step.ABORT)]
        named.update(ended)
        if not named <= self.open.keys() or len(ended) > len(set(ended)):
            raise LogDamagedError(f"{where} belongs to transactions of the producers {named}, which are not all open")
        for merge in entry.merges:
            log = self.partitions.get((merge.topic_id, merge.partition), PartitionLog())
            if not _is_whole(log, merge):
                raise LogDamagedError(
                    f"{where} replaces the records [{merge.base_offset}, {merge.next_offset}) of partition "
                    f"{merge.partition} of the topic with id {merge.topic_id}, which are not there as it expects"
                )

    def _delete(self, topic_id: str) -> None:
        self.topics = {name: one for name, one in self.topics.items() if one.topic_id != topic_id}
        self.partitions = {at: one for at, one in self.partitions.items() if at[0] != topic_id}
        self.producers = {at: one for at, one in self.producers.items() if at[0] != topic_id}

    def _add(self, entry: Entry, addition: Addition) -> None:
        at, pieces = (addition.topic_id, addition.partition), _pieces(entry, addition.regions, addition.base_offset)
        self.partitions[at] = self.partitions.get(at, PartitionLog()).added(pieces)

    def _number(self, batch: Numbered, entry: Entry) -> None:
        at, time, last = (batch.topic_id, batch.partition), entry.origin.time, batch.records - 1
        if at not in self._own_producers:
            self.producers[at] = dict(self.producers.get(at, {}))
            self._own_producers.add(at)
        written = WrittenBatch(sequence_after(batch.base_sequence, last), batch.base_offset + last, last, time)
        producer = self.producers[at].get(batch.producer_id)
        before = producer.batches if producer is not None and producer.epoch == batch.epoch else ()
        batches = (*before, written)[-REMEMBERED_BATCHES:]
        self.producers[at][batch.producer_id] = Producer(batch.epoch, entry.number, time, batches)

    def _take_in_servers(self, entry: Entry) -> None:
        """Takes in what only servers write."""
        for batch in entry.numbered:
            self._number(batch, entry)
        for record in entry.group_records:
            self._note_member(record)
        if entry.server is not None:
            self._note_server(entry, entry.server)
        for part in entry.staged:
            at, transaction = (part.topic_id, part.partition), self.open[part.producer_id]
            pieces = tuple((at, piece) for piece in _pieces(entry, part.regions, 0))
            self.open[part.producer_id] = transaction._replace(pieces=transaction.pieces + pieces)
        for offset in entry.staged_offsets:
            transaction = self.open[offset.producer_id]
            self.open[offset.producer_id] = transaction._replace(offsets=(*transaction.offsets, offset))
        for step in entry.steps:
            self._take_step(entry, step)

    def _take_step(self, entry: Entry, step: TransactionStep) -> None:
        name, time = step.transactional_id, entry.origin.time
        if step.value is None:
            self.transactional.pop(name, None)
        else:
            self.transactional[name] = TransactionalId(step.value, step.last_epoch, entry.number, time)
        if step.step is Step.BEGIN:
            self.open[step.producer_id] = OpenTransaction(name, step.epoch)
        elif step.step is not Step.NONE:
            ended = self.open.pop(step.producer_id)
            if step.step is Step.COMMIT:
                self._publish(ended, time)

    def _publish(self, transaction: OpenTransaction, time: int) -> None:
        """Makes what a transaction has staged visible, as far as its topics are there."""
        topic_ids = {topic.topic_id for topic in self.topics.values()}
        for at, piece in transaction.pieces:
            if at[0] in topic_ids:
                log = self.partitions.get(at, PartitionLog())
                count = piece.next_offset - piece.base_offset
                placed = piece._replace(base_offset=log.log_end, next_offset=log.log_end + count)
                self.partitions[at] = log.added([placed])
        for _, group, of_partition, offset, metadata in transaction.offsets:
            self._commit(OffsetMove(group, of_partition, None, None if offset < 0 else offset, metadata), time)

    def _is_idle(self, writer: Producer | Server | TransactionalId, most: int = _IDLE_MS) -> bool:
        """Whether nothing was seen of it for `most` ms, by the times and the numbers of decisions."""
        return self.time - writer.time >= most and self.number - writer.number >= _IDLE_ENTRIES

    def _note_member(self, record: GroupRecord) -> None:
        # Groups have few records: a copy of them all is cheap.
        records = {key: value for key, value in self.members.get(record.group, {}).items() if key != record.key}
        if record.value is not None:
            records[record.key] = record.value
        if records:
            self.members[record.group] = records
        else:
            self.members.pop(record.group, None)

    def _note_server(self, entry: Entry, note: ServerNote) -> None:
        before = self.servers.get(note.node_id)
        is_new = before is not None and before.run != note.run
        if note.leaves and not is_new:
            self.servers.pop(note.node_id, None)
        elif not note.leaves:
            self.servers[note.node_id] = Server(note.run, note.place, entry.number, entry.origin.time)
        replaced = {note.run} if note.leaves else {before.run} if before is not None and is_new else set()
        if self.coordinator.run in replaced:
            self.coordinator = NO_COORDINATOR
        if note.coordinates and self.coordinator.run != note.run:
            self.coordinator = Coordinator(note.run, entry.number)

    def _expire_producers(self) -> None:
        """Forgets those that were idle for long."""
        kept = dict[tuple[str, int], dict[int, Producer]]()
        for at, producers in self.producers.items():
            busy = {producer_id: producer for producer_id, producer in producers.items() if not self._is_idle(producer)}
            if busy:
                kept[at] = busy
        self.producers, self._own_producers = kept, set(kept)

    def _move_start(self, start: LogStart) -> None:
        at = start.topic_id, start.partition
        self.partitions[at] = self.partitions.get(at, PartitionLog()).started_at(start.offset)

    def _merge(self, merge: Merge) -> None:
        at, offset, pieces = (merge.topic_id, merge.partition), merge.base_offset, list[Piece]()
        for name, position, size, count, timestamp, crc in merge.regions:
            pieces.append(Piece(offset, offset + count, name, position, size, timestamp, crc))
            offset += count
        self.partitions[at] = self.partitions[at].merged(merge.base_offset, merge.next_offset, pieces, merge.cleaned_to)

    def _commit(self, move: OffsetMove, time: int) -> None:
        if move.group not in self._own_groups:
            self.groups[move.group] = dict(self.groups.get(move.group, {}))
            self._own_groups.add(move.group)
        offsets = self.groups[move.group]
        if move.offset is not None:
            offsets[move.at] = Committed(move.offset, move.metadata, time)
            return
        offsets.pop(move.at, None)
        if not offsets:
            del self.groups[move.group]
            self._own_groups.remove(move.group)


def _pieces(entry: Entry, regions: Sequence[Region], base_offset: int) -> list[Piece]:
    """Where the records of regions of an entry are, with the offsets that they have from `base_offset` on."""
    pieces = list[Piece]()
    for name, position, size, count, timestamp, crc in regions:
        offset = pieces[-1].next_offset if pieces else base_offset
        where = (name, position) if name else (name_of(entry.number), entry.head_size + position)
        pieces.append(Piece(offset, offset + count, *where, size, timestamp, crc))
    return pieces


def _is_whole(log: PartitionLog, merge: Merge) -> bool:
    """Whether a merge replaces whole pieces of a log by as many offsets."""
    pieces = log.between(merge.base_offset, merge.next_offset)
    return (
        bool(pieces)
        and (pieces[0].base_offset, pieces[-1].next_offset) == (merge.base_offset, merge.next_offset)
        and merge.base_offset + sum(region.records for region in merge.regions) == merge.next_offset
    )
