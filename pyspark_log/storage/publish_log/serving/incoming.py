"""Record batches of Kafka's clients on their way into the log: what is decided of each. Pure: no request.

They keep their bytes, with offsets from 0 in each batch. A batch that was put into an object before may be refused, and
is then left there: the regions around it are cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, TypeAlias

from pyspark_log.errors import InvalidTxnStateError, ProducerError, StagedOutputError, UnknownTopicError
from pyspark_log.storage.log.producers import ProducerStates
from pyspark_log.storage.publish_log.entries.changes import Addition, Numbered, Region, Staged
from pyspark_log.storage.publish_log.proposals import Proposal, check_horizon
from pyspark_log.storage.publish_log.state import PartitionLog, State
from pyspark_log.storage.record import BatchHeader, crc32c
from pyspark_log.storage.record.layout import crcs_of
from pyspark_log.types import TopicDescription

#: The offset that the producer's state has of a batch in an open transaction.
STAGED_OFFSET = -1
# Up to how many bytes batches that follow each other become one region, which is read as a whole.
_REGION_BYTES = 8 * 1024 * 1024


@dataclass(slots=True)
class Incoming:
    """A client's record batch, as it is to be stored.

    Attributes:
        topic: its topic, as it was when the batch was checked.
        partition: its partition, which the topic has.
        header: its header; the base offset is 0.
        records: its bytes.
        object: the object in which it is; "": it goes into the entry itself.
        position: where it is in that object, in bytes.
        in_transaction: whether it belongs to its producer's transaction; its bytes do not say so.
    """

    topic: TopicDescription
    partition: int
    header: BatchHeader
    records: bytes | bytearray
    object: str = ""
    position: int = 0
    in_transaction: bool = False


class Placed(NamedTuple):
    """A batch is in the log.

    Attributes:
        base_offset, next_offset: its offsets. In an open transaction, the least that it can get at its end; those of a
            duplicate there are from -1 on.
        log_start: the log's first offset.
        is_duplicate: whether it was there before.
    """

    base_offset: int
    next_offset: int
    log_start: int
    is_duplicate: bool


#: What becomes of a batch.
Outcome: TypeAlias = Placed | Exception


def take_in(state: State, batches: Sequence[Incoming]) -> tuple[Proposal | None, list[Outcome]]:
    """What adds batches to their partitions, each for itself, in their order.

    Returns:
        The proposal; None: none of them is added. And what becomes of each batch once that is decided.
    """
    of_partition = dict[tuple[str, int], list[int]]()
    for place, batch in enumerate(batches):
        of_partition.setdefault((batch.topic.topic_id, batch.partition), []).append(place)
    outcomes, partitions = dict[int, Outcome](), list[_Partition]()
    for places in of_partition.values():
        partition = _Partition(state, [batches[place] for place in places])
        outcomes |= zip(places, map(partition.outcome, partition.batches), strict=True)
        partitions.append(partition)
    return _proposal(partitions), [outcomes[place] for place in range(len(batches))]


def _proposal(partitions: Sequence[_Partition]) -> Proposal | None:
    data, position, additions, staged = list[bytes | memoryview](), 0, list[Addition](), list[Staged]()
    for partition in partitions:
        for batch in chain(partition.added, *partition.staged.values()):
            if not batch.object:
                batch.position = position
                position += len(batch.records)
                data.append(memoryview(batch.records))
        if partition.added:
            additions.append(Addition(*partition.at, partition.log.log_end, _regions(partition.added)))
        staged += [
            Staged(producer_id, *partition.at, _regions(batches)) for producer_id, batches in partition.staged.items()
        ]
    if not additions and not staged:
        return None
    numbered = tuple(chain.from_iterable(partition.numbered for partition in partitions))
    return Proposal(additions=tuple(additions), numbered=numbered, staged=tuple(staged), data=data)


class _Partition:
    """A partition with what is added to it.

    Attributes:
        at: its topic's id, and its number.
        batches: those that are to be added.
        log: as it is before.
        added: the batches that it gets.
        staged: those of transactions, by their producers' ids.
        numbered: those of idempotent producers.
    """

    def __init__(self, state: State, batches: Sequence[Incoming]) -> None:
        topic = batches[0].topic
        self.at, self.batches = (topic.topic_id, batches[0].partition), batches
        self._state, self._topic, now = state, topic, state.topics.get(topic.name)
        self._is_there = now is not None and now.topic_id == topic.topic_id
        self.log = state.partitions.get(self.at, PartitionLog())
        self.added, self.numbered = list[Incoming](), list[Numbered]()
        self.staged, self._staged_counts = dict[int, list[Incoming]](), dict[int, int]()
        producers, ids = state.producers.get(self.at, {}), {batch.header.producer_id for batch in batches}
        entries = [producers[producer_id].entry(producer_id) for producer_id in ids if producer_id in producers]
        self._producers = ProducerStates(entries, self.log.log_end)

    def outcome(self, batch: Incoming) -> Outcome:
        """Adds a batch, unless it must not be, or is there; it is one of `batches`, in their order."""
        if not self._is_there:
            return UnknownTopicError(f"topic {self._topic.name!r} was deleted, or created again")
        try:
            check_horizon(self._state, batch.object)
            return self._place(batch)
        except (StagedOutputError, ProducerError) as error:
            return error

    def _place(self, batch: Incoming) -> Placed:
        end, count = self._producers.end_offset, batch.header.last_offset_delta + 1
        base_offset = STAGED_OFFSET if batch.in_transaction else end
        header = batch.header._replace(base_offset=base_offset)
        if header.producer_id >= 0:
            self._check_transaction(batch)
            duplicate = self._producers.check(header)
            if duplicate is not None:
                return Placed(duplicate.base_offset, duplicate.last_offset + 1, self.log.log_start, is_duplicate=True)
            self._producers.enter(header)
            self.numbered.append(
                Numbered(*self.at, header.producer_id, header.producer_epoch, header.base_sequence, base_offset, count)
            )
        self._producers.end_offset = end if batch.in_transaction else header.next_offset
        if batch.in_transaction:
            base_offset = end + self._staged_count(header.producer_id)
            self._staged_counts[header.producer_id] += count
        (self.staged.setdefault(header.producer_id, []) if batch.in_transaction else self.added).append(batch)
        return Placed(base_offset, base_offset + count, self.log.log_start, is_duplicate=False)

    def _staged_count(self, producer_id: int) -> int:
        """How many records of a producer's transaction come before its next batch."""
        if producer_id not in self._staged_counts:
            pieces = [piece for at, piece in self._state.open[producer_id].pieces if at == self.at]
            self._staged_counts[producer_id] = sum(piece.next_offset - piece.base_offset for piece in pieces)
        return self._staged_counts[producer_id]

    def _check_transaction(self, batch: Incoming) -> None:
        """Refuses a batch that is not in the transaction that is open, if it should be, or in none. ProducerError."""
        producer_id, transaction = batch.header.producer_id, self._state.open.get(batch.header.producer_id)
        if batch.in_transaction and (transaction is None or transaction.epoch != batch.header.producer_epoch):
            raise InvalidTxnStateError(
                f"producer {producer_id} has no transaction open in epoch {batch.header.producer_epoch}"
            )
        if not batch.in_transaction and transaction is not None:
            raise InvalidTxnStateError(
                f"producer {producer_id} has a transaction open: a batch outside of it is refused until that is "
                "committed or aborted"
            )


def _regions(batches: Sequence[Incoming]) -> tuple[Region, ...]:
    """Where batches of a partition are, in their order."""
    regions, run = list[Region](), list[Incoming]()
    for batch in batches:
        if run and not _follows(run, batch):
            regions.append(_region(run))
            run = []
        run.append(batch)
    return (*regions, _region(run))


def _follows(run: Sequence[Incoming], batch: Incoming) -> bool:
    """Whether a batch can be in one region with those before it."""
    end = run[-1].position + len(run[-1].records)
    size = end - run[0].position
    return (run[-1].object, end) == (batch.object, batch.position) and size + len(batch.records) <= _REGION_BYTES


def _region(run: Sequence[Incoming]) -> Region:
    headers = [batch.header for batch in run]
    return Region(
        run[0].object, run[0].position, sum(len(batch.records) for batch in run),
        sum(header.last_offset_delta + 1 for header in headers), max(header.max_timestamp for header in headers),
        crc32c(crcs_of(headers)),
    )  # fmt: skip
