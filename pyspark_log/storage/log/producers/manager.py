"""A partition's idempotent producers, with the files that keep their state.

What a producer may append next follows from the log itself. Reading all of it would take long, so each roll leaves
a snapshot, and a process begins with the newest one and reads the headers after it. The index of aborted
transactions is written along with the markers; after a power loss that of the active segment is rebuilt.

A partition to which no producer id was ever written (Flags.PRODUCERS) has none of these files, and nothing is
read for it. Everything here happens while the partition's lock is held.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from typing import NamedTuple

from pyspark_log.errors import SideFileError
from pyspark_log.storage.catalog import PartitionPath
from pyspark_log.storage.fs import files
from pyspark_log.storage.log import cleaner_checkpoint
from pyspark_log.storage.log.producers import snapshot
from pyspark_log.storage.log.producers.state import Duplicate, ProducerEntry, ProducerStates
from pyspark_log.storage.log.state.live_segments import live_segments
from pyspark_log.storage.log.state.partition_state import Flags, PartitionState
from pyspark_log.storage.record import BatchHeader
from pyspark_log.storage.record.end_txn_marker import MAX_MARKER_BYTES, EndTxnMarker, decode_end_txn_marker
from pyspark_log.storage.segment import AbortedTransaction, SegmentReader, read_headers, txn_index
from pyspark_log.storage.segment.file_names import TXN_INDEX, list_segments, segment_path
from pyspark_log.storage.segment.txn_index import TxnIndex

log = logging.getLogger(__name__)

# How often to check for producers that were idle for too long, in ms (Kafka's
# producer.id.expiration.check.interval.ms).
_EXPIRATION_CHECK = 600_000


class ProducerAppendInfo(NamedTuple):
    """A batch of an idempotent producer that is about to be appended, and its effect.

    Attributes:
        header: its header, with the offsets that it gets.
        marker: its control record, if it ends a transaction.
        aborted: the transaction that it aborts, if it aborts one.
        duplicate: where the log has it already; then it must not be appended.
    """

    header: BatchHeader
    marker: EndTxnMarker | None
    aborted: AbortedTransaction | None
    duplicate: Duplicate | None


class ProducerStateManager:
    """The idempotent producers of one partition, for the process that appends to it."""

    def __init__(self, place: PartitionPath, expiration: int) -> None:
        """Reads nothing yet.

        Args:
            place: which partition.
            expiration: producer.id.expiration.ms.
        """
        self._place, self._folder = place, place.folder
        self._expiration = expiration
        self._states: ProducerStates | None = None
        self._incarnation = -1  # of the log that `_states` were read from
        self._next_check: int | None = None
        self._index: tuple[int, TxnIndex] | None = None

    def invalidate(self) -> None:
        """Drops what is cached; the next use reads the files again."""
        self._states = None
        self.close()

    def close(self) -> None:
        """Closes the files, which others may have changed. What was read of the log stays valid."""
        if self._index is not None:
            self._index[1].close()
        self._index = None

    # ---- around an append

    def validate(
        self, state: PartitionState, data: bytes | bytearray, header: BatchHeader, now: int
    ) -> ProducerAppendInfo:
        """Checks a batch with a producer id that is about to be appended; changes nothing.

        Args:
            state: the partition's state.
            data: the whole batch.
            header: its header, with the offsets that it gets.
            now: the time in ms.

        Raises:
            ProducerError: it must not be appended.
            CorruptRecordError: a control batch without a control record.
        """
        states = self._follow(state, now)
        marker = decode_end_txn_marker(bytes(data), header) if header.is_control else None
        duplicate = states.check(header, marker)
        aborted = states.aborted_by(header, marker) if marker is not None else None
        return ProducerAppendInfo(header, marker, aborted, duplicate)

    def copy(self, state: PartitionState, producer_ids: Collection[int], now: int) -> ProducerStates:
        """What is known of some producers up to the log end: to check batches of which each follows those before it."""
        return self._follow(state, now).copy(producer_ids)

    def index_aborted(self, state: PartitionState, aborted: AbortedTransaction) -> None:
        """Adds an aborted transaction to the active segment's index, before its marker becomes visible."""
        self._open_index(state).append(aborted)

    def enter(self, numbered: ProducerAppendInfo) -> None:
        """Takes in a batch that `validate` has accepted, and that is in the log by now."""
        assert self._states is not None
        self._states.enter(numbered.header, numbered.marker)
        # No other replica has to acknowledge it.
        self._states.acknowledge(self._states.end_offset)

    def skip(self, base_offset: int, next_offset: int) -> None:
        """Skips the batches appended in [base_offset, next_offset), which have no producer ids."""
        if self._states is not None and self._states.end_offset == base_offset:
            self._states.end_offset = next_offset

    # ---- around the ends of segments and of the log

    def sync_index(self, base_offset: int) -> None:
        """Makes the index of a segment durable before the next segment begins."""
        self.close()
        path = segment_path(self._folder, base_offset, TXN_INDEX)
        try:
            file = files.open_write(path)
        except FileNotFoundError:
            return
        with file:
            file.sync()

    def take_snapshot(self, state: PartitionState, now: int) -> None:
        """Writes the snapshot at the active segment's base, to which no producer has appended yet.

        Without it only time is lost. It is written after the log end has moved, so it never names records that are not
        there.
        """
        if state.flags & Flags.PRODUCERS:
            snapshot.write(self._folder, state.active_base, self._follow(state, now).entries)

    def cut(self, state: PartitionState) -> None:
        """Removes what the files say of offsets beyond the log end."""
        if state.flags & Flags.PRODUCERS:
            self._delete_snapshots_above(state.next_offset)
            self.close()
            self._open_index(state).cut(state.next_offset)

    def rebuild(self, state: PartitionState, first_base: int) -> None:
        """Rebuilds the indexes of the segments from base `first_base` on, durably.

        Snapshots at offsets inside them are deleted.
        """
        self.invalidate()
        if state.flags & Flags.PRODUCERS:
            self._delete_snapshots_above(first_base)
            self._rebuild_indexes(state, first_base)

    def _delete_snapshots_above(self, offset: int) -> None:
        found = snapshot.list_snapshots(self._folder)
        snapshot.delete(self._folder, [one for one in found if one > offset])

    # ---- what is known

    def entries(self, state: PartitionState, now: int) -> list[ProducerEntry]:
        """The state of each producer, up to the log end; `now` in ms. CorruptRecordError."""
        return self._follow(state, now).entries

    def _follow(self, state: PartitionState, now: int) -> ProducerStates:
        """The state of all producers, up to the log end."""
        states = self._states
        if states is None or self._incarnation != state.incarnation or not self._follows(states.end_offset, state):
            self.invalidate()
            states = self._restored(state, state.next_offset, now)
            self._states, self._incarnation = states, state.incarnation
        if states.end_offset < state.next_offset:
            for base, until in live_segments(self._folder, state, states.end_offset):
                for _ in replay(states, self._folder, base, until, state):
                    pass
            states.end_offset = state.next_offset
            states.acknowledge(state.next_offset)
        if self._next_check is not None and now >= self._next_check:
            states.expire(now, self._expiration)
            self._next_check = None
        if self._next_check is None:
            self._next_check = now + _EXPIRATION_CHECK
        return states

    def _follows(self, offset: int, state: PartitionState) -> bool:
        """Whether the log still has everything that was ever appended from an offset up to its end.

        Other processes may have deleted or compacted segments since this one has read up to there: a process that reads
        on would then miss a batch, or the end of a transaction. The newest snapshot has it.
        """
        if state.active_base <= offset <= state.next_offset:
            return True  # Only inactive segments are deleted and compacted.
        first = next((base for base in list_segments(self._folder) if state.counts(base)), state.active_base)
        return max(first, cleaner_checkpoint.read(self._place).touched_to) <= offset <= state.next_offset

    def _restored(self, state: PartitionState, end: int, now: int) -> ProducerStates:
        """Reads the newest snapshot that is not above `end`; the states' end is its offset."""
        if not state.flags & Flags.PRODUCERS:
            return ProducerStates(end_offset=end)
        bases = list_segments(self._folder)
        first = bases[0] if bases else end
        offsets = snapshot.list_snapshots(self._folder)
        snapshot.delete(self._folder, snapshot.strays(offsets, bases))
        # Kafka uses none at or below the log start. As long as its segment exists it is as good as any, and a process
        # that starts here must not know less of the producers than the one before.
        found = snapshot.load_newest(self._folder, first - 1, end)
        if found is None:
            return ProducerStates(end_offset=first)
        entries = [entry for entry in found.entries if not entry.is_expired(now, self._expiration)]
        return ProducerStates(entries, found.offset)

    # ---- the index of aborted transactions

    def _open_index(self, state: PartitionState) -> TxnIndex:
        """The active segment's index; rebuilt if it is damaged."""
        try:
            return self._index_of(state.active_base)
        except SideFileError as error:
            log.warning("rebuilding an index of aborted transactions: %s", error)
            self._rebuild_indexes(state, state.active_base)
            return self._index_of(state.active_base)

    def _index_of(self, base: int) -> TxnIndex:
        if self._index is None or self._index[0] != base:
            self.close()
            self._index = base, TxnIndex(segment_path(self._folder, base, TXN_INDEX), base)
        return self._index[1]

    def _rebuild_indexes(self, state: PartitionState, first_base: int) -> None:
        # The time does not matter: an expired producer has no transaction open.
        states = self._restored(state, first_base, 0)
        found = {
            base: [batch.aborted for batch in replay(states, self._folder, base, until, state) if batch.aborted]
            for base, until in live_segments(self._folder, state, states.end_offset)
        }
        self.close()
        # Atomically: an index that is missing, or ends early, would say that nothing more was aborted.
        for base, entries in found.items():
            if base < first_base:
                continue
            path = segment_path(self._folder, base, TXN_INDEX)
            if entries:
                txn_index.write_entries(path, entries)
            else:
                files.unlink(path)
        files.sync_folder(self._folder)


class Replayed(NamedTuple):
    """A batch of an idempotent producer that is in the log.

    Attributes:
        header: its header.
        marker: its control record, if it ends a transaction.
        aborted: the transaction that it aborts, if it aborts one.
    """

    header: BatchHeader
    marker: EndTxnMarker | None
    aborted: AbortedTransaction | None


def replay(states: ProducerStates, folder: str, base: int, until: int, state: PartitionState) -> Iterator[Replayed]:
    """Takes in the batches of a segment from the states' end on; yields each one right before.

    Args:
        states: what is known of the producers.
        folder, base: which segment.
        until: the offset at which the next one begins, or up to which it is taken in.
        state: the partition's.

    Raises:
        CorruptRecordError: damage on the way.
        FileNotFoundError: the segment was deleted meanwhile.
    """
    reader = SegmentReader(folder, base, until=until)
    try:
        # Batches beyond the position were truncated, where the log was emptied and continues at its start.
        end = state.position if base == state.active_base else reader.log.size()
        for header, marker in idempotent_batches(reader, end, states.end_offset, until):
            yield Replayed(header, marker, None if marker is None else states.aborted_by(header, marker))
            states.enter(header, marker)
        # No other replica has to acknowledge what ended here.
        states.acknowledge(states.end_offset)
    finally:
        reader.close()


def idempotent_batches(
    segment: SegmentReader, size: int, start: int, until: int
) -> Iterator[tuple[BatchHeader, EndTxnMarker | None]]:
    """Yields the batches of [start, until) that have producer ids, by their headers; does not check CRCs.

    Args:
        segment: where.
        size: its live bytes.
        start: batches that end before it are skipped.
        until: iteration ends at a batch that reaches beyond it.

    Raises:
        CorruptRecordError: damage on the way.
    """
    for header in read_headers(segment.log, segment.position_of(start, size), size, segment.until):
        if header.next_offset > until:
            break
        if header.producer_id >= 0 and header.last_offset >= start:
            data = segment.log.pread(min(header.size, MAX_MARKER_BYTES), header.position) if header.is_control else b""
            yield header, decode_end_txn_marker(data, header) if data else None
