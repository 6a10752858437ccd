"""Verifies one segment of a partition: its batches, their records, its indexes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_log.config import LONG_MAX, TopicConfig
from pyspark_log.storage.catalog import PartitionPath
from pyspark_log.storage.fs import files
from pyspark_log.storage.log.leader_epochs import Epochs
from pyspark_log.storage.log.state import PartitionState, state_file
from pyspark_log.storage.maintenance.verify.findings import REPAIR, Finder, Finding
from pyspark_log.storage.maintenance.verify.log.epochs import EpochRun, add_run
from pyspark_log.storage.maintenance.verify.log.indexes import IndexCheck
from pyspark_log.storage.record import BatchHeader
from pyspark_log.storage.record.layout import MAGIC
from pyspark_log.storage.segment.file_names import LOG, segment_path
from pyspark_log.storage.segment.scanner import Damaged, Intact, SegmentScanner
from pyspark_log.types import NO_TIMESTAMP

#: Reads the records of a file's batches, and finds those that their topic cannot have.
RecordCheck = Callable[[Finder, str, Intact], Iterator[Finding]]

# The most findings that are reported individually for one segment.
_MOST_FINDINGS = 1000
#: The advice for a batch whose records can be read.
WHOLE = f"its records are whole; {REPAIR}"
# Below this many records a batch's largest time is found faster without Arrow.
_FEW = 32


@dataclass(slots=True)
class Totals:
    """How much was checked."""

    segments: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0

    def add(self, other: Totals) -> None:
        """Adds what another check covered."""
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
        """Prepares it, as PartitionCheck. `dense`: whether each batch must begin where the one before it ends."""
        self._place = place
        self._interval = config.index_interval_bytes
        self._finding = finding
        self._progress = progress
        self._check_records = check_records
        self._walker = SegmentScanner(config.max_batch_bytes, dense=dense)

    def run(self, span: Span, state: PartitionState | None, totals: Totals) -> SegmentReport:
        """Checks a segment; `state`: the partition's, if it has a valid one. Adds to `totals`."""
        report = SegmentReport(span)
        findings = self._findings(report, state, totals)
        found = report.findings = list(islice(findings, _MOST_FINDINGS))
        left = sum(1 for _ in findings)
        if left:
            found.append(replace(found[-1], position=-1, what=f"and {left} findings more in this file"))
        return report

    def _findings(self, report: SegmentReport, state: PartitionState | None, totals: Totals) -> Iterator[Finding]:
        span = report.span
        path = segment_path(self._place.folder, span.base_offset, LOG)
        until = -1 if span.until is None else span.until
        try:
            file = files.open_read(path)
        except FileNotFoundError:
            advice = f"bring the file back; or {REPAIR}"
            yield self._finding.damage(path, "the segment is missing", advice, -1, span.base_offset, until)
            return
        except OSError as error:
            yield self._finding.unreadable(path, error, span.base_offset, until)
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
                    self._progress(piece.end - piece.position)
                    yield self._damaged(path, span, state, piece)
                    continue
                for header in piece.headers:
                    indexes.take(header)
                    report.numbered |= header.producer_id >= 0
                    report.lacks_records |= header.count <= header.last_offset_delta and header.magic == MAGIC
                    largest = max(largest, header.max_timestamp)
                    if what := epochs.fault(header):
                        yield self._finding.damage(path, what, WHOLE, *_at(header))
                    else:
                        add_run(report.epochs, header.leader_epoch, header.base_offset, header.next_offset)
                yield from self._check_rows(path, piece)
                totals.batches += len(piece.headers)
                totals.records += len(piece.columns["offset"])
                totals.bytes += len(piece.data)
                self._progress(len(piece.data))
            if not damaged and span.position is not None and held < span.position:
                damaged = True
                yield self._finding.damage(path, f"it has {held} bytes, the state says {span.position}", REPAIR, held)
        report.largest = largest
        # Else entries for damaged batches would be findings of their own; and of a cleaned segment that is being put in
        # place the indexes come last.
        if not damaged and not (state is not None and state.swaps and span.base_offset == state.intent_base):
            advice = f"{REPAIR}; until then reads take longer, and look-ups by time can be wrong"
            if span.position is not None:
                advice = "none: the next writer of the partition rebuilds it"

            def found(path: str, what: str, position: int) -> Finding:
                return self._finding.index(path, what, advice, position, span.base_offset, until)

            yield from indexes.findings(found)

    def _damaged(self, path: str, span: Span, state: PartitionState | None, piece: Damaged) -> Finding:
        size, at = piece.end - piece.position, (piece.position, piece.first_offset)
        if span.until is None and piece.first_offset == piece.next_offset:
            return self._finding.note(path, f"the last {size} bytes are no whole batch: {piece.reason}", "", *at)
        if span.position is None and piece.first_offset == piece.next_offset == span.until:
            # Late bytes of a writer that had lost its lock, on a shared file system.
            what = f"{size} bytes after the segment's last record, which no reader reads"
            advice = "a Kafka broker would end the log here; pylog repair makes a copy without them"
            return self._finding.note(path, what, advice, *at)
        advice = f"bring the file back from a copy; or {REPAIR}, which leaves these offsets empty"
        unsettled = state is not None and state.boot != state_file.this_boot() and piece.position >= state.synced
        if span.position is not None and unsettled:
            advice = "not synced before the machine crashed: the next writer of the partition recovers it"
        what = f"{piece.reason} ({size} bytes)" if size > 0 else piece.reason
        return self._finding.damage(path, what, piece.advice or advice, *at, piece.next_offset)

    def _check_rows(self, path: str, piece: Intact) -> Iterator[Finding]:
        times, row = _Times(piece.columns["timestamp"]), 0
        for header in piece.headers:
            if header.magic < MAGIC:
                break  # Kafka's older formats do not say how many records a batch has.
            if header.is_control or not header.count:
                continue
            largest = times.largest(row, header.count)
            row += header.count
            if largest != header.max_timestamp:
                what = f"the largest time of its records is {largest} ms, its header says {header.max_timestamp}"
                advice = "look-ups by time can miss these records; append them again if that matters"
                yield self._finding.index(path, what, advice, *_at(header))
        if self._check_records is not None:
            yield from self._check_records(self._finding, path, piece)


def _at(header: BatchHeader) -> tuple[int, int, int]:
    return header.position, header.base_offset, header.next_offset


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
