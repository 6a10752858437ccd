"""Verifies one partition of a Kafka broker's folder, and changes nothing. The broker may be running.

Checks every batch with its CRC and records, checkpoints and markers against the log, and, as notes, the indexes and the
leader epochs, which a broker rebuilds by itself. Producer snapshots are not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from pyspark_log.config import LONG_MAX, TopicConfig
from pyspark_log.errors import CorruptRecordError, LogDamagedError, SideFileError, UnknownTopicError
from pyspark_log.storage.broker import BrokerLogReader
from pyspark_log.storage.catalog.kafka_files import read_epochs
from pyspark_log.storage.log.leader_epochs import FILE_NAME as LEADER_EPOCHS
from pyspark_log.storage.maintenance.verify.findings import Finder, Finding, Severity
from pyspark_log.storage.maintenance.verify.log.epochs import epoch_findings
from pyspark_log.storage.maintenance.verify.log.partition import PartitionReport
from pyspark_log.storage.maintenance.verify.log.segment import SegmentCheck, SegmentReport, Span, Totals
from pyspark_log.storage.segment.file_names import list_segments

# How often segments are checked again while their list changes.
_TRIES = 4
_DAMAGED = "take the file from another replica or copy: a broker that starts here may cut the log at this place"
_LOST = "take the partition from another replica or copy; reads end earlier than they did"
_INDEX = "remove the file while the broker is stopped: it rebuilds it when it starts"


class BrokerCheck:
    """The check of one partition of a broker; `run` does it. Not for several threads."""

    def __init__(
        self, reader: BrokerLogReader, config: TopicConfig, root: str, progress: Callable[[int], None]
    ) -> None:
        """Prepares the check of a reader's partition; the rest as of PartitionCheck."""
        self._reader, self._place = reader, reader.place
        self._finding = Finder(root, self._place.topic, self._place.partition)
        self._check = SegmentCheck(self._place, config, self._finding, progress, None, dense=False)

    def run(self) -> PartitionReport:
        """Checks everything. OSError, if a folder cannot be read."""
        report = PartitionReport(self._place, None)
        for _ in range(_TRIES):
            bases = list_segments(self._place.folder)
            report.totals = Totals()
            spans = [Span(base, until, None) for base, until in zip(bases, [*bases[1:], None], strict=False)]
            reports = [self._check.run(span, None, report.totals) for span in spans]
            report.findings = [self._as_broker_finding(finding) for one in reports for finding in one.findings]
            if not report.findings or list_segments(self._place.folder) == bases:
                break  # Else retention or the cleaner has taken segments meanwhile.
        try:
            report.findings += self._check_reader(reports, damaged=bool(report.findings))
        except UnknownTopicError:
            report.findings = []  # It was deleted meanwhile.
        return report

    def _as_broker_finding(self, finding: Finding) -> Finding:
        """What was found, said of a broker's folder."""
        if finding.severity is Severity.DAMAGE:
            return replace(finding, advice=_DAMAGED)
        if finding.severity is Severity.INDEX:
            return replace(finding, severity=Severity.NOTE, advice=_INDEX)
        return replace(finding, advice="none, if the broker is at work: it is being written; else what it left")

    def _check_reader(self, reports: list[SegmentReport], damaged: bool) -> Iterator[Finding]:
        """The errors that readers of the partition get."""
        folder = self._place.folder
        try:
            state = self._reader.state()
            for what in (self._reader.lost_end(), self._reader.refuted_index()):
                if what:
                    yield self._finding.damage(folder, what, _LOST, first=state.next_offset)
        except (CorruptRecordError, LogDamagedError, SideFileError) as error:
            if not damaged or isinstance(error, SideFileError):
                yield self._finding.damage(folder, str(error), _DAMAGED)
            return
        last = reports[-1].span.base_offset if reports else -1
        for finding in reports[-1].findings if reports else ():
            # Half-written batches are not below the offset that readers see.
            if finding.severity is Severity.NOTE and state.active_base == last and finding.position < state.position:
                yield replace(finding, severity=Severity.DAMAGE, advice=_DAMAGED)
        path = f"{folder}/{LEADER_EPOCHS}"
        runs = [run for one in reports for run in one.epochs]
        try:
            # Epochs may begin above the high watermark.
            end = state._replace(next_offset=LONG_MAX)
            for finding in epoch_findings(path, self._finding, read_epochs(path), end, runs):
                yield replace(finding, severity=Severity.NOTE, advice=_INDEX)
        except SideFileError as error:
            yield self._finding.note(path, str(error), _INDEX)
