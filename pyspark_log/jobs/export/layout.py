"""How records become files: their columns, folders and format."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_log.jobs.export.parsed_values import ParsedValues

#: The folder of records without a time, or with a time that no calendar has; Hive and Spark read it as null.
NO_TIME = "__HIVE_DEFAULT_PARTITION__"

_HOUR = 3_600_000_000  # in microseconds
_DAY = 24 * _HOUR
_EPOCH = date(1970, 1, 1).toordinal()


@dataclass(frozen=True)
class Layout:
    """What is written of records, and where.

    Attributes:
        format: parquet, json, csv or text.
        codec: the compression; none: none.
        columns: of the row schema, in order.
        values: what the values are parsed into, which follows the columns; None: they are not.
        base64: whether keys and values of a format of text are written in base64.
        by_topic: whether each topic has a folder.
        by_time: "", "date" or "hour", of the records' times in UTC.
        max_records: of one file; None: no limit.
    """

    format: str
    codec: str
    columns: tuple[str, ...]
    values: ParsedValues | None = None
    base64: bool = False
    by_topic: bool = True
    by_time: str = "date"
    max_records: int | None = None

    @property
    def read_columns(self) -> list[str]:
        """The columns to read."""
        more = ["timestamp"] * bool(self.by_time) + ["value", "offset"] * (self.values is not None)
        return list(dict.fromkeys([*self.columns, *more])) or ["offset"]

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows to write, of records as they were read. JobError: a value cannot be parsed."""
        rows = batch.select(self.columns)
        return rows if self.values is None else self.values.added(rows, batch)

    def by_folder(self, topic: str, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The records of each folder, in their order; a folder is "" or ends with a slash."""
        above = f"topic={topic}/" if self.by_topic else ""
        if not self.by_time:
            yield above, batch
            return
        width = _HOUR if self.by_time == "hour" else _DAY
        times = batch.column("timestamp").cast(pa.int64()).fill_null(-1)
        least, most = (one.as_py() // width for one in pc.min_max(times).values())
        if least == most:
            yield above + _folder(least, self.by_time), batch
            return
        # Times before 1970 are no times: which unit they get has no meaning.
        units = pc.divide(pc.if_else(pc.less(times, 0), -width, times), width)
        order = pc.array_sort_indices(units)
        runs = pc.run_end_encode(units.take(order))
        ordered, start = batch.take(order), 0
        for unit, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            yield above + _folder(unit, self.by_time), ordered.slice(start, end - start)
            start = end


def _folder(unit: int, by_time: str) -> str:
    """The folder of a day or hour since 1970."""
    days, hour = divmod(unit, 24) if by_time == "hour" else (unit, 0)
    try:
        day = NO_TIME if unit < 0 else date.fromordinal(_EPOCH + days).isoformat()
    except (ValueError, OverflowError):
        day = NO_TIME
    if by_time == "date":
        return f"date={day}/"
    return f"date={day}/hour={NO_TIME if day == NO_TIME else f'{hour:02}'}/"
