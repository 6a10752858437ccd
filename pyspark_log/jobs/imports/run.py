"""An import of files from beginning to end, on the driver: plan, stage in tasks, publish, until all is imported."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from pyspark_log.jobs.imports.publish import ImportTarget
from pyspark_log.jobs.imports.rows import RecordFields
from pyspark_log.jobs.imports.sources import SourceFile, new_files
from pyspark_log.jobs.imports.task import FilePiece, in_tasks, pieces_of, stage_pieces
from pyspark_log.jobs.support import run_tasks
from pyspark_log.storage.ingest import grouped
from pyspark_log.storage.publish import StagingPlan


@dataclass(frozen=True)
class FileImport:
    """What is to be imported.

    Attributes:
        sources: files, folders and patterns.
        format: one of task.FORMATS.
        fields: which columns become what.
        delimiter: between the columns of CSV.
        publish_bytes: about how many bytes of files are published together; a killed run repeats no more than that.
    """

    sources: Sequence[str]
    format: str
    fields: RecordFields
    delimiter: str
    publish_bytes: int


def import_files(spark: SparkSession, target: ImportTarget, wanted: FileImport) -> dict[str, int | float]:
    """Imports the files that were not imported before.

    Returns:
        Figures by name: rows, bytes, files, seconds and rows a second.

    Raises:
        JobError: a file is malformed, has changed or is missing. What was published before stays; a later run resumes.
        PublishError, PylogError, OSError: likewise.
    """
    began = time.monotonic()
    rows = size = count = 0
    # All are checked before the first is imported.
    found = list(new_files(wanted.sources, target.topic, target.imported()))
    for group in grouped(found, wanted.publish_bytes, lambda one: one.size):
        plan = target.plan()
        pieces = [piece for one in group for piece in _pieces(one, target, plan, wanted)]
        try:
            staged = run_tasks(spark, f"{target.group}: {len(group)} files", stage_pieces, list(in_tasks(pieces)))
        except BaseException:
            target.discard(plan)
            raise
        target.publish([part for one in staged for part in one.parts], [one.step(target.group) for one in group])
        rows += sum(one.rows for one in staged)
        size += sum(one.size for one in group)
        count += len(group)
    seconds = time.monotonic() - began
    return {"rows": rows, "bytes": size, "files": count, "seconds": seconds, "rows_per_second": round(rows / seconds)}


def _pieces(one: SourceFile, target: ImportTarget, plan: StagingPlan, wanted: FileImport) -> Iterator[FilePiece]:
    for start, until in pieces_of(one.path, one.size, wanted.format):
        yield FilePiece(
            target.ref, plan, target.topic, one.path, one.size, one.changed, wanted.format, start, until, wanted.fields,
            wanted.delimiter,
        )  # fmt: skip
