"""In a Spark task: reads a file, or a part of it, into Arrow, and stages its records. Nothing goes through the JVM."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from pyspark_log.errors import PylogError
from pyspark_log.jobs.imports.rows import RecordFields, rows_of_csv, rows_of_json, rows_of_parquet, rows_of_text
from pyspark_log.jobs.support import JobError
from pyspark_log.spark_connector.store_access import StoreRef
from pyspark_log.storage.fs import files
from pyspark_log.storage.ingest import grouped
from pyspark_log.storage.publish import StagedPart, StagingPlan

FORMATS = ("json", "csv", "parquet", "text")
# A larger file of lines, or of row groups, is read by several tasks.
PIECE_BYTES = 128 << 20
# How many bytes of files a task reads, if it does not read one larger file or piece.
_TASK_BYTES = 16 << 20
# Bytes of lines that a task has in memory at once.
_BLOCK = 16 << 20


@dataclass(frozen=True)
class FilePiece:
    """What one task reads.

    Attributes:
        store: where it is staged.
        staging: the plan for all tasks.
        topic: the topic.
        path: the file.
        size, changed: its bytes, and when it was changed last (ns), when the import was planned.
        format: one of FORMATS.
        start, until: the bytes in which its lines begin; or the numbers of its row groups. All of it: [0, size).
        fields: which columns become what.
        delimiter: between the columns of CSV.
    """

    store: StoreRef
    staging: StagingPlan
    topic: str
    path: str
    size: int
    changed: int
    format: str
    start: int
    until: int
    fields: RecordFields
    delimiter: str


class StagedFiles(NamedTuple):
    """What a task has staged: where it is, and how many records."""

    parts: tuple[StagedPart, ...]
    rows: int


def pieces_of(path: str, size: int, form: str) -> Iterator[tuple[int, int]]:
    """Cuts a large file into parts for tasks; CSV stays whole, as a row of it may have several lines. JobError."""
    if form == "csv" or size <= PIECE_BYTES:
        end = _row_groups(path) if form == "parquet" else size
        yield 0, end
    elif form == "parquet":
        count = _row_groups(path)
        each = max(1, -(-count * PIECE_BYTES // size))
        yield from ((start, min(start + each, count)) for start in range(0, count, each))
    else:
        yield from ((start, min(start + PIECE_BYTES, size)) for start in range(0, size, PIECE_BYTES))


def _row_groups(path: str) -> int:
    try:
        return int(pq.read_metadata(path).num_row_groups)
    except pa.ArrowInvalid as error:
        raise JobError(f"{path}: not Parquet: {error}", "PYLOG_BAD_VALUE") from error


def in_tasks(pieces: Iterable[FilePiece]) -> Iterator[list[FilePiece]]:
    """The pieces of each task: small files share one."""
    return grouped(pieces, _TASK_BYTES, lambda piece: piece.size)


def stage_pieces(pieces: Sequence[FilePiece]) -> StagedFiles:
    """Stages the records of some pieces of one import.

    Raises:
        JobError: a file is malformed, or another one than was planned; it is named. OSError.
    """
    piece = pieces[0]

    def rows() -> Iterator[pa.RecordBatch]:
        nonlocal piece
        for piece in pieces:
            yield from _rows_of_the_same_file(piece)

    try:
        return stage_rows(piece.store, piece.staging, piece.topic, rows())
    except PylogError as error:
        text = error.message if isinstance(error, JobError) else str(error)
        raise JobError(f"{piece.path}: {text}", error.condition) from error
    except (pa.ArrowException, KeyError) as error:
        raise JobError(f"{piece.path}: {error}", "PYLOG_BAD_VALUE") from error


def stage_rows(store: StoreRef, staging: StagingPlan, topic: str, batches: Iterable[pa.RecordBatch]) -> StagedFiles:
    """Stages records; what was staged is removed if that fails."""
    writer, rows = store.reopen().publishes.writer(staging), 0
    try:
        for batch in batches:
            writer.append(topic, batch)
            rows += batch.num_rows
        return StagedFiles(tuple(writer.finish()), rows)
    except BaseException:
        writer.discard()
        raise


def _rows_of_the_same_file(piece: FilePiece) -> Iterator[pa.RecordBatch]:
    """The records of a piece. JobError: the file was changed since the import was planned."""
    yield from _rows(piece)
    status = files.status_of(piece.path)
    if (status.st_size, status.st_mtime_ns) != (piece.size, piece.changed):
        raise JobError("it was changed while it was imported", "PYLOG_SOURCE_CHANGED")


def _rows(piece: FilePiece) -> Iterator[pa.RecordBatch]:
    if piece.format == "parquet":
        yield from rows_of_parquet(piece.path, range(piece.start, piece.until), piece.fields)
        return
    with open(piece.path, "rb") as file:
        if piece.format == "csv":
            yield rows_of_csv(file.read(), piece.fields, piece.delimiter)
            return
        rows_of = rows_of_json if piece.format == "json" else rows_of_text
        # A line belongs to the piece in which it begins.
        at = piece.start
        if at:
            file.seek(at - 1)
            at += len(file.readline()) - 1
        while at < piece.until:
            block = file.read(min(_BLOCK, piece.until - at))
            if not block:
                return  # It was cut, which is found afterwards.
            block += file.readline() if not block.endswith(b"\n") else b""
            at += len(block)
            yield rows_of(block, piece.fields)
