"""In a Spark task: reads a range of offsets into Arrow, and writes it to files. Nothing goes through the JVM."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from pyspark_log.config import INT_MAX
from pyspark_log.jobs.export.formats import FileWriter, ending, open_file
from pyspark_log.jobs.export.layout import Layout
from pyspark_log.jobs.export.plan import PlannedRange, WrittenFile, check_topic, start_of
from pyspark_log.spark_connector.store_access import StoreRef
from pyspark_log.storage.fs import files

# About how many bytes of records (before compression) are written at once: of one folder they are a row group.
_WRITE_BYTES = 32 << 20
# The most files that a task keeps open; beyond that it closes one, whose folder gets another file when it is needed.
_MAX_OPEN = 100


@dataclass(frozen=True)
class ExportTask:
    """What one task does.

    Attributes:
        source: the store.
        range: what is read.
        layout: how it is written.
        work: the folder for unfinished files.
        isolation_level: of the read.
        skip_lost: whether records that were deleted meanwhile are passed over.
    """

    source: StoreRef
    range: PlannedRange
    layout: Layout
    work: str
    isolation_level: str
    skip_lost: bool


def write_range(task: ExportTask) -> list[WrittenFile]:
    """Writes the files of a range into the folder for unfinished work; each is complete and synced.

    Raises:
        JobError: PYLOG_DATA_LOSS, records of the range were deleted; PYLOG_BAD_VALUE, a value cannot be written.
        PylogError, OSError: the range cannot be read, or the files cannot be written.
    """
    store, planned = task.source.reopen(), task.range
    check_topic(store, planned)
    start = start_of(store, planned, skip_lost=task.skip_lost)
    if start == planned.until:
        return []
    columns = task.layout.read_columns
    batches = store.read(
        planned.topic,
        planned.partition,
        start,
        planned.until,
        columns=columns,
        headers="headers" in columns,
        isolation_level=task.isolation_level,
    )
    # Once more: from here on the records are those of one topic.
    check_topic(store, planned)
    output = _Output(task)
    try:
        for batch in _larger(batches):
            for folder, part in task.layout.by_folder(planned.topic, batch):
                output.write(folder, task.layout.rows(part))
        return output.finish()
    except BaseException:
        output.drop()
        raise


def _larger(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Combines batches into ones of some `_WRITE_BYTES`."""
    held, size = list[pa.RecordBatch](), 0
    for batch in batches:
        # Arrow counts the bytes of a column by 32 bits.
        if held and size + batch.nbytes > INT_MAX:
            yield pa.concat_batches(held)
            held, size = [], 0
        held.append(batch)
        size += batch.nbytes
        if size >= _WRITE_BYTES:
            yield pa.concat_batches(held)
            held, size = [], 0
    if held:
        yield pa.concat_batches(held)


@dataclass
class _Open:
    temporary: str
    name: str
    writer: FileWriter
    rows: int = 0


class _Output:
    """The files of one task."""

    def __init__(self, task: ExportTask) -> None:
        self._task, self._token = task, secrets.token_hex(8)
        self._open = OrderedDict[str, _Open]()  # by folder, the one written to last at the end
        self._parts = dict[str, int]()  # how many files each folder has got
        self._done: list[WrittenFile] = []

    def write(self, folder: str, rows: pa.RecordBatch) -> None:
        """Adds rows to the file of a folder, or to several."""
        limit, at = self._task.layout.max_records, 0
        while at < rows.num_rows:
            file = self._open.pop(folder, None) or self._begin(folder, rows.schema)
            self._open[folder] = file
            part = rows.slice(at, None if limit is None else limit - file.rows)
            file.writer.write(part)
            file.rows, at = file.rows + part.num_rows, at + part.num_rows
            if file.rows == limit:
                self._end(folder)
            elif len(self._open) > _MAX_OPEN:
                self._end(next(iter(self._open)))

    def _begin(self, folder: str, schema: pa.Schema) -> _Open:
        part, planned = self._parts.get(folder, 0), self._task.range
        self._parts[folder] = part + 1
        suffix = f"-{part}" if part else ""
        name = f"{folder}{planned.at}-{planned.start}-{planned.until}{suffix}{ending(self._task.layout)}"
        temporary = f"{self._token}-{sum(self._parts.values())}"
        return _Open(temporary, name, open_file(f"{self._task.work}/{temporary}", self._task.layout, schema))

    def _end(self, folder: str) -> None:
        file = self._open.pop(folder)
        file.writer.close()
        path = f"{self._task.work}/{file.temporary}"
        with files.open_write(path) as written:
            written.sync()
            size = written.size()
        self._done.append(WrittenFile(file.temporary, file.name, file.rows, size))

    def finish(self) -> list[WrittenFile]:
        """Completes all files; they are durable."""
        while self._open:
            self._end(next(iter(self._open)))
        files.sync_folder(self._task.work)
        return self._done

    def drop(self) -> None:
        """Removes the files; what cannot be removed the next run removes."""
        names = [one.temporary for one in self._open.values()] + [one.temporary for one in self._done]
        for name in names:
            files.unlink(f"{self._task.work}/{name}")
