"""Compares a log with its producer files: snapshots, and indexes of aborted transactions.

The log is read once more, by its headers, as by a writer without a snapshot. The contents of deleted segments cannot be
reconstructed, so the files are trusted there unless the log contradicts them. Nothing is compared after a damaged
batch, which is reported elsewhere.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pyspark_log.errors import CorruptRecordError, SideFileError
from pyspark_log.storage.fs import files
from pyspark_log.storage.log import Flags, PartitionState, ProducerEntry, ProducerStates
from pyspark_log.storage.log import snapshot as producer_snapshot
from pyspark_log.storage.maintenance.verify.findings import Severity
from pyspark_log.storage.record import MAX_MARKER_BYTES, BatchHeader, EndTxnMarker, decode_end_txn_marker
from pyspark_log.storage.segment import (
    LOG,
    SNAPSHOT,
    TXN_INDEX,
    AbortedTransaction,
    SegmentReader,
    list_segments,
    segment_path,
    txn_index,
)


class ProducerFault(NamedTuple):
    """Something wrong with what the files say of producers.

    Attributes:
        severity: how bad it is.
        path: the file.
        first_offset, next_offset: the offsets that it affects; -1: not known.
        what: what is wrong.
    """

    severity: Severity
    path: str
    first_offset: int
    next_offset: int
    what: str


def producer_faults(
    folder: str, state: PartitionState, until: int, expiration: int, cleaned_to: int = 0
) -> list[ProducerFault]:
    """What is wrong with the files of a partition.

    Args:
        folder: the partition's.
        state: up to which the log counts.
        until: the offset of the first damaged batch, or the log end.
        expiration: producer.id.expiration.ms.
        cleaned_to: below this offset the log may be compacted, and does not tell any more what was written there.

    Raises:
        FileNotFoundError: a segment went meanwhile.
    """
    check = _Check(folder, state, until, expiration, cleaned_to)
    check.run()
    return check.found


class _Check:
    def __init__(self, folder: str, state: PartitionState, until: int, expiration: int, cleaned_to: int) -> None:
        self.found: list[ProducerFault] = []
        self._folder, self._state, self._until, self._expiration = folder, state, until, expiration
        bases = [base for base in list_segments(folder) if state.counts(base)]
        # Those before the log start are about to go, their logs last.
        bases = bases[max(bisect_right(bases, state.log_start) - 1, 0) :]
        self._bases = [base for base in bases if base >= cleaned_to]
        self._states = ProducerStates()
        self._known = True  # whether the log tells all, or begins in the middle

    def run(self) -> None:
        if not self._bases:
            return
        first, end = self._bases[0], min(self._state.next_offset, self._until)
        snapshots = [offset for offset in producer_snapshot.list_snapshots(self._folder) if first <= offset <= end]
        begin = self._read(first) if first in snapshots else None
        self._known = first == 0 or begin is not None
        self._states = ProducerStates(begin or (), first)
        waiting = [offset for offset in snapshots if offset > first]
        try:
            for base, until in zip(self._bases, [*self._bases[1:], self._state.next_offset], strict=True):
                expected, aborts = self._walk(base, until, waiting)
                if until > end:
                    return
                self._compare_index(base, until, expected, aborts)
        except CorruptRecordError:
            return
        for offset in waiting:
            self._compare_snapshot(offset)

    def _fault(self, severity: Severity, path: str, first_offset: int, next_offset: int, what: str) -> None:
        self.found.append(ProducerFault(severity, path, first_offset, next_offset, what))

    def _walk(self, base: int, end: int, waiting: list[int]) -> tuple[list[AbortedTransaction], dict[int, int]]:
        """Takes a segment in: transactions that were aborted in it, and all markers that say so, with their producers.

        It reaches up to the offset `end`. Snapshots whose offsets come by are compared, and are no longer waiting.
        """
        expected: list[AbortedTransaction] = []
        aborts: dict[int, int] = {}
        for header, marker in self._batches(base, end):
            while waiting and waiting[0] <= header.base_offset:
                self._compare_snapshot(waiting.pop(0))
            if header.producer_id < 0:
                continue
            if not self._state.flags & Flags.PRODUCERS and not self.found:
                self._fault(
                    Severity.DAMAGE, segment_path(self._folder, base, LOG), header.base_offset, header.next_offset,
                    f"a batch of producer {header.producer_id}, but by the state nobody has numbered batches here: "
                    "one that is sent again would be appended again",
                )  # fmt: skip
            if marker is not None and not marker.commit:
                aborts[header.base_offset] = header.producer_id
                aborted = self._states.aborted_by(header, marker)
                expected += [] if aborted is None else [aborted]
            self._states.enter(header, marker)
        return expected, aborts

    def _batches(self, base: int, until: int) -> Iterator[tuple[BatchHeader, EndTxnMarker | None]]:
        reader = SegmentReader(self._folder, base, until=until)
        try:
            end = self._state.position if base == self._state.active_base else reader.log.size()
            for header in reader.headers(0, end):
                if header.base_offset >= self._until:
                    break
                marker = None
                if header.producer_id >= 0 and header.is_control:
                    data = reader.log.pread(min(header.size, MAX_MARKER_BYTES), header.position)
                    try:
                        marker = decode_end_txn_marker(data, header)
                    except CorruptRecordError as error:
                        self._fault(
                            Severity.DAMAGE, reader.log.path, header.base_offset, header.next_offset,
                            f"at byte {header.position}: {error.reason}: no producer with an id can write here",
                        )  # fmt: skip
                        raise
                yield header, marker
        finally:
            reader.close()

    # ---- snapshots

    def _read(self, offset: int) -> list[ProducerEntry] | None:
        """The producers of a snapshot; None if it cannot be read."""
        path = segment_path(self._folder, offset, SNAPSHOT)
        try:
            return producer_snapshot.read(path)
        except FileNotFoundError:
            return None  # its segment went meanwhile
        except SideFileError as error:
            self._fault(Severity.INDEX, path, -1, -1, str(error))
            return None

    def _compare_snapshot(self, offset: int) -> None:
        entries = self._read(offset)
        if entries is None:
            return
        path = segment_path(self._folder, offset, SNAPSHOT)
        known = {entry.producer_id: entry for entry in self._states.entries}
        for entry in entries:
            if what := self._refuted(entry, known.pop(entry.producer_id, None), offset):
                self._fault(
                    Severity.DAMAGE, path, offset, -1,
                    f"it says of producer {entry.producer_id} {_said(entry)}, but {what}: what that producer sends "
                    "next would be judged wrongly",
                )  # fmt: skip
                return
        self._compare_missing(path, offset, known)

    def _refuted(self, entry: ProducerEntry, known: ProducerEntry | None, offset: int) -> str:
        """Why a producer cannot be as a snapshot says; "" if it can."""
        if known is None:
            last = max(entry.batches[-1].last_offset if entry.batches else -1, entry.txn_first_offset or -1)
            return "" if self._is_before(last) else f"the log has no batch of it below {offset}"
        txn, known_txn = entry.txn_first_offset, known.txn_first_offset
        same_txn = txn == known_txn or (txn is not None and known_txn is not None and self._is_before(txn))
        # One that was forgotten between its last batch and a marker has no batch. And the log may have the marker only.
        same_batch = (
            not entry.batches or _last(entry) == _last(known)
            or (not known.batches and self._is_before(entry.batches[-1].last_offset))
        )  # fmt: skip
        return "" if entry.epoch == known.epoch and same_txn and same_batch else f"the log says {_said(known)}"

    def _is_before(self, offset: int) -> bool:
        """Whether an offset lies before all that is known of the log, so that what is said of it is believed."""
        return not self._known and offset < self._bases[0]

    def _compare_missing(self, path: str, offset: int, missing: Mapping[int, ProducerEntry]) -> None:
        """Producers that a snapshot has not: those that were idle for too long when it was written may be missing."""
        try:
            written = files.status_of(path).st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return
        for entry in missing.values():
            if not entry.is_expired(written, self._expiration):
                grave = entry.txn_first_offset is not None
                self._fault(
                    Severity.DAMAGE if grave else Severity.INDEX, path, offset, -1,
                    f"it has no producer {entry.producer_id}, of which the log says {_said(entry)}",
                )  # fmt: skip
                return

    # ---- indexes of aborted transactions

    def _compare_index(
        self, base: int, until: int, expected: Sequence[AbortedTransaction], aborts: Mapping[int, int]
    ) -> None:
        path = segment_path(self._folder, base, TXN_INDEX)
        try:
            # Beyond the end there may be one of a running writer.
            found = [entry for entry in txn_index.read_entries(path, base) if entry.last_offset < until]
        except SideFileError as error:
            self._fault(Severity.DAMAGE, path, base, until, str(error))
            return
        wanted = {entry.last_offset: entry for entry in expected}
        for entry in found:
            right = wanted.pop(entry.last_offset, None)
            if entry != right and not self._believed(entry, right, aborts):
                self._fault(
                    Severity.DAMAGE, path, entry.first_offset, entry.last_offset + 1,
                    f"{entry} is not what the log says{'' if right is None else f', which is {right}'}: who reads "
                    "committed records would miss some, or get aborted ones",
                )  # fmt: skip
                return
        for entry in wanted.values():
            self._fault(
                Severity.DAMAGE, path, entry.first_offset, entry.last_offset + 1,
                f"{len(wanted)} aborted transactions are missing in it, the first is {entry}: who reads committed "
                "records would get theirs",
            )  # fmt: skip
            return

    def _believed(
        self, entry: AbortedTransaction, right: AbortedTransaction | None, aborts: Mapping[int, int]
    ) -> bool:
        """Whether an entry that the log does not give can be right: of a transaction that began before the log does."""
        if self._known or aborts.get(entry.last_offset) != entry.producer_id:
            return False
        first = self._bases[0]
        if right is None:
            return entry.first_offset < first
        # The log has the rest of it only; or another one was open then, which had begun before.
        return (entry.first_offset == right.first_offset or entry.first_offset < first) and (
            entry.last_stable_offset == right.last_stable_offset or entry.last_stable_offset < first
        )


def _last(entry: ProducerEntry) -> tuple[int, int, int] | None:
    # Without the time: a snapshot has that of the last marker in its place.
    return entry.batches[-1][:3] if entry.batches else None


def _said(entry: ProducerEntry) -> str:
    last = _last(entry)
    batch = "no batch" if last is None else f"last sequence number {last[0]} at offset {last[1]}"
    txn = "" if entry.txn_first_offset is None else f", a transaction open since offset {entry.txn_first_offset}"
    return f"epoch {entry.epoch}, {batch}{txn}"
