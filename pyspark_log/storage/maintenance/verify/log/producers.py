"""Rebuilds a partition's producer files (snapshots, indexes of aborted transactions) from its log, and compares.

The log is read once more, by its headers, as by a writer without a snapshot. This compares for truth. A snapshot may
lack producers that were idle for too long when it was written. The contents of deleted segments cannot be rebuilt, so
what the files say of them is trusted unless the log contradicts it; the same holds for segments that may be compacted.
Nothing is compared after a damaged batch, which is reported elsewhere.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping

from pyspark_log.errors import CorruptRecordError, SideFileError
from pyspark_log.storage.fs import files
from pyspark_log.storage.log.producers import ProducerEntry, ProducerStates, replay, snapshot
from pyspark_log.storage.log.state import Flags, PartitionState
from pyspark_log.storage.maintenance.verify.findings import REPAIR, Finder, Finding
from pyspark_log.storage.record.end_txn_marker import ControlRecordError
from pyspark_log.storage.segment import AbortedTransaction, txn_index
from pyspark_log.storage.segment.file_names import LOG, SNAPSHOT, TXN_INDEX, list_segments, segment_path

_DAMAGE = f"write nothing with producer ids to this partition; {REPAIR}, which rebuilds these files from the log"
_INDEX = f"the log takes its place, where it reaches back far enough; it is deleted with its segment, or by {REPAIR}"
# Below this offset lies nothing.
_NOTHING = -1


class ProducerCheck:
    """The check of one partition's producer files; `run` does it."""

    def __init__(
        self, folder: str, finding: Finder, state: PartitionState, until: int, expiration: int, compacted_to: int
    ) -> None:
        """Reads nothing yet.

        Args:
            folder: the partition's.
            finding: makes findings.
            state: up to which the log counts.
            until: the offset of the first damaged batch, or the log end.
            expiration: producer.id.expiration.ms.
            compacted_to: below this offset the log may lack what was written there.
        """
        self._folder, self._finding, self._state, self._expiration = folder, finding, state, expiration
        self._end = min(state.next_offset, until)
        bases = [base for base in list_segments(folder) if state.counts(base)]
        # Those before the log start are about to be deleted, their logs last.
        bases = bases[max(bisect_right(bases, state.log_start) - 1, 0) :]
        self._bases = [base for base in bases if base >= compacted_to]
        self._flagged = bool(state.flags & Flags.PRODUCERS)  # or reported
        self._states = ProducerStates()
        self._believed_to = _NOTHING  # what the files say of offsets below it is trusted

    def run(self) -> Iterator[Finding]:
        """What is wrong with the files. FileNotFoundError: a segment was deleted meanwhile."""
        if not self._bases:
            return
        first = self._bases[0]
        snapshots = [o for o in snapshot.list_snapshots(self._folder) if first <= o <= self._end]
        begin: list[ProducerEntry] | None = [] if first == 0 else None
        if snapshots and snapshots[0] == first:
            try:
                begin = snapshot.read(segment_path(self._folder, snapshots.pop(0), SNAPSHOT))
            except FileNotFoundError:
                pass  # Its segment was deleted meanwhile.
            except SideFileError as error:
                yield self._finding.index(segment_path(self._folder, first, SNAPSHOT), str(error), _INDEX)
        self._believed_to = first if begin is None else _NOTHING
        self._states = ProducerStates(begin or (), first)
        try:
            for base, until in zip(self._bases, [*self._bases[1:], self._state.next_offset], strict=True):
                yield from self._compare_segment(base, until, snapshots)
                if until > self._end:
                    return
        except ControlRecordError as error:
            base = self._bases[bisect_right(self._bases, error.base_offset) - 1]
            path, what = segment_path(self._folder, base, LOG), f"{error.reason}: no producer with an id can write here"
            yield self._finding.damage(path, what, _DAMAGE, error.position, error.base_offset, error.base_offset + 1)
            return
        except CorruptRecordError:
            return  # It was reported, or the log has changed meanwhile.
        for offset in snapshots:
            yield from self._compare_snapshot(offset)

    def _compare_segment(self, base: int, until: int, snapshots: list[int]) -> Iterator[Finding]:
        """Takes a segment in, up to `until`. Snapshots up to there are compared, and removed from the list."""
        expected: dict[int, AbortedTransaction] = {}  # by the offset of the marker
        aborts: dict[int, int] = {}  # the producer of each marker that aborts, also if its transaction is not known
        for header, marker, aborted in replay(self._states, self._folder, base, min(until, self._end), self._state):
            while snapshots and snapshots[0] <= header.base_offset:
                yield from self._compare_snapshot(snapshots.pop(0))
            if not self._flagged:
                self._flagged = True
                what = (
                    f"a batch of producer {header.producer_id}, but by the state no producer with an id has written "
                    "here: a batch that is sent again would be appended again"
                )
                path = segment_path(self._folder, base, LOG)
                yield self._finding.damage(path, what, _DAMAGE, -1, header.base_offset, header.next_offset)
            if marker is not None and not marker.commit:
                aborts[header.base_offset] = header.producer_id
                if aborted is not None:
                    expected[header.base_offset] = aborted
        if until <= self._end:
            yield from self._compare_index(base, until, expected, aborts)

    def _compare_snapshot(self, offset: int) -> Iterator[Finding]:
        path = segment_path(self._folder, offset, SNAPSHOT)
        try:
            entries = snapshot.read(path)
            written = files.status_of(path).st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return  # Its segment was deleted meanwhile.
        except SideFileError as error:
            yield self._finding.index(path, str(error), _INDEX)
            return
        rebuilt = {entry.producer_id: entry for entry in self._states.entries}
        for entry in entries:
            right = rebuilt.pop(entry.producer_id, None)
            if not self._can_be(entry, right):
                what = f"the log has no batch of it below {offset}" if right is None else f"the log says {_said(right)}"
                what = (
                    f"it says of producer {entry.producer_id} {_said(entry)}, but {what}: what that producer sends "
                    "next would be judged wrongly"
                )
                yield self._finding.damage(path, what, _DAMAGE, first=offset)
                return
        for entry in rebuilt.values():
            if not entry.is_expired(written, self._expiration):
                what = f"it has no producer {entry.producer_id}, of which the log says {_said(entry)}"
                if entry.txn_first_offset is None:
                    yield self._finding.index(path, what, _INDEX, first=offset)
                else:
                    yield self._finding.damage(path, what, _DAMAGE, first=offset)
                return

    def _can_be(self, entry: ProducerEntry, right: ProducerEntry | None) -> bool:
        """Whether a producer can be as a snapshot says; `right`: as it is by the log."""
        txn, last = entry.txn_first_offset, entry.batches[-1].last_offset if entry.batches else _NOTHING
        if right is None:
            return max(last, _NOTHING if txn is None else txn) < self._believed_to
        return (
            entry.epoch == right.epoch
            and (
                txn == right.txn_first_offset
                or (txn is not None and right.txn_first_offset is not None and txn < self._believed_to)
            )
            # A producer that was forgotten between its last batch and a marker has no batch. And the log may have the
            # marker only.
            and (not entry.batches or _last(entry) == _last(right) or (not right.batches and last < self._believed_to))
        )

    def _compare_index(
        self, base: int, until: int, expected: dict[int, AbortedTransaction], aborts: Mapping[int, int]
    ) -> Iterator[Finding]:
        path = segment_path(self._folder, base, TXN_INDEX)
        try:
            # Beyond the end there may be one of a running writer.
            found = [entry for entry in txn_index.read_entries(path, base) if entry.last_offset < until]
        except SideFileError as error:
            yield self._finding.damage(path, str(error), _DAMAGE, -1, base, until)
            return
        for entry in found:
            right = expected.pop(entry.last_offset, None)
            if entry != right and not self._is_believed(entry, right, aborts):
                what = (
                    f"{entry} is not what the log says{'' if right is None else f', which is {right}'}: readers of "
                    "committed records would miss some, or get aborted ones"
                )
                yield self._finding.damage(path, what, _DAMAGE, -1, entry.first_offset, entry.last_offset + 1)
                return
        for entry in [*expected.values()][:1]:
            what = (
                f"{len(expected)} aborted transactions are missing in it, the first is {entry}: readers of committed "
                "records would get theirs"
            )
            yield self._finding.damage(path, what, _DAMAGE, -1, entry.first_offset, entry.last_offset + 1)

    def _is_believed(
        self, entry: AbortedTransaction, right: AbortedTransaction | None, aborts: Mapping[int, int]
    ) -> bool:
        """Whether an entry that the log does not give can be right: of a transaction that began before the log does."""
        if aborts.get(entry.last_offset) != entry.producer_id:
            return False
        if right is None:
            return entry.first_offset < self._believed_to
        # The log has the rest of it only; or another one was open then, which had begun before.
        return (entry.first_offset == right.first_offset or entry.first_offset < self._believed_to) and (
            entry.last_stable_offset == right.last_stable_offset or entry.last_stable_offset < self._believed_to
        )


def _last(entry: ProducerEntry) -> tuple[int, int, int] | None:
    # Without the time: a snapshot has that of the last marker in its place.
    return entry.batches[-1][:3] if entry.batches else None


def _said(entry: ProducerEntry) -> str:
    last = _last(entry)
    batch = "no batch" if last is None else f"last sequence number {last[0]} at offset {last[1]}"
    txn = "" if entry.txn_first_offset is None else f", a transaction open since offset {entry.txn_first_offset}"
    return f"epoch {entry.epoch}, {batch}{txn}"
