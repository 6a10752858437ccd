"""Verifies one partition: its state file, its segments, their indexes, and the other files there.

Takes no lock and changes nothing. The state is read first and only bytes below its end are checked, which no writer
changes any more. Segments may be deleted meanwhile (retention, a truncation): a segment with findings is checked again
if the list of segments has changed since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from pyspark_log.config import LONG_MAX, TopicConfig
from pyspark_log.errors import SideFileError
from pyspark_log.storage.catalog import PartitionPath
from pyspark_log.storage.catalog.kafka_files import read_epochs
from pyspark_log.storage.fs import files
from pyspark_log.storage.log import cleaner_checkpoint
from pyspark_log.storage.log.leader_epochs import FILE_NAME as LEADER_EPOCHS
from pyspark_log.storage.log.recovery import live_segments
from pyspark_log.storage.log.state import EMPTY, Flags, PartitionState, read_slots
from pyspark_log.storage.maintenance.verify.findings import REPAIR, Finder, Finding, Severity
from pyspark_log.storage.maintenance.verify.log.epochs import ADVICE, epoch_findings
from pyspark_log.storage.maintenance.verify.log.partition_folder import folder_findings
from pyspark_log.storage.maintenance.verify.log.producers import ProducerCheck
from pyspark_log.storage.maintenance.verify.log.segment import (
    WHOLE,
    RecordCheck,
    SegmentCheck,
    SegmentReport,
    Span,
    Totals,
)
from pyspark_log.storage.maintenance.verify.log.segment_cache import cache_findings
from pyspark_log.storage.maintenance.verify.log.state import slot_findings
from pyspark_log.storage.segment.file_names import LOG, list_segments, segment_path
from pyspark_log.types import TopicPartition

# How often the segments with findings are checked again while their list changes.
_TRIES = 4


@dataclass(slots=True)
class PartitionReport:
    """What was found in one partition.

    Attributes:
        place: which one; in an object store it has no paths.
        state: its state; None if it has no valid one, or is in an object store.
        findings: in the order of offsets.
        totals: what was checked.
    """

    place: PartitionPath | TopicPartition
    state: PartitionState | None
    findings: list[Finding] = field(default_factory=list)
    totals: Totals = field(default_factory=Totals)


class PartitionCheck:
    """The check of one partition; `run` does it. Not thread-safe."""

    def __init__(
        self,
        place: PartitionPath,
        config: TopicConfig,
        root: str,
        progress: Callable[[int], None],
        check_records: RecordCheck | None = None,
    ) -> None:
        """Prepares it.

        Args:
            place: which partition.
            config: its topic's configs.
            root: the store's folder, to which findings name files.
            progress: called with the number of bytes that were checked since the last call.
            check_records: what else must hold for its records.
        """
        self._place = place
        self._config = config
        self._finding = Finder(root, place.topic, place.partition)
        self._check = SegmentCheck(place, config, self._finding, progress, check_records)
        self._state: PartitionState | None = None
        self._reports: dict[int, SegmentReport] = {}  # by the base offset of the segment

    def run(self) -> PartitionReport:
        """Checks everything. OSError, if a folder cannot be read."""
        slots = read_slots(self._place.state_path)
        bases = list_segments(self._place.folder)
        if slots.size < 0 and bases:
            slots = read_slots(self._place.state_path)  # made meanwhile, with the first segment
        elif slots.size < 0:
            return PartitionReport(self._place, EMPTY)
        state = self._state = slots.state
        report = PartitionReport(self._place, state)
        if state is not None and state.flags & Flags.DEAD:
            report.findings.append(self._finding.note(self._place.state_path, "the topic was deleted", ""))
            return report
        report.findings += slot_findings(self._place, self._finding, slots, bases)
        in_log = list(self._check_log(report.totals))
        report.findings += in_log
        report.findings += self._check_cache(state)
        report.findings += self._check_epochs()
        damaged = [finding.first_offset for finding in in_log if finding.severity is Severity.DAMAGE]
        report.findings += self._check_producers(min(damaged, default=LONG_MAX))
        report.findings += folder_findings(self._place, self._config, self._finding)
        return report

    # ---- the log

    def _check_log(self, totals: Totals) -> Iterator[Finding]:
        spans = self._spans()
        reports = self._reports = {span.base_offset: self._check.run(span, self._state, totals) for span in spans}
        faulty = {base for base, report in reports.items() if report.findings}
        for _ in range(_TRIES):
            if not (faulty or any(self._missing_segments(spans))) or not self._changed():
                break
            # A segment deleted meanwhile was not damaged, and an active one may have become inactive.
            spans = self._spans()
            reports |= {span.base_offset: SegmentReport(span) for span in spans if span.base_offset not in reports}
            reports |= {
                span.base_offset: self._check.run(span, self._state, Totals())
                for span in spans
                if span.base_offset in faulty
            }
            faulty = {span.base_offset for span in spans if reports[span.base_offset].findings}
        yield from self._missing_segments(spans)
        epoch = -1
        for span in spans:
            yield from reports[span.base_offset].findings
            runs = reports[span.base_offset].epochs
            if runs and runs[0].epoch < epoch:
                path = segment_path(self._place.folder, span.base_offset, LOG)
                what = f"leader epoch {runs[0].epoch} after {epoch} of the segment before it"
                yield self._finding.damage(path, what, WHOLE, -1, runs[0].first_offset, runs[0].next_offset)
            epoch = runs[-1].epoch if runs else epoch

    def _changed(self) -> bool:
        """Whether the list of segments is another one now; then that is the state from now on."""
        state = read_slots(self._place.state_path).state
        before, self._state = self._state, state
        if state is None or before is None:
            return state is not before
        if state.flags & Flags.DEAD:
            self._state = EMPTY  # All of it is about to be deleted.
            return True
        return (state.generation, state.log_start, state.swaps) != (before.generation, before.log_start, before.swaps)

    def _spans(self) -> list[Span]:
        """The segments that count, oldest first."""
        state, bases = self._state, list_segments(self._place.folder)
        if state is None:
            return [Span(base, until, None) for base, until in zip(bases, [*bases[1:], None], strict=False)]
        counted = live_segments(self._place.folder, state)
        bases = [base for base in counted if base < state.active_base]
        spans = [Span(b, n, None) for b, n in zip(bases, [*bases[1:], state.active_base], strict=False)]
        spans = [span for span in spans if span.until is None or span.until > state.log_start]
        if state.next_offset > state.active_base or state.position:
            spans.append(Span(state.active_base, state.next_offset, state.position))
        return spans

    def _missing_segments(self, spans: list[Span]) -> Iterator[Finding]:
        state = self._state
        if state is None or state.log_start == state.next_offset:
            return
        first = spans[0].base_offset if spans else state.next_offset
        if first > state.log_start:
            path = segment_path(self._place.folder, state.log_start, LOG)
            what = f"the log starts at offset {state.log_start}, but its first segment at {first}: segments are missing"
            yield self._finding.damage(path, what, f"bring the files back; or {REPAIR}", -1, state.log_start, first)

    # ---- the files beside the segments

    def _check_cache(self, before: PartitionState | None) -> Iterator[Finding]:
        now = read_slots(self._place.state_path).state
        if before is None or now is None or now.incarnation != before.incarnation:
            return  # The log was truncated meanwhile, and then it is of other records.
        largest = {
            (span.base_offset, span.until): report.largest
            for report in self._reports.values()
            if (span := report.span).position is None and span.until is not None and report.largest is not None
        }
        yield from cache_findings(self._place, self._finding, largest)

    def _check_epochs(self) -> list[Finding]:
        state, path = self._state, f"{self._place.folder}/{LEADER_EPOCHS}"
        if state is None or all(report.largest is None for report in self._reports.values()):
            return []
        runs = [run for base in sorted(self._reports) for run in self._reports[base].epochs]
        entries, unreadable = [], list[Finding]()
        try:
            entries = read_epochs(path)
        except SideFileError as error:
            unreadable = [self._finding.index(path, str(error), ADVICE)]
        now = read_slots(self._place.state_path).state
        if now is None or _changes(now) != _changes(state):
            return []  # The state moved while it was compared.
        return unreadable or list(epoch_findings(path, self._finding, entries, now, runs))

    def _check_producers(self, damaged: int) -> list[Finding]:
        """`damaged`: the first offset at which batches are damaged."""
        numbered = any(report.numbered for report in self._reports.values())
        for _ in range(_TRIES):
            before = read_slots(self._place.state_path).state
            if before is None or before.flags & Flags.DEAD or not (numbered or before.flags & Flags.PRODUCERS):
                break
            found, compacted_to = [], cleaner_checkpoint.read(self._place).touched_to
            if compacted_to == cleaner_checkpoint.UNKNOWN:
                # Each batch that a cleaner has changed lacks records.
                spans = (report.span for report in self._reports.values() if report.lacks_records)
                compacted_to = max((span.until or 0 for span in spans if span.position is None), default=0)
                if files.exists(self._place.cleaner_path):
                    what = (
                        "it is torn, or of another version: what snapshots and indexes of aborted transactions say was "
                        "not compared with the log up to the last segment that lacks records"
                    )
                    advice = "none: the next compaction rewrites it"
                    found = [self._finding.note(self._place.cleaner_path, what, advice)]
            try:
                found += ProducerCheck(
                    self._place.folder,
                    self._finding,
                    before,
                    damaged,
                    self._config.producer_id_expiration_ms,
                    compacted_to,
                ).run()
            except FileNotFoundError:
                continue
            now = read_slots(self._place.state_path).state
            if now is not None and _changes(now) == _changes(before):
                return found
        return []


def _changes(state: PartitionState) -> tuple[int, int, int, bool]:
    """What is another one when segments, log start or epochs are, or the topic was deleted."""
    return state.generation, state.log_start, state.incarnation, bool(state.flags & Flags.DEAD)
