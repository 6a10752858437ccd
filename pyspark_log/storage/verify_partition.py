"""Looks for damage in one partition: its state file, its segments, their indexes, and what else lies there.

Takes no lock and changes nothing. The state is read first and only what lies below its end is looked at, which no
writer changes any more. Segments can go meanwhile (retention, a truncation): what was found in one is looked at
again if the list of segments has changed since.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_log.storage import cleaner_state, files
from pyspark_log.storage.batch import MAGIC, BatchHeader
from pyspark_log.storage.batch_proof import batch_at
from pyspark_log.storage.checkpoint_files import read_epochs, read_partition_metadata
from pyspark_log.storage.closed_check import closed_faults
from pyspark_log.storage.config import LONG_MAX, TopicConfig
from pyspark_log.storage.epoch_check import EpochFault, EpochRun, add_run, epoch_faults
from pyspark_log.storage.errors import SideFileError
from pyspark_log.storage.findings import Finding, Severity
from pyspark_log.storage.index_check import IndexCheck
from pyspark_log.storage.leader_epochs import FILE_NAME as LEADER_EPOCHS
from pyspark_log.storage.place import PartitionPlace
from pyspark_log.storage.producer_check import ProducerFault, producer_faults
from pyspark_log.storage.segment import LOG, counted_segments, list_segments, segment_path
from pyspark_log.storage.segment_walk import SegmentWalker, Sound, Unsound
from pyspark_log.storage.state_check import Slots, read_slots
from pyspark_log.storage.state_file import EMPTY, FILE_SIZE, Flags, Intent, PartitionState, this_boot
from pyspark_log.storage.types import NO_TIMESTAMP

#: Looks at decoded records; gives the offset of each that its topic cannot have, and why.
RecordCheck = Callable[[Mapping[str, pa.Array]], Iterable[tuple[int, str]]]

# Of one segment no more findings than this are told one by one.
_MOST_FINDINGS = 1000
# How often the segments with findings are looked at anew while their list changes.
_TRIES = 4
# Below this many records a batch's largest time is found faster without Arrow.
_FEW = 32
_REPAIR: Final = "make a mended copy of the store: pylog repair"
_KNOWN = re.compile(
    r"\d{20}\.(log|index|timeindex|snapshot|txnindex)(\.deleted|\.cleaned|\.swap)?"
    r"|partition\.metadata|leader-epoch-checkpoint|[0-9a-f]{16}\.tmp"
)


@dataclass(slots=True)
class Totals:
    """How much was looked at."""

    segments: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0

    def add(self, other: Totals) -> None:
        """Adds what another look covered."""
        self.segments += other.segments
        self.batches += other.batches
        self.records += other.records
        self.bytes += other.bytes


@dataclass(slots=True)
class PartitionReport:
    """What was found in one partition.

    Attributes:
        place: which one.
        state: its state; None if it has no valid one.
        findings: in the order of offsets.
        totals: what was looked at.
    """

    place: PartitionPlace
    state: PartitionState | None
    findings: list[Finding] = field(default_factory=list)
    totals: Totals = field(default_factory=Totals)


class _Span(NamedTuple):
    """A segment that counts.

    Attributes:
        base_offset: its name.
        until: the offset that it must reach; None: not known.
        position: for the active one, how many of its bytes count; None: all.
    """

    base_offset: int
    until: int | None
    position: int | None


class PartitionCheck:
    """The check of one partition; `run` does it. Not for several threads."""

    def __init__(
        self,
        place: PartitionPlace,
        config: TopicConfig,
        root: str,
        progress: Callable[[int], None],
        check_records: RecordCheck | None = None,
    ) -> None:
        """Prepares it.

        Args:
            place: which partition.
            config: its topic's settings.
            root: the store's folder, to which findings name files.
            progress: called with the number of bytes that were looked at since the last call.
            check_records: what else must hold for its records.
        """
        self._place = place
        self._interval = config.index_interval_bytes
        self._expiration = config.producer_id_expiration_ms
        self._root = root
        self._progress = progress
        self._check_records = check_records
        self._walker = SegmentWalker(config.max_batch_bytes)
        self._state: PartitionState | None = None
        # Of closed segments, by base offset and that of the next one: the largest time of their batches.
        self._largest: dict[tuple[int, int], int] = {}
        # Of each segment, by its base offset.
        self._epoch_runs: dict[int, list[EpochRun]] = {}
        self._numbered = False  # whether a batch has a producer id

    def run(self) -> PartitionReport:
        """Looks at everything. OSError, if a folder cannot be read."""
        slots = read_slots(self._place.state_path)
        bases = list_segments(self._place.folder)
        if slots.size < 0 and bases:
            slots = read_slots(self._place.state_path)  # made meanwhile, with the first segment
        elif slots.size < 0:
            return PartitionReport(self._place, EMPTY)
        state = self._state = slots.state
        report = PartitionReport(self._place, state)
        if state is not None and state.flags & Flags.DEAD:
            report.findings.append(self._finding(Severity.NOTE, self._place.state_path, what="the topic was deleted"))
            return report
        report.findings += self._check_slots(slots, bases)
        in_log = list(self._check_log(report.totals))
        report.findings += in_log
        report.findings += self._check_closed(state)
        report.findings += self._check_epochs()
        report.findings += self._check_producers(
            [finding.first_offset for finding in in_log if finding.severity is Severity.DAMAGE]
        )
        report.findings += self._check_folder()
        return report

    # ---- findings

    def _finding(
        self, severity: Severity, path: str, position: int = -1, first_offset: int = -1, next_offset: int = -1,
        *, what: str, advice: str = "",
    ) -> Finding:
        return Finding(
            severity, self._place.topic, self._place.partition, os.path.relpath(path, self._root), position,
            first_offset, next_offset, what, advice,
        )  # fmt: skip

    # ---- the state

    def _check_slots(self, slots: Slots, bases: list[int]) -> Iterator[Finding]:
        path, state = self._place.state_path, slots.state
        if slots.problem:
            yield self._finding(
                Severity.DAMAGE, path, what=slots.problem, advice="use the version of pyspark-log that wrote it"
            )
        if state is None:
            what = "the state file is missing" if slots.size < 0 else "no slot of the state file is valid"
            what = slots.contradiction or what
            yield self._finding(
                Severity.DAMAGE, path, first_offset=bases[0] if bases else -1,
                what=f"{what}: nobody knows where the log ends", advice=_REPAIR,
            )  # fmt: skip
            return
        if slots.size < FILE_SIZE:
            yield self._finding(
                Severity.DAMAGE, path, slots.size, what=f"the state file has {slots.size} bytes of {FILE_SIZE}",
                advice=_REPAIR,
            )  # fmt: skip
        if slots.torn:
            yield self._torn(slots, state)
        if state.intent == Intent.APPLY:
            yield self._finding(
                Severity.NOTE, path, what=f"decision {state.intent_decision} was being applied",
                advice="none: the next writer finishes it, or drops and repeats it",
            )  # fmt: skip
        if state.swaps:
            yield self._finding(
                Severity.NOTE, path, first_offset=state.intent_base, next_offset=state.intent_next,
                what="segments were being replaced by a cleaned one", advice="none: the next writer finishes it",
            )  # fmt: skip
        if state.flags & (Flags.CUTTING | Flags.SUSPECT):
            names = "being cut" if state.flags & Flags.CUTTING else "not synced for certain"
            yield self._finding(
                Severity.NOTE, path, what=f"the active segment is {names}",
                advice="none: the next writer puts it right",
            )  # fmt: skip

    def _torn(self, slots: Slots, state: PartitionState) -> Finding:
        numbers = ", ".join(map(str, slots.torn))
        behind = acknowledged_behind(self._place.folder, slots)
        if behind is None:
            newest = ", which may have been the newest" if slots.torn_newest else ""
            return self._finding(
                Severity.NOTE, self._place.state_path, what=f"slot {numbers} is torn{newest}; another one counts",
                advice="none: it is written over",
            )
        return self._finding(
            Severity.DAMAGE, self._place.state_path, first_offset=behind.base_offset,
            what=f"slot {numbers} is torn, and whole records stand behind the end {state.next_offset} that the others "
            "know: they may have been acknowledged, and the next writer would remove them",
            advice=f"write nothing to this partition; {_REPAIR}",
        )  # fmt: skip

    # ---- the log

    def _check_log(self, totals: Totals) -> Iterator[Finding]:
        spans = self._spans()
        found = {span.base_offset: self._some(span, totals) for span in spans}
        faulty = {base for base, findings in found.items() if findings}
        for _ in range(_TRIES):
            if not (faulty or any(self._missing_segments(spans))) or not self._changed():
                break
            # A segment that went meanwhile was not damaged, and one that was active may have been closed.
            spans = self._spans()
            found |= {span.base_offset: [] for span in spans if span.base_offset not in found}
            found |= {
                span.base_offset: self._some(span, Totals())
                for span in spans
                if span.base_offset in faulty
            }
            faulty = {span.base_offset for span in spans if found[span.base_offset]}
        yield from self._missing_segments(spans)
        epoch = -1
        for span in spans:
            yield from found[span.base_offset]
            runs = self._epoch_runs.get(span.base_offset, [])
            if runs and runs[0].epoch < epoch:
                path = segment_path(self._place.folder, span.base_offset, LOG)
                yield self._finding(
                    Severity.DAMAGE, path, first_offset=runs[0].first_offset, next_offset=runs[0].next_offset,
                    what=f"leader epoch {runs[0].epoch} behind {epoch} of the segment before it",
                    advice=f"its records are whole; {_REPAIR}",
                )  # fmt: skip
            epoch = runs[-1].epoch if runs else epoch

    def _changed(self) -> bool:
        """Whether the list of segments is another one now; then that is the state from now on."""
        state = read_slots(self._place.state_path).state
        before, self._state = self._state, state
        if state is None or before is None:
            return state is not before
        if state.flags & Flags.DEAD:
            # All of it goes.
            self._state = EMPTY
            return True
        return (state.generation, state.log_start, state.swaps) != (before.generation, before.log_start, before.swaps)

    def _spans(self) -> list[_Span]:
        """The segments that count, oldest first."""
        state, bases = self._state, list_segments(self._place.folder)
        if state is None:
            return [_Span(base, until, None) for base, until in zip(bases, [*bases[1:], None], strict=False)]
        counted = counted_segments(self._place.folder, state)
        bases = [base for base in counted if base < state.active_base]
        spans = [_Span(b, n, None) for b, n in zip(bases, [*bases[1:], state.active_base], strict=False)]
        spans = [span for span in spans if span.until is None or span.until > state.log_start]
        if state.next_offset > state.active_base or state.position:
            spans.append(_Span(state.active_base, state.next_offset, state.position))
        return spans

    def _missing_segments(self, spans: list[_Span]) -> Iterator[Finding]:
        state = self._state
        if state is None or state.log_start == state.next_offset:
            return
        first = spans[0].base_offset if spans else state.next_offset
        if first > state.log_start:
            yield self._finding(
                Severity.DAMAGE, segment_path(self._place.folder, state.log_start, LOG),
                first_offset=state.log_start, next_offset=first,
                what=f"the log starts at offset {state.log_start}, but its first segment at {first}: "
                "segments are missing",
                advice=f"bring the files back; or {_REPAIR}",
            )  # fmt: skip

    def _some(self, span: _Span, totals: Totals) -> list[Finding]:
        """What is wrong in a segment; not more than anybody reads."""
        findings = self._check_segment(span, totals)
        found = list(islice(findings, _MOST_FINDINGS))
        left = sum(1 for _ in findings)
        if left:
            last = found[-1]
            found.append(replace(last, position=-1, what=f"and {left} findings more in this file", advice=last.advice))
        return found

    def _check_segment(self, span: _Span, totals: Totals) -> Iterator[Finding]:
        path = segment_path(self._place.folder, span.base_offset, LOG)
        try:
            file = files.open_read(path)
        except FileNotFoundError:
            yield self._finding(
                Severity.DAMAGE, path, first_offset=span.base_offset, next_offset=_or_unknown(span.until),
                what="the segment is missing", advice=f"bring the file back; or {_REPAIR}",
            )  # fmt: skip
            return
        except OSError as error:
            yield self._finding(
                Severity.DAMAGE, path, first_offset=span.base_offset, next_offset=_or_unknown(span.until),
                what=f"cannot be read: {error.strerror}", advice="may this user read it? Is the disk well?",
            )  # fmt: skip
            return
        totals.segments += 1
        end = None
        if span.position is not None or span.until is None:
            end = LONG_MAX if span.until is None else span.until
        epochs, runs = Epochs(self._state), list[EpochRun]()
        self._epoch_runs[span.base_offset] = runs
        damaged, largest = False, NO_TIMESTAMP
        with file:
            held = file.size()
            size = held if span.position is None else min(span.position, held)
            indexes = IndexCheck(self._place.folder, span.base_offset, self._interval, size, end)
            for piece in self._walker.walk(file, size, span.base_offset, span.until):
                if isinstance(piece, Unsound):
                    damaged = True
                    yield self._unsound(path, span, piece)
                    continue
                for header in piece.headers:
                    indexes.take(header)
                    self._numbered |= header.producer_id >= 0
                    largest = max(largest, header.max_timestamp)
                    if what := epochs.fault(header):
                        yield self._batch_finding(path, header, what)
                    else:
                        add_run(runs, header.leader_epoch, header.base_offset, header.next_offset)
                yield from self._check_rows(path, piece)
                totals.batches += len(piece.headers)
                totals.records += len(piece.columns["offset"])
                totals.bytes += len(piece.data)
                self._progress(len(piece.data))
            if not damaged and span.position is not None and held < span.position:
                damaged = True
                yield self._finding(
                    Severity.DAMAGE, path, held, what=f"it has {held} bytes, the state says {span.position}",
                    advice=_REPAIR,
                )  # fmt: skip
        if span.position is None and span.until is not None:
            self._largest[span.base_offset, span.until] = largest
        if not damaged and not self._is_coming(span):
            # Else entries for what is damaged would be told as faults of their own.
            for fault in indexes.faults():
                yield self._finding(
                    Severity.INDEX, fault.path, fault.position, span.base_offset, _or_unknown(span.until),
                    what=fault.what, advice=_index_advice(span),
                )  # fmt: skip

    def _is_coming(self, span: _Span) -> bool:
        """Whether it is a cleaned segment that is being put in place: its indexes come last."""
        state = self._state
        return state is not None and state.swaps and span.base_offset == state.intent_base

    def _unsound(self, path: str, span: _Span, piece: Unsound) -> Finding:
        self._progress(piece.end - piece.position)
        if span.until is None and piece.first_offset == piece.next_offset:
            return self._finding(
                Severity.NOTE, path, piece.position, piece.first_offset,
                what=f"the last {piece.end - piece.position} bytes are no whole batch: {piece.reason}",
            )
        if span.position is None and piece.first_offset == piece.next_offset == span.until:
            # Late bytes of a writer that had lost its lock, on a shared file system.
            return self._finding(
                Severity.NOTE, path, piece.position, piece.first_offset,
                what=f"{piece.end - piece.position} bytes behind the segment's last record, which nobody reads",
                advice="a Kafka broker would end the log here; pylog repair makes a copy without them",
            )  # fmt: skip
        advice = f"bring the file back from a copy; or {_REPAIR}, which leaves these offsets empty"
        if span.position is not None and self._is_unsettled(piece.position):
            advice = "not synced before the machine went down: the next writer of the partition puts it right"
        advice = piece.advice or advice
        return self._finding(
            Severity.DAMAGE, path, piece.position, piece.first_offset, piece.next_offset,
            what=f"{piece.reason} ({piece.end - piece.position} bytes)" if piece.end > piece.position else piece.reason,
            advice=advice,
        )  # fmt: skip

    def _is_unsettled(self, position: int) -> bool:
        """Whether a byte of the active segment was not synced before the machine went down."""
        return self._state is not None and self._state.boot != this_boot() and position >= self._state.synced

    def _batch_finding(self, path: str, header: BatchHeader, what: str) -> Finding:
        return self._finding(
            Severity.DAMAGE, path, header.position, header.base_offset, header.next_offset, what=what,
            advice=f"its records are whole; {_REPAIR}",
        )  # fmt: skip

    def _check_rows(self, path: str, piece: Sound) -> Iterator[Finding]:
        times, row = _Times(piece.columns["timestamp"]), 0
        for header in piece.headers:
            if header.magic < MAGIC:
                break  # Kafka's older formats do not tell how many records a batch has
            if header.is_control or not header.count:
                continue
            largest = times.largest(row, header.count)
            row += header.count
            if largest != header.max_timestamp:
                yield self._finding(
                    Severity.INDEX, path, header.position, header.base_offset, header.next_offset,
                    what=f"the largest time of its records is {largest} ms, its header says {header.max_timestamp}",
                    advice="look-ups by time can miss these records; append them anew if that matters",
                )  # fmt: skip
        if self._check_records is not None:
            for offset, what in self._check_records(piece.columns):
                header = next(header for header in piece.headers if offset < header.next_offset)
                yield self._finding(
                    Severity.DAMAGE, path, header.position, offset, offset + 1, what=what, advice=_REPAIR
                )

    def _check_closed(self, before: PartitionState | None) -> Iterator[Finding]:
        now = read_slots(self._place.state_path).state
        if before is None or now is None or now.leader_epoch != before.leader_epoch:
            return  # The log was truncated meanwhile, and then it is of other records.
        for position, what in closed_faults(self._place, self._largest):
            yield self._finding(
                Severity.INDEX, self._place.segments_path, position, what=what,
                advice="remove the file; pylog clean makes it anew; till then look-ups by time can be wrong",
            )  # fmt: skip

    # ---- the files beside the segments

    def _check_epochs(self) -> Iterator[Finding]:
        state, path = self._state, f"{self._place.folder}/{LEADER_EPOCHS}"
        if state is None or not self._epoch_runs:
            return
        runs = [run for base in sorted(self._epoch_runs) for run in self._epoch_runs[base]]
        entries, unreadable = [], ""
        try:
            entries = read_epochs(path)
        except SideFileError as error:
            unreadable = str(error)
        now = read_slots(self._place.state_path).state
        if now is None or _changes(now) != _changes(state):
            return  # What was compared is not of one time.
        faults = [EpochFault(Severity.INDEX, -1, unreadable)] if unreadable else epoch_faults(path, entries, now, runs)
        for fault in faults:
            advice = f"the next leader epoch replaces it; or {_REPAIR}; only Kafka's tools go by it"
            if fault.severity is Severity.NOTE:
                advice = "none: a copy of the log would fetch more anew than it must"
            yield self._finding(
                fault.severity, path, first_offset=fault.first_offset, what=fault.what, advice=advice
            )

    def _check_producers(self, damaged: Iterable[int]) -> Iterator[Finding]:
        """`damaged`: the offsets at which batches are damaged."""
        for _ in range(_TRIES):
            before = read_slots(self._place.state_path).state
            if before is None or before.flags & Flags.DEAD:
                return
            if not (self._numbered or before.flags & Flags.PRODUCERS):
                return
            until = min([before.next_offset, *damaged])
            touched_to = cleaner_state.read(self._place).touched_to
            try:
                faults = producer_faults(self._place.folder, before, until, self._expiration, touched_to)
            except FileNotFoundError:
                faults = []
            now = read_slots(self._place.state_path).state
            if now is not None and _changes(now) == _changes(before):
                for fault in faults:
                    yield self._finding(
                        fault.severity, fault.path, first_offset=fault.first_offset, next_offset=fault.next_offset,
                        what=fault.what, advice=_producer_advice(fault),
                    )  # fmt: skip
                return

    # ---- the folder

    def _check_folder(self) -> Iterator[Finding]:
        try:
            names = sorted(os.listdir(self._place.folder))
        except FileNotFoundError:
            return  # nothing was written yet, or its segments are missing, which was told
        yield from self._check_metadata(names)
        logs = {name[:20] for name in names if name.endswith(LOG)}
        for name in names:
            path = f"{self._place.folder}/{name}"
            if not _KNOWN.fullmatch(name):
                yield self._finding(
                    Severity.NOTE, path, what="not a file of the engine", advice="take it out of the store's folder"
                )
            elif name.endswith((".index", ".timeindex")) and name[:20] not in logs:
                yield self._finding(Severity.NOTE, path, what="an index without a segment", advice="none")
        yield from self._leftovers()

    def _check_metadata(self, names: list[str]) -> Iterator[Finding]:
        path = f"{self._place.folder}/partition.metadata"
        try:
            topic_id = read_partition_metadata(path)
        except SideFileError as error:
            yield self._finding(Severity.NOTE, path, what=str(error), advice="none: only Kafka reads it")
            return
        if topic_id is None and any(name.endswith(LOG) for name in names):
            yield self._finding(Severity.NOTE, path, what="the file is missing", advice="none: only Kafka reads it")
        elif topic_id not in (None, self._place.topic_id):
            yield self._finding(
                Severity.DAMAGE, path,
                what=f"the folder is of topic id {topic_id}, the topic's is {self._place.topic_id}: files of an "
                "earlier topic of that name",
                advice="bring the right files back; or the right topics/*.json",
            )  # fmt: skip

    def _leftovers(self) -> Iterator[Finding]:
        """What stands behind the end. A writer that is at work puts it there too, so the state must stand still."""
        before = read_slots(self._place.state_path).state
        if before is None or before.flags & Flags.DEAD:
            return
        found = list(self._behind(before))
        if found and read_slots(self._place.state_path).state == before:
            yield from found

    def _behind(self, state: PartitionState) -> Iterator[Finding]:
        advice = "none: it means nothing, and the next writer removes it"
        for base in list_segments(self._place.folder):
            path = segment_path(self._place.folder, base, LOG)
            if base > state.active_base:
                yield self._finding(Severity.NOTE, path, what="a segment behind the log end", advice=advice)
            elif base == state.active_base and (left := _size(path) - state.position) > 0:
                yield self._finding(
                    Severity.NOTE, path, state.position, what=f"{left} bytes behind the log end", advice=advice
                )


class Epochs:
    """Leader epochs, batch by batch: they do not go down, and none is larger than the partition's.

    Attributes:
        last: that of the last batch that had a right one; -1: none yet.
    """

    def __init__(self, state: PartitionState | None) -> None:
        self._limit = None if state is None else state.leader_epoch
        self.last = -1

    def fault(self, header: BatchHeader) -> str:
        """What is wrong with a batch's epoch; "" if nothing is."""
        if self._limit is not None and header.leader_epoch > self._limit:
            return f"leader epoch {header.leader_epoch}, but the partition is only at {self._limit}"
        if header.leader_epoch < self.last:
            return f"leader epoch {header.leader_epoch} behind {self.last}"
        self.last = header.leader_epoch
        return ""


def acknowledged_behind(folder: str, slots: Slots) -> BatchHeader | None:
    """The whole batch right behind the log end, if a torn slot may have been the one that counted it in."""
    state = slots.state
    if not slots.torn or state is None or state.intent == Intent.APPLY:
        return None
    for base, position in ((state.active_base, state.position), (state.next_offset, 0)):
        try:
            with files.open_read(segment_path(folder, base, LOG)) as file:
                found = batch_at(file, position, file.size())
        except FileNotFoundError:
            continue
        if found is not None and found.base_offset == state.next_offset:
            return found
    return None


class _Times:
    """A column of times, for their largest in a range. Most batches are small, and Arrow is slow for few values."""

    def __init__(self, column: pa.Array) -> None:
        self._column = column
        first = column.offset
        # The buffer may be longer than its values.
        self._view = memoryview(column.buffers()[1])[8 * first : 8 * (first + len(column))].cast("q")

    def largest(self, row: int, count: int) -> int:
        """The largest of `count` times from `row` on, in ms."""
        if count <= _FEW:
            return max(self._view[row : row + count]) // 1000
        largest: int = pc.max(self._column.slice(row, count)).value
        return largest // 1000


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except FileNotFoundError:
        return 0


def _changes(state: PartitionState) -> tuple[int, int, int, bool]:
    """What is another one when segments, log start or epochs are, or the topic was deleted."""
    return state.generation, state.log_start, state.leader_epoch, bool(state.flags & Flags.DEAD)


def _producer_advice(fault: ProducerFault) -> str:
    if fault.severity is Severity.INDEX:
        return f"the log takes its place, where it reaches back far enough; it goes with its segment, or by {_REPAIR}"
    return f"write nothing with producer ids to this partition; {_REPAIR}, which makes these files anew from the log"


def _or_unknown(offset: int | None) -> int:
    return -1 if offset is None else offset


def _index_advice(span: _Span) -> str:
    if span.position is not None:
        return "none: the next writer of the partition makes it right"
    return f"{_REPAIR}; until then reads take longer, and look-ups by time can be wrong"
