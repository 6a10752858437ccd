"""The state of a partition's idempotent producers (KIP-98): whether a batch is a duplicate, out of order, or from a
fenced producer, and which transactions are open.

The rules are those of Kafka's ProducerStateManager and ProducerAppendInfo. A batch without a producer id
(-1) is not affected: its caller does not call anything here.

Around an append, under the partition's lock:

1. `check` recognizes a duplicate, or refuses the batch. Nothing has changed yet.
2. The batch is written. If it is a marker, `aborted_by` returns the entry for the transaction index.
3. The log end moves. Then `enter` takes the batch in.

Recovery, which must believe the log, skips step 1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from pyspark_log.config import INT_MAX
from pyspark_log.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from pyspark_log.storage.record import BatchHeader
from pyspark_log.storage.record.end_txn_marker import EndTxnMarker
from pyspark_log.storage.segment import AbortedTransaction
from pyspark_log.types import NO_TIMESTAMP

#: How many batches of a producer are remembered; a client has no more than that in flight.
REMEMBERED_BATCHES = 5
#: The sequence number before a producer's first record.
NO_SEQUENCE = -1


class WrittenBatch(NamedTuple):
    """A batch that a producer has in the log.

    Attributes:
        last_sequence: sequence number of its last record.
        last_offset: offset of its last record.
        offset_delta: last offset less first offset.
        timestamp: its largest time in ms.
    """

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        """Sequence number of its first record."""
        return _sequence_before(self.last_sequence, self.offset_delta)

    @property
    def base_offset(self) -> int:
        """Offset of its first record."""
        return self.last_offset - self.offset_delta


class ProducerEntry(NamedTuple):
    """The state of one producer id.

    Attributes:
        producer_id: the producer's id.
        epoch: the latest epoch of the producer; -1: none.
        coordinator_epoch: of the transaction coordinator that wrote the last marker; -1: none.
        last_timestamp: of the last batch or marker, in ms.
        txn_first_offset: where its open transaction begins; None: none is open.
        batches: its last batches in this epoch, oldest first.
    """

    producer_id: int
    epoch: int = -1
    coordinator_epoch: int = -1
    last_timestamp: int = NO_TIMESTAMP
    txn_first_offset: int | None = None
    batches: tuple[WrittenBatch, ...] = ()

    @property
    def last_sequence(self) -> int:
        """Sequence number of its last record in this epoch; -1: there is none."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def is_expired(self, now: int, expiration: int) -> bool:
        """Whether it was idle for `expiration` ms, with no transaction open."""
        return self.txn_first_offset is None and now - self.last_timestamp >= expiration


class Duplicate(NamedTuple):
    """A batch that is in the log already: its offsets, and its largest time in ms."""

    base_offset: int
    last_offset: int
    timestamp: int


def sequence_after(sequence: int, count: int) -> int:
    """The sequence number `count` records after `sequence`; 0 follows 2^31 - 1."""
    return sequence + count if sequence <= INT_MAX - count else sequence + count - INT_MAX - 1


def _sequence_before(sequence: int, count: int) -> int:
    return sequence - count if sequence >= count else sequence - count + INT_MAX + 1


def _last_sequence(header: BatchHeader) -> int:
    if header.base_sequence == NO_SEQUENCE:
        return NO_SEQUENCE
    return sequence_after(header.base_sequence, header.last_offset_delta)


class ProducerStates:
    """The producers of one partition, up to an offset of its log.

    Attributes:
        end_offset: the offset (exclusive) up to which the log was taken in. The owner moves it past batches
            without producer ids; snapshots are named by it.
    """

    def __init__(self, entries: Iterable[ProducerEntry] = (), end_offset: int = 0) -> None:
        """Begins with the entries of a snapshot at `end_offset`, or with none."""
        self.end_offset = end_offset
        self._entries = {entry.producer_id: entry for entry in entries}
        # Open transactions: first offset -> producer id. Ended ones: first offset -> offset of the marker.
        self._open = {
            entry.txn_first_offset: entry.producer_id
            for entry in self._entries.values()
            if entry.txn_first_offset is not None
        }
        self._unacknowledged: dict[int, int] = {}

    def copy(self, producer_ids: Collection[int]) -> ProducerStates:
        """The same of some producers, and of those with open transactions, to be changed without these."""
        wanted = {*producer_ids, *self._open.values()}
        known = [self._entries[one] for one in wanted if one in self._entries]
        return ProducerStates(known, self.end_offset)

    @property
    def entries(self) -> list[ProducerEntry]:
        """The state of each producer."""
        return list(self._entries.values())

    def check(self, header: BatchHeader, marker: EndTxnMarker | None = None) -> Duplicate | None:
        """Checks a batch that is about to be appended.

        Args:
            header: of a batch with a producer id. As in Kafka, no other batch is appended with it.
            marker: its control record, if it is a control batch.

        Returns:
            Where the log has it already: it must not be written again. None: it may be appended.

        Raises:
            InvalidProducerEpochError, OutOfOrderSequenceError, InvalidTxnStateError,
            TransactionCoordinatorFencedError: it must not be appended.
        """
        entry = self._entries.get(header.producer_id)
        if entry is None:
            # Its records may have been deleted or have expired, so any sequence may be the next.
            return None
        is_control = header.is_control
        # Nearly each is the batch after the last one: it is none of those that are remembered, and in order.
        is_next = header.base_sequence == entry.last_sequence + 1 and header.producer_epoch == entry.epoch
        if is_control or not is_next:
            duplicate = None if is_control else _duplicate(entry, header)
            if duplicate is not None:
                return duplicate
            _check_epoch(entry, header)
            if marker is not None:
                _check_coordinator(entry, header, marker)
            elif not is_control:
                _check_sequence(entry, header)
        if entry.txn_first_offset is not None and not is_control and not header.is_transactional:
            raise InvalidTxnStateError(
                f"producer {header.producer_id} has a transaction open since offset {entry.txn_first_offset}: "
                "a batch outside of it is refused until that is committed or aborted"
            )
        return None

    def aborted_by(self, header: BatchHeader, marker: EndTxnMarker) -> AbortedTransaction | None:
        """Returns the transaction that a marker aborts, if it aborts one; changes nothing."""
        entry = self._entries.get(header.producer_id)
        if marker.commit or entry is None or entry.txn_first_offset is None:
            return None
        others = (first for first, producer_id in self._open.items() if producer_id != header.producer_id)
        return AbortedTransaction(
            header.producer_id, entry.txn_first_offset, header.base_offset, min(others, default=header.next_offset)
        )

    def enter(self, header: BatchHeader, marker: EndTxnMarker | None = None) -> None:
        """Takes in a batch that is in the log, whatever `check` would say of it.

        Args:
            header: the header of a batch with a producer id.
            marker: its control record, if it is a control batch; None if the cleaner removed that.
        """
        self.end_offset = header.next_offset
        entry = self._entries.get(header.producer_id) or ProducerEntry(header.producer_id)
        if marker is not None:
            entry = self._ended(entry, header, marker)
        elif not header.is_control:
            entry = self._extended(entry, header)
        else:
            return
        self._entries[header.producer_id] = entry

    def _extended(self, entry: ProducerEntry, header: BatchHeader) -> ProducerEntry:
        batch = WrittenBatch(_last_sequence(header), header.last_offset, header.last_offset_delta, header.max_timestamp)
        before = entry.batches if entry.epoch == header.producer_epoch else ()
        first = entry.txn_first_offset
        if first is None and header.is_transactional:
            first = header.base_offset
            self._open[first] = header.producer_id
        batches = (*before, batch)[-REMEMBERED_BATCHES:]
        return ProducerEntry(
            entry.producer_id, header.producer_epoch, entry.coordinator_epoch, header.max_timestamp, first, batches
        )

    def _ended(self, entry: ProducerEntry, header: BatchHeader, marker: EndTxnMarker) -> ProducerEntry:
        if entry.txn_first_offset is not None:
            self._open.pop(entry.txn_first_offset, None)
            self._unacknowledged[entry.txn_first_offset] = header.base_offset
        return entry._replace(
            epoch=header.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            last_timestamp=header.max_timestamp,
            txn_first_offset=None,
            batches=entry.batches if entry.epoch == header.producer_epoch else (),
        )

    def acknowledge(self, high_watermark: int) -> None:
        """Notes that records below that offset cannot be lost: transactions that ended there are stable."""
        if self._unacknowledged:
            left = {first: last for first, last in self._unacknowledged.items() if last >= high_watermark}
            self._unacknowledged = left

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of a transaction that is open, or whose end is not acknowledged; None: there is none."""
        return min((*self._unacknowledged, *self._open), default=None)

    def expire(self, now: int, expiration: int) -> None:
        """Removes producers that were idle for producer.id.expiration.ms and have no transaction open."""
        self._entries = {
            producer_id: entry for producer_id, entry in self._entries.items() if not entry.is_expired(now, expiration)
        }


def _duplicate(entry: ProducerEntry, header: BatchHeader) -> Duplicate | None:
    if header.producer_epoch == entry.epoch:
        last = _last_sequence(header)
        for batch in entry.batches:
            if batch.last_sequence == last and batch.first_sequence == header.base_sequence:
                return Duplicate(batch.base_offset, batch.last_offset, batch.timestamp)
    return None


def _check_epoch(entry: ProducerEntry, header: BatchHeader) -> None:
    if header.producer_epoch < entry.epoch:
        raise InvalidProducerEpochError(
            f"producer {header.producer_id} uses epoch {header.producer_epoch}, but its epoch {entry.epoch} has "
            "written here: a newer instance of it has taken over"
        )


def _check_coordinator(entry: ProducerEntry, header: BatchHeader, marker: EndTxnMarker) -> None:
    if marker.coordinator_epoch < entry.coordinator_epoch:
        raise TransactionCoordinatorFencedError(
            f"a marker for producer {header.producer_id} comes from coordinator epoch {marker.coordinator_epoch}, "
            f"but epoch {entry.coordinator_epoch} has written one: a newer coordinator has taken over"
        )


def _check_sequence(entry: ProducerEntry, header: BatchHeader) -> None:
    if header.base_sequence == NO_SEQUENCE:
        return  # A coordinator writes offsets for a producer, which number nothing.
    same_epoch = header.producer_epoch == entry.epoch
    expected = sequence_after(entry.last_sequence, 1) if same_epoch else 0
    if header.base_sequence != expected and entry.epoch != -1:
        raise OutOfOrderSequenceError(
            f"producer {header.producer_id}, epoch {header.producer_epoch}: its batch begins with sequence number "
            f"{header.base_sequence}, expected {expected}"
        )
