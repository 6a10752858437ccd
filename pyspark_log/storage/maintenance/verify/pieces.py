"""Verifies the records of partitions in an object store: that each piece is there, whole, with its offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from pyspark_log.errors import CorruptRecordError, LogDamagedError
from pyspark_log.storage.fs import side_by_side
from pyspark_log.storage.maintenance.verify.findings import Finder, Finding
from pyspark_log.storage.maintenance.verify.log.partition import PartitionReport
from pyspark_log.storage.objects import Objects
from pyspark_log.storage.publish_log.maintenance.rewriting import in_turns
from pyspark_log.storage.publish_log.reading import bytes_of
from pyspark_log.storage.publish_log.state import PartitionLog, Piece
from pyspark_log.storage.record import scan
from pyspark_log.types import NO_TIMESTAMP, TopicPartition

_ADVICE: Final = "bring the object back: an older version of it, or that of a copy; or take the records from a backup"


class PieceCheck:
    """The check of one partition; call it."""

    def __init__(self, objects: Objects, at: TopicPartition, log: PartitionLog) -> None:
        """Reads nothing yet."""
        self._objects, self._at, self._log = objects, at, log
        self._finder = Finder(str(objects.address), at.topic, at.partition)

    def size(self) -> int:
        """Bytes of its records."""
        return sum(piece.size for piece in self._log.pieces)

    def __call__(self, progress: Callable[[int], None]) -> PartitionReport:
        """Reads all of it; `progress` is called with the number of bytes that were. ObjectStoreError."""
        report = PartitionReport(self._at, None, list(self._gaps()))
        for some in in_turns(self._log.pieces):
            for piece, found in zip(some, side_by_side(self._read, some, len(some)), strict=True):
                self._check(report, piece, found)
                progress(piece.size)
        return report

    def _gaps(self) -> Iterator[Finding]:
        """Where pieces do not follow each other from the log start to the log end."""
        log = self._log
        end = log.pieces[0].base_offset if log.pieces else log.log_start
        if end > log.log_start:
            yield self._gap("its first records have no piece", log.log_start, end)
        for piece in log.pieces:
            if piece.base_offset != end:
                yield self._gap("its pieces do not follow each other", end, piece.base_offset)
            end = piece.next_offset
        if end != log.log_end:
            yield self._gap("its last records have no piece", end, log.log_end)

    def _gap(self, what: str, first: int, end: int) -> Finding:
        return self._finder.damage("log", what, "take the records from a backup", -1, min(first, end), max(first, end))

    def _read(self, piece: Piece) -> memoryview | CorruptRecordError | LogDamagedError:
        try:
            return bytes_of(self._objects, piece.object, [(self._at, piece)])[0]
        except (CorruptRecordError, LogDamagedError) as error:
            return error

    def _check(
        self, report: PartitionReport, piece: Piece, data: memoryview | CorruptRecordError | LogDamagedError
    ) -> None:
        totals = report.totals
        totals.segments += 1
        if isinstance(data, (CorruptRecordError, LogDamagedError)):
            reason, position = str(data), piece.position
            if isinstance(data, CorruptRecordError):
                reason, position = data.reason, data.position
            report.findings.append(
                self._finder.damage(piece.object, reason, _ADVICE, position, piece.base_offset, piece.next_offset)
            )
            return
        newest, is_whole = NO_TIMESTAMP, True
        for header in scan(data, 0, len(data)):
            try:
                scan(data, header.position, header.end, check_crcs=True)
            except CorruptRecordError as error:
                is_whole = False
                report.findings.append(
                    self._finder.damage(
                        piece.object, f"{error.reason} ({header.size} bytes)", _ADVICE,
                        piece.position + header.position, header.base_offset, header.next_offset,
                    )
                )  # fmt: skip
                continue
            newest = max(newest, header.max_timestamp)
            totals.batches += 1
            totals.records += header.count
            totals.bytes += header.end - header.position
        if is_whole and newest != piece.max_timestamp:
            what = f"the largest time of its records is {newest} ms, the log says {piece.max_timestamp}"
            advice = "look-ups by time and retention can miss these records; append them again if that matters"
            report.findings.append(
                self._finder.index(piece.object, what, advice, piece.position, piece.base_offset, piece.next_offset)
            )
