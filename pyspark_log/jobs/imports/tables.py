"""Imports the rows of a table that came since the last import, by a column that only grows. Spark reads it by JDBC."""

from __future__ import annotations

import pickle
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DecimalType, IntegralType

from pyspark_log.jobs.imports.publish import ImportTarget
from pyspark_log.jobs.imports.rows import RecordFields, records_of
from pyspark_log.jobs.imports.sources import place_of
from pyspark_log.jobs.imports.task import StagedFiles, stage_rows
from pyspark_log.jobs.support import JobError
from pyspark_log.jobs.support.spark_tasks import reason
from pyspark_log.spark_connector.errors import conditions_shown
from pyspark_log.spark_connector.store_access import StoreRef
from pyspark_log.storage.publish import StagingPlan
from pyspark_log.types import OffsetStep

_BAD = "PYLOG_BAD_VALUE"


@dataclass(frozen=True)
class Table:
    """A table, and how it is read.

    Attributes:
        url: JDBC's.
        name: the table's.
        column: a column of whole numbers, 0 or more, that only grows: each new row has a larger one.
        options: Spark's for JDBC: driver, user, password, fetchsize ...
        partitions: how many tasks read it.
    """

    url: str
    name: str
    column: str
    options: Mapping[str, str]
    partitions: int


def import_table(
    spark: SparkSession, target: ImportTarget, table: Table, fields: RecordFields
) -> dict[str, int | float]:
    """Imports the rows whose column is larger than in all imports before.

    Returns:
        Figures by name: rows, the column's largest value, seconds and rows a second.

    Raises:
        JobError: the database refuses something, or the column is not fit. PublishError, PylogError.
    """
    began = time.monotonic()
    at = place_of("table", f"{database_of(table.url)} {table.name} {table.column}", target.topic)
    before = target.imported().get(at)
    # The committed offset is the first value that was not imported.
    start = 0 if before is None else before.offset
    try:
        low, high = _bounds(spark, table, start)
        if low is None or high is None:
            return {"rows": 0, "seconds": time.monotonic() - began}
        found = _staged(_rows(spark, table, low, high), target, fields)
    except (PySparkException, Py4JJavaError) as error:
        if "[PYLOG_" in str(error):
            raise reason(error) from error
        raise JobError(f"{table.name}: {_what(error)}", "PYLOG_SOURCE_FAILED") from error
    target.publish(
        [part for one in found for part in one.parts],
        [OffsetStep(target.group, at, None if before is None else start, high + 1)],
    )
    rows, seconds = sum(one.rows for one in found), time.monotonic() - began
    return {"rows": rows, f"last_{table.column}": high, "seconds": seconds, "rows_per_second": round(rows / seconds)}


def _read(spark: SparkSession, table: Table, what: str, parts: Mapping[str, str] | None = None) -> DataFrame:
    """What a SELECT finds; `parts`: Spark's options that have several tasks read it."""
    options = {**table.options, **(parts or {}), "url": table.url, "dbtable": f"({what}) rows_to_import"}
    return spark.read.format("jdbc").options(**options).load()


def database_of(url: str) -> str:
    """A database's URL without what may change or be secret: user, password, all parameters that name no database."""
    place, *parameters = re.split(r"[?;&]", url)
    # jdbc:mysql://user:password@host/..., jdbc:oracle:thin:user/password@host:...
    place = re.sub(r"(?<=:)[^:/@]+/[^/@]*@", "@", re.sub(r"//[^/@]*@", "//", place))
    return ";".join([place, *(one for one in parameters if "database" in one.partition("=")[0].lower())])


def _bounds(spark: SparkSession, table: Table, start: int) -> tuple[int | None, int | None]:
    """The smallest and largest value of the column from `start` on. JobError: the column is not fit."""
    column = table.column
    what = f"SELECT MIN({column}) AS low, MAX({column}) AS high FROM {table.name} WHERE {column} >= {start}"
    bounds = _read(spark, table, what)
    kind = bounds.schema[0].dataType
    if not isinstance(kind, IntegralType) and not (isinstance(kind, DecimalType) and kind.scale == 0):
        raise JobError(
            f"{table.name}: column {column} has the type {kind.simpleString()}, but must have an integer type", _BAD
        )
    what = f"SELECT COUNT(*) AS n FROM {table.name} WHERE {column} < 0 OR {column} IS NULL"
    (unfit,) = _read(spark, table, what).collect()[0]
    if unfit:
        raise JobError(f"{table.name}: {unfit} rows have a negative {column}, or none", _BAD)
    low, high = bounds.collect()[0]
    return (None, None) if low is None else (int(low), int(high))


def _rows(spark: SparkSession, table: Table, low: int, high: int) -> DataFrame:
    """The rows from `low` to `high`: what is added meanwhile is for the next import."""
    parts = dict[str, str]()
    if high - low >= table.partitions > 1:
        parts = {
            "partitionColumn": table.column,
            "lowerBound": str(low),
            "upperBound": str(high + 1),
            "numPartitions": str(table.partitions),
        }
    what = f"SELECT * FROM {table.name} WHERE {table.column} BETWEEN {low} AND {high}"
    return _read(spark, table, what, parts)


def _staged(rows: DataFrame, target: ImportTarget, fields: RecordFields) -> list[StagedFiles]:
    """Stages rows in Spark's tasks, which get them as Arrow batches."""
    plan = target.plan()
    stage = _Stage(target.ref, plan, target.topic, fields)
    try:
        return [pickle.loads(row.staged) for row in rows.mapInArrow(stage, "staged BINARY").collect()]
    except BaseException:
        target.discard(plan)
        raise


@dataclass(frozen=True)
class _Stage:
    store: StoreRef
    staging: StagingPlan
    topic: str
    fields: RecordFields

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with conditions_shown():
            yield self._staged(batches)

    def _staged(self, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch:
        records = (records_of(pa.Table.from_batches([batch]), self.fields) for batch in batches if batch.num_rows)
        staged = stage_rows(self.store, self.staging, self.topic, records)
        return pa.record_batch({"staged": [pickle.dumps(staged)]})


def _what(error: PySparkException | Py4JJavaError) -> str:
    """What the database, or Spark, says, without the stack."""
    text = error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else str(error)
    return next((line for line in str(text).splitlines() if line.strip()), type(error).__name__)
