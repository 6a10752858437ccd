"""Verifies one partition: its state file, its segments, their indexes, and the other files there.

Takes no lock and changes nothing. The state is read first and only bytes below its end are checked, which no writer
changes any more. Segments may be deleted meanwhile (retention, a truncation): a segment with findings is checked again
if the list of segments has changed since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from pyspark_log.config import TopicConfig
from pyspark_log.errors import SideFileError
from pyspark_log.storage.catalog import PartitionPath, read_epochs
from pyspark_log.storage.fs import files
from pyspark_log.storage.log import EMPTY, Flags, PartitionState, cleaner_checkpoint, live_segments, read_slots
from pyspark_log.storage.log import FILE_NAME as LEADER_EPOCHS
from pyspark_log.storage.maintenance.verify.epochs import EpochFault, epoch_faults
from pyspark_log.storage.maintenance.verify.findings import REPAIR, Finder, Finding, Severity
from pyspark_log.storage.maintenance.verify.partition_folder import folder_findings
from pyspark_log.storage.maintenance.verify.producers import ProducerFault, producer_faults
from pyspark_log.storage.maintenance.verify.segment import RecordCheck, SegmentCheck, SegmentReport, Span, Totals
from pyspark_log.storage.maintenance.verify.segment_cache import closed_faults
from pyspark_log.storage.maintenance.verify.state import slot_findings
from pyspark_log.storage.segment import LOG, list_segments, segment_path

# How often the segments with findings are checked again while their list changes.
_TRIES = 4


@dataclass(slots=True)
class PartitionReport:
    """What was found in one partition.

    Attributes:
        place: which one.
        state: its state; None if it has no valid one.
        findings: in the order of offsets.
        totals: what was looked at.
    """

    place: PartitionPath
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
            config: its topic's settings.
            root: the store's folder, to which findings name files.
            progress: called with the number of bytes that were looked at since the last call.
            check_records: what else must hold for its records.
        """
        self._place = place
        self._config = config
        self._finding = Finder(place.topic, place.partition, root)
        self._check = SegmentCheck(place, config, self._finding, progress, check_records)
        self._state: PartitionState | None = None
        self._looks: dict[int, SegmentReport] = {}  # by the base offset of the segment

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
        report.findings += slot_findings(self._place, self._finding, slots, bases)
        in_log = list(self._check_log(report.totals))
        report.findings += in_log
        report.findings += self._check_closed(state)
        report.findings += self._check_epochs()
        report.findings += self._check_producers(
            [finding.first_offset for finding in in_log if finding.severity is Severity.DAMAGE]
        )
        report.findings += folder_findings(self._place, self._config, self._finding)
        return report

    # ---- the log

    def _check_log(self, totals: Totals) -> Iterator[Finding]:
        spans = self._spans()
        looks = self._looks = {span.base_offset: self._check.run(span, self._state, totals) for span in spans}
        faulty = {base for base, look in looks.items() if look.findings}
        for _ in range(_TRIES):
            if not (faulty or any(self._missing_segments(spans))) or not self._changed():
                break
            # A segment deleted meanwhile was not damaged, and an active one may have become inactive.
            spans = self._spans()
            looks |= {span.base_offset: SegmentReport(span) for span in spans if span.base_offset not in looks}
            looks |= {
                span.base_offset: self._check.run(span, self._state, Totals())
                for span in spans
                if span.base_offset in faulty
            }
            faulty = {span.base_offset for span in spans if looks[span.base_offset].findings}
        yield from self._missing_segments(spans)
        epoch = -1
        for span in spans:
            yield from looks[span.base_offset].findings
            runs = looks[span.base_offset].epochs
            if runs and runs[0].epoch < epoch:
                path = segment_path(self._place.folder, span.base_offset, LOG)
                yield self._finding(
                    Severity.DAMAGE, path, first_offset=runs[0].first_offset, next_offset=runs[0].next_offset,
                    what=f"leader epoch {runs[0].epoch} behind {epoch} of the segment before it",
                    advice=f"its records are whole; {REPAIR}",
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
            yield self._finding(
                Severity.DAMAGE, segment_path(self._place.folder, state.log_start, LOG),
                first_offset=state.log_start, next_offset=first,
                what=f"the log starts at offset {state.log_start}, but its first segment at {first}: "
                "segments are missing",
                advice=f"bring the files back; or {REPAIR}",
            )  # fmt: skip

    def _check_closed(self, before: PartitionState | None) -> Iterator[Finding]:
        now = read_slots(self._place.state_path).state
        if before is None or now is None or now.incarnation != before.incarnation:
            return  # The log was truncated meanwhile, and then it is of other records.
        largest = {
            (span.base_offset, span.until): look.largest
            for look in self._looks.values()
            if (span := look.span).position is None and span.until is not None and look.largest is not None
        }
        for position, what in closed_faults(self._place, largest):
            yield self._finding(
                Severity.INDEX, self._place.segments_path, position, what=what,
                advice="remove the file; pylog clean rebuilds it; till then look-ups by time can be wrong",
            )  # fmt: skip

    # ---- the files beside the segments

    def _check_epochs(self) -> Iterator[Finding]:
        state, path = self._state, f"{self._place.folder}/{LEADER_EPOCHS}"
        if state is None or all(look.largest is None for look in self._looks.values()):
            return
        runs = [run for base in sorted(self._looks) for run in self._looks[base].epochs]
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
            advice = f"recovery from a power loss replaces it; or {REPAIR}; only Kafka's tools go by it"
            if fault.severity is Severity.NOTE:
                advice = "none: a copy of the log would fetch more again than it must"
            yield self._finding(fault.severity, path, first_offset=fault.first_offset, what=fault.what, advice=advice)

    def _check_producers(self, damaged: Iterable[int]) -> Iterator[Finding]:
        """`damaged`: the offsets at which batches are damaged."""
        numbered = any(look.numbered for look in self._looks.values())
        for _ in range(_TRIES):
            before = read_slots(self._place.state_path).state
            if before is None or before.flags & Flags.DEAD:
                return
            if not (numbered or before.flags & Flags.PRODUCERS):
                return
            until = min([before.next_offset, *damaged])
            touched_to = cleaner_checkpoint.read(self._place).touched_to
            unknown = touched_to == cleaner_checkpoint.UNKNOWN
            if unknown:
                touched_to = self._compacted_to()
            expiration = self._config.producer_id_expiration_ms
            try:
                faults = producer_faults(self._place.folder, before, until, expiration, touched_to)
            except FileNotFoundError:
                faults = []
            now = read_slots(self._place.state_path).state
            if now is not None and _changes(now) == _changes(before):
                if unknown and files.exists(self._place.cleaner_path):
                    yield self._finding(
                        Severity.NOTE, self._place.cleaner_path,
                        what="it is torn, or of another version: what snapshots and indexes of aborted transactions "
                        "say was not compared with the log up to the last segment that lacks records",
                        advice="none: the next compaction rewrites it",
                    )  # fmt: skip
                for fault in faults:
                    yield self._finding(
                        fault.severity, fault.path, first_offset=fault.first_offset, next_offset=fault.next_offset,
                        what=fault.what, advice=_producer_advice(fault),
                    )  # fmt: skip
                return

    def _compacted_to(self) -> int:
        """How far the log may be compacted, by its batches: each that a cleaner has changed lacks records."""
        spans = (look.span for look in self._looks.values() if look.lacks_records)
        return max((span.until for span in spans if span.position is None and span.until is not None), default=0)


def _changes(state: PartitionState) -> tuple[int, int, int, bool]:
    """What is another one when segments, log start or epochs are, or the topic was deleted."""
    return state.generation, state.log_start, state.incarnation, bool(state.flags & Flags.DEAD)


def _producer_advice(fault: ProducerFault) -> str:
    if fault.severity is Severity.INDEX:
        return f"the log takes its place, where it reaches back far enough; it goes with its segment, or by {REPAIR}"
    return f"write nothing with producer ids to this partition; {REPAIR}, which rebuilds these files from the log"
