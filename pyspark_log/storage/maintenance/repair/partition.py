"""Copies the undamaged batches of one partition's log into another store.

Offsets do not change. Where batches had to be dropped, an empty batch takes their offsets, so that the copy has
the undamaged records in place, and no offset is ever reused.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pyspark_log.config import TopicConfig
from pyspark_log.errors import StoreVersionError
from pyspark_log.storage.catalog import PartitionPath
from pyspark_log.storage.catalog.store_json import CUT_FOLDER
from pyspark_log.storage.fs import files
from pyspark_log.storage.fs.clock import Clock
from pyspark_log.storage.log.leader_epochs import Epochs
from pyspark_log.storage.log.leftovers import first_batch, reason_to_keep
from pyspark_log.storage.log.recovery import live_segments
from pyspark_log.storage.log.state import Flags, Intent, PartitionState, Slots, read_slots, state_file
from pyspark_log.storage.maintenance.transfer import LogCopy, marker_fault
from pyspark_log.storage.maintenance.verify import Finder, RecordCheck
from pyspark_log.storage.record import BatchHeader
from pyspark_log.storage.record.layout import LEADER_EPOCH_AT, MAGIC_AT
from pyspark_log.storage.segment.file_names import LOG, list_segments, segment_path
from pyspark_log.storage.segment.scanner import Damaged, Intact, SegmentScanner

_EVIDENCE_SIZE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Loss:
    """Something that is not in the copy.

    Attributes:
        topic, partition: whose it was.
        file: where it was, relative to the damaged store.
        position, size: which bytes of the file; size 0: they are missing there, too.
        first_offset, next_offset: the offsets that are empty in the copy, the second exclusive; both the same: none.
        reason: what was wrong.
        evidence: where the bytes are kept, relative to the copy; "" if there are none.
    """

    topic: str
    partition: int
    file: str
    position: int
    size: int
    first_offset: int
    next_offset: int
    reason: str
    evidence: str = ""


@dataclass(slots=True)
class PartitionCopy:
    """The result for one partition.

    Attributes:
        place: where it is now.
        state: its state; None: the copy has none, and neither reads nor writes it (see `reason`).
        reason: why it has none.
        batches, records, bytes: what was copied.
        losses: what was not.
    """

    place: PartitionPath
    state: PartitionState | None = None
    reason: str = ""
    batches: int = 0
    records: int = 0
    bytes: int = 0
    losses: list[Loss] = field(default_factory=list)


class DamagedPartition(NamedTuple):
    """A partition of the damaged store.

    Attributes:
        place: where it is.
        slots: what its state file says.
        bases: the segments that are there.
        uncertain: whether its end is not known for certain: whole batches beyond it then belong to it.
        needs_decisions: whether its state does not say which decisions it has.
    """

    place: PartitionPath
    slots: Slots
    bases: Sequence[int]
    uncertain: bool
    needs_decisions: bool

    @classmethod
    def inspect(cls, place: PartitionPath, config: TopicConfig) -> DamagedPartition | None:
        """Reads what there is; None if there is nothing to copy. OSError, StoreVersionError."""
        slots, bases = read_slots(place.state_path), list_segments(place.folder)
        if slots.problem:
            raise StoreVersionError(slots.problem)
        state = slots.state
        if state is None:
            if not bases or (slots.size < 0 and place.owner() not in ("", place.topic_id)):
                return None  # nothing was written; or it is what an earlier topic of that name left
            return cls(place, slots, bases, True, True)
        if state.flags & Flags.DEAD:
            return None
        # If the state is older than the log, it does not say which decisions the log has.
        old = bool(slots.torn and not slots.explained and first_batch(place.folder, state)) or bool(
            reason_to_keep(place, state, config)
        )
        # An intent describes bytes beyond the end. It is dropped: its decision is applied to the copy.
        restarted = state.boot != state_file.this_boot() and state.intent != Intent.APPLY
        bases = live_segments(place.folder, state)
        return cls(place, slots, bases, restarted or old, old)


class PartitionRepairer:
    """Copies one partition; `run` does it. Not thread-safe."""

    def __init__(
        self,
        source: DamagedPartition,
        target: PartitionPath,
        config: TopicConfig,
        roots: tuple[str, str],
        progress: Callable[[int], None],
        clock: Clock,
        check_records: RecordCheck | None = None,
    ) -> None:
        """Prepares it.

        Args:
            source: the damaged partition.
            target: its new place; nothing is there yet.
            config: the topic's configs.
            roots: the folders of the damaged store and of the copy.
            progress: called with the bytes that were read since the last call.
            clock: what time it is.
            check_records: what else must hold for its records.
        """
        self._source, self._state = source, source.slots.state
        self._config = config
        self._roots = roots
        self._progress = progress
        self._check_records = check_records
        self._finder = Finder(roots[0], source.place.topic, source.place.partition)
        self._copy = PartitionCopy(target)
        self._epochs = Epochs(self._state)
        self._log = LogCopy(
            source.place.folder,
            target.folder,
            target.topic_id,
            config,
            clock,
            producers_seen=self._state is not None and bool(self._state.flags & Flags.PRODUCERS),
        )

    def run(self, applied: int, least_end: int = 0) -> PartitionCopy:
        """Creates the copy, durably, except for its state file, which the caller writes.

        Args:
            applied: the last decision whose records it has, if the state does not say.
            least_end: the log must end there or beyond, so that no offset is used twice.
        """
        state = self._state or PartitionState(log_start=min(self._source.bases, default=0), applied=applied)
        self._log.offset = state.log_start
        walker = SegmentScanner(self._config.max_batch_bytes)
        for base, until, position in self._spans():
            if not self._log.is_begun and base < self._log.offset:
                self._log.offset = base  # the log starts inside of this segment
            if not self._is_next(base):
                break
            missing = segment_path(self._source.place.folder, self._log.offset, LOG)
            self._lose_up_to(base, missing, "segments are missing")
            self._copy_segment(walker, base, until, position)
        end = max(self._log.offset, least_end)
        if self._state is not None:
            restarted = self._state.boot != state_file.this_boot()
            end = max(end, state.next_offset, state.reserve if restarted else 0)
        active = segment_path(self._source.place.folder, state.active_base, LOG)
        self._lose_up_to(end, active, "the log's end is missing")
        self._copy.state = self._log.finish(state)
        self._copy.batches, self._copy.bytes = self._log.batches, self._log.bytes
        return self._copy

    def _spans(self) -> Iterator[tuple[int, int | None, int | None]]:
        """Each segment that counts: base offset, the offset that it must reach, and its size; None: not known."""
        state, bases = self._state, list(self._source.bases)
        if state is None:
            yield from ((base, until, None) for base, until in zip(bases, [*bases[1:], None], strict=False))
            return
        inactive = [base for base in bases if base < state.active_base]
        for base, until in zip(inactive, [*inactive[1:], state.active_base], strict=False):
            if until is not None and until > state.log_start:
                yield base, until, None
        if state.active_base not in bases:
            return
        if not self._source.uncertain:
            yield state.active_base, state.next_offset, state.position
        else:
            yield from ((base, None, None) for base in bases if base >= state.active_base)

    def _is_next(self, base: int) -> bool:
        """Whether a segment belongs to the log: beyond an uncertain end only if it continues exactly there."""
        state = self._state
        return state is None or base <= state.active_base or base == self._log.offset

    # ---- copying

    def _copy_segment(self, walker: SegmentScanner, base: int, until: int | None, position: int | None) -> None:
        path = segment_path(self._source.place.folder, base, LOG)
        with files.open_read(path) as file:
            self._log.begin(base, file.modified())
            size = file.size() if position is None else min(position, file.size())
            for piece in walker.walk(file, size, base, until):
                if isinstance(piece, Intact):
                    self._keep(file, piece)
                    self._progress(len(piece.data))
                else:
                    self._lose(file, piece)
                    self._progress(piece.end - piece.position)

    def _keep(self, file: files.File, piece: Intact) -> None:
        data = bytearray(piece.data)
        first = piece.headers[0].position
        check = self._check_records
        bad = {found.first_offset: found.what for found in check(self._finder, file.path, piece)} if check else {}
        start, left_out = 0, list[BatchHeader]()
        for header in piece.headers:
            at = header.position - first
            if self._epochs.fault(header):
                data[at + LEADER_EPOCH_AT : at + MAGIC_AT] = self._epochs.last.to_bytes(4, "big", signed=True)
            reason = next((bad[o] for o in sorted(bad) if header.base_offset <= o < header.next_offset), "")
            reason = reason or marker_fault(header, data[at : at + header.size])
            if reason:
                self._log.write(data[start:at], [h for h in piece.headers if start <= h.position - first < at])
                start = at + header.size
                left_out.append(header)
                self._lose(file, Damaged(header.position, header.end, header.base_offset, header.next_offset, reason))
        self._copy.records += len(piece.columns["offset"]) - sum(h.count for h in left_out)
        self._log.write(data[start:], [h for h in piece.headers if h.position - first >= start])

    def _lose(self, file: files.File, piece: Damaged) -> None:
        size = piece.end - piece.position
        evidence = self._keep_evidence(file, piece) if size else ""
        self._note_loss(file.path, piece.position, size, piece.next_offset, piece.reason, evidence)

    def _lose_up_to(self, offset: int, path: str, reason: str) -> None:
        if offset > self._log.offset:
            self._note_loss(path, -1, 0, offset, reason, "")

    def _note_loss(self, path: str, position: int, size: int, next_offset: int, reason: str, evidence: str) -> None:
        place = self._copy.place
        self._copy.losses.append(Loss(
            place.topic, place.partition, os.path.relpath(path, self._roots[0]), position, size,
            self._log.offset, next_offset, reason, evidence,
        ))  # fmt: skip
        self._log.fill(next_offset)

    def _keep_evidence(self, file: files.File, piece: Damaged) -> str:
        """Copies bytes that are left out; what cannot be read is zeros. Returns where, relative to the copy."""
        place = self._copy.place
        base = os.path.basename(file.path).partition(".")[0]
        name = CUT_FOLDER
        for part in (f"{place.topic}-{place.partition}", f"{base}-{piece.position}.bytes"):
            files.make_folder(f"{self._roots[1]}/{name}")
            name = f"{name}/{part}"
        with files.create(f"{self._roots[1]}/{name}") as kept:
            for at in range(piece.position, piece.end, _EVIDENCE_SIZE):
                size = min(_EVIDENCE_SIZE, piece.end - at)
                try:
                    data = file.pread(size, at)
                except OSError:
                    data = bytes(size)
                kept.pwrite(data, at - piece.position)
        return name
