"""Verifies one segment of a partition: its batches, their records, its indexes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_log.config import LONG_MAX, TopicConfig
from pyspark_log.storage.catalog import PartitionPath
from pyspark_log.storage.fs import files
from pyspark_log.storage.log import Epochs, PartitionState, this_boot
from pyspark_log.storage.maintenance.verify.epochs import EpochRun, add_run
from pyspark_log.storage.maintenance.verify.findings import REPAIR, Finder, Finding, Severity
from pyspark_log.storage.maintenance.verify.indexes import IndexCheck
from pyspark_log.storage.record import MAGIC, BatchHeader
from pyspark_log.storage.segment import LOG, Damaged, Intact, SegmentScanner, segment_path
from pyspark_log.types import NO_TIMESTAMP

#: Looks at decoded records; gives the offset of each that its topic cannot have, and why.
RecordCheck = Callable[[Mapping[str, pa.Array]], Iterable[tuple[int, str]]]

# The most findings that are reported individually for one segment.
_MOST_FINDINGS = 1000
# Below this many records a batch's largest time is found faster without Arrow.
_FEW = 32


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


class Span(NamedTuple):
    """A segment that counts.

    Attributes:
        base_offset: its name.
        until: the offset that it must reach; None: not known.
        position: for the active one, how many of its bytes count; None: all.
    """

    base_offset: int
    until: int | None
    position: int | None


@dataclass(slots=True)
class SegmentReport:
    """What was found in one segment.

    Attributes:
        span: which one, and what of it counts.
        findings: in the order of offsets.
        epochs: the leader epochs of its batches.
        largest: the largest time of its batches, in ms; None if it was not read.
        numbered: whether a batch has a producer id.
        lacks_records: whether a batch has fewer records than offsets, as a cleaner leaves it.
    """

    span: Span
    findings: list[Finding] = field(default_factory=list)
    epochs: list[EpochRun] = field(default_factory=list)
    largest: int | None = None
    numbered: bool = False
    lacks_records: bool = False


class SegmentCheck:
    """The check of a partition's segments, one after the other. Not for several threads."""

    def __init__(
        self,
        place: PartitionPath,
        config: TopicConfig,
        finding: Finder,
        progress: Callable[[int], None],
        check_records: RecordCheck | None,
        *,
        dense: bool = True,
    ) -> None:
        """Prepares it.

        Args:
            place: which partition.
            config: its topic's settings.
            finding: makes findings.
            progress: called with the number of bytes that were looked at since the last call.
            check_records: what else must hold for its records.
            dense: whether each batch must begin where the one before it ends.
        """
        self._place = place
        self._interval = config.index_interval_bytes
        self._finding = finding
        self._progress = progress
        self._check_records = check_records
        self._walker = SegmentScanner(config.max_batch_bytes, dense=dense)

    def run(self, span: Span, state: PartitionState | None, totals: Totals) -> SegmentReport:
        """Looks at a segment.

        Args:
            span: which one, and what of it counts.
            state: the partition's; None if it has no valid one.
            totals: what is looked at is added to it.
        """
        report = SegmentReport(span)
        findings = self._findings(report, state, totals)
        found = report.findings = list(islice(findings, _MOST_FINDINGS))
        left = sum(1 for _ in findings)
        if left:
            last = found[-1]
            found.append(replace(last, position=-1, what=f"and {left} findings more in this file", advice=last.advice))
        return report

    def _findings(self, report: SegmentReport, state: PartitionState | None, totals: Totals) -> Iterator[Finding]:
        span = report.span
        path = segment_path(self._place.folder, span.base_offset, LOG)
        try:
            file = files.open_read(path)
        except FileNotFoundError:
            yield self._finding(
                Severity.DAMAGE, path, first_offset=span.base_offset, next_offset=_or_unknown(span.until),
                what="the segment is missing", advice=f"bring the file back; or {REPAIR}",
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
        epochs = Epochs(state)
        damaged, largest = False, NO_TIMESTAMP
        with file:
            held = file.size()
            size = held if span.position is None else min(span.position, held)
            indexes = IndexCheck(self._place.folder, span.base_offset, self._interval, size, end)
            for piece in self._walker.walk(file, size, span.base_offset, span.until):
                if isinstance(piece, Damaged):
                    damaged = True
                    yield self._unsound(path, span, state, piece)
                    continue
                for header in piece.headers:
                    indexes.take(header)
                    report.numbered |= header.producer_id >= 0
                    report.lacks_records |= header.count <= header.last_offset_delta and header.magic == MAGIC
                    largest = max(largest, header.max_timestamp)
                    if what := epochs.fault(header):
                        yield self._batch_finding(path, header, what)
                    else:
                        add_run(report.epochs, header.leader_epoch, header.base_offset, header.next_offset)
                yield from self._check_rows(path, piece)
                totals.batches += len(piece.headers)
                totals.records += len(piece.columns["offset"])
                totals.bytes += len(piece.data)
                self._progress(len(piece.data))
            if not damaged and span.position is not None and held < span.position:
                damaged = True
                yield self._finding(
                    Severity.DAMAGE, path, held, what=f"it has {held} bytes, the state says {span.position}",
                    advice=REPAIR,
                )  # fmt: skip
        report.largest = largest
        if not damaged and not _is_coming(span, state):
            # Otherwise entries for damaged batches would be reported as separate faults.
            for fault in indexes.faults():
                yield self._finding(
                    Severity.INDEX, fault.path, fault.position, span.base_offset, _or_unknown(span.until),
                    what=fault.what, advice=_index_advice(span),
                )  # fmt: skip

    def _unsound(self, path: str, span: Span, state: PartitionState | None, piece: Damaged) -> Finding:
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
        advice = f"bring the file back from a copy; or {REPAIR}, which leaves these offsets empty"
        if span.position is not None and _is_unsettled(state, piece.position):
            advice = "not synced before the machine went down: the next writer of the partition puts it right"
        advice = piece.advice or advice
        return self._finding(
            Severity.DAMAGE, path, piece.position, piece.first_offset, piece.next_offset,
            what=f"{piece.reason} ({piece.end - piece.position} bytes)" if piece.end > piece.position else piece.reason,
            advice=advice,
        )  # fmt: skip

    def _batch_finding(self, path: str, header: BatchHeader, what: str) -> Finding:
        return self._finding(
            Severity.DAMAGE, path, header.position, header.base_offset, header.next_offset, what=what,
            advice=f"its records are whole; {REPAIR}",
        )  # fmt: skip

    def _check_rows(self, path: str, piece: Intact) -> Iterator[Finding]:
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
                    advice="look-ups by time can miss these records; append them again if that matters",
                )  # fmt: skip
        if self._check_records is not None:
            for offset, what in self._check_records(piece.columns):
                header = next(header for header in piece.headers if offset < header.next_offset)
                yield self._finding(
                    Severity.DAMAGE, path, header.position, offset, offset + 1, what=what, advice=REPAIR
                )


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


def _is_coming(span: Span, state: PartitionState | None) -> bool:
    """Whether it is a cleaned segment that is being put in place: its indexes come last."""
    return state is not None and state.swaps and span.base_offset == state.intent_base


def _is_unsettled(state: PartitionState | None, position: int) -> bool:
    """Whether a byte of the active segment was not synced before a crash."""
    return state is not None and state.boot != this_boot() and position >= state.synced


def _or_unknown(offset: int | None) -> int:
    return -1 if offset is None else offset


def _index_advice(span: Span) -> str:
    if span.position is not None:
        return "none: the next writer of the partition makes it right"
    return f"{REPAIR}; until then reads take longer, and look-ups by time can be wrong"
