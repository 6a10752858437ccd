"""What exactly-once costs: Spark writes that are published, compared with a sink whose tasks append directly.

    python benchmarks/publish_cost.py [--rows 1000000] [--batches 6] [--rounds 7] [--folder DIR] [--document]

Three sinks take turns, in each round. `drop` forgets its rows: what Spark needs. `append` calls Store.append in its
tasks, synced when the call returns: what is written twice when a task or a micro-batch is tried again. `publish` is
pylog.

Large writes: rows with keys of 8 bytes and values of 100 random ones, in one job of 4 tasks. Micro-batches: 20 rows in
two tasks, to a topic with two partitions, --batches of them a round; Spark's `addBatch` (tasks and commit) and
`triggerExecution` (all of it, with what Spark writes to the checkpoint), in ms.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator

import pyarrow as pa
import spark_io
import streams
import tables
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from pyspark_log import Store

#: With their names in the tables.
SINKS = {"drop": "drop", "append": "append directly", "publish": "publish"}
FORMATS = {"drop": "drop", "append": "append", "publish": "pylog"}
TASKS, PARTITIONS = 4, 2
SMALL = 20
# Batches that a query makes before any counts: processes start, and Java compiles.
WARM_UP = 4


class Drop(DataSource):
    """Takes rows and forgets them."""

    @classmethod
    def name(cls) -> str:
        return "drop"

    def writer(self, schema, overwrite):
        return BatchWriter("", "")

    def streamWriter(self, schema, overwrite):  # noqa: N802
        return StreamWriter("", "")


class Append(DataSource):
    """Appends rows as they come."""

    @classmethod
    def name(cls) -> str:
        return "append"

    def writer(self, schema, overwrite):
        return BatchWriter(self.options["path"], self.options["topic"])

    def streamWriter(self, schema, overwrite):  # noqa: N802
        return StreamWriter(self.options["path"], self.options["topic"])


class Writer:
    def __init__(self, path: str, topic: str) -> None:
        self.path, self.topic = path, topic

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for batch in iterator:
            if self.path and batch.num_rows:
                Store.shared(self.path).append(self.topic, batch, sync=True)
        return WriterCommitMessage()


class BatchWriter(Writer, DataSourceArrowWriter):
    def commit(self, messages) -> None:
        pass


class StreamWriter(Writer, DataSourceStreamArrowWriter):
    def commit(self, messages, batchId) -> None:  # noqa: N803
        pass

    def abort(self, messages, batchId) -> None:  # noqa: N803
        pass


def large(spark: SparkSession, folder: str, rows: int, rounds: int) -> list[list[str]]:
    """One large job a sink, in turns: lines of the table."""
    ready = f"{folder}/ready"
    os.mkdir(ready)
    for number in range(TASKS):
        batch = spark_io.rows_of(number)
        with pa.ipc.new_file(f"{ready}/{number}", batch.schema) as file:
            file.write_batch(batch)
    df = spark.read.format("ready_made").option("rows", rows // TASKS).load(ready).select("key", "value")
    stores: list[str] = []

    def new_store() -> None:
        for path in stores:
            shutil.rmtree(path, ignore_errors=True)
        stores.append(f"{folder}/store {len(stores)}")
        Store.create(stores[-1]).create_topic("t", TASKS)

    def write(sink: str) -> None:
        df.write.format(FORMATS[sink]).mode("append").option("topic", "t").save(stores[-1])

    times = spark_io.take_turns({sink: lambda sink=sink: write(sink) for sink in SINKS}, rounds, new_store)
    return [
        [
            SINKS[sink],
            f"{statistics.median(taken):.2f}",
            f"{rows / statistics.median(taken) / 1e6:.2f}",
            f"{tables.ratio(taken, times['append']):.2f}",
        ]
        for sink, taken in times.items()
    ]


def small(spark: SparkSession, folder: str, batches: int, rounds: int) -> list[list[str]]:
    """Streaming queries of small micro-batches, in turns: lines of the table."""
    store = Store.create(f"{folder}/micro")
    for sink in SINKS:
        store.create_topic(sink, PARTITIONS)
    found: dict[str, list[dict[str, int]]] = {sink: [] for sink in SINKS}
    for number in range(rounds):
        for sink in SINKS:
            rows = (
                spark.readStream.format("rate-micro-batch")
                .options(rowsPerBatch=SMALL, numPartitions=PARTITIONS)
                .load()
                .selectExpr("lpad(value, 100, '0') value")
            )
            found[sink] += durations(rows, sink, store.path, f"{folder}/checkpoint {sink} {number}", batches)
    return [
        [name, *(f"{percentile(found[sink], part, percent):.0f}"
                 for part in ("addBatch", "triggerExecution") for percent in (50, 90))]
        for sink, name in SINKS.items()
    ]  # fmt: skip


def durations(rows: DataFrame, sink: str, path: str, checkpoint: str, batches: int) -> list[dict[str, int]]:
    """What Spark measures of `batches` micro-batches."""
    query = (
        rows.writeStream.format(FORMATS[sink])
        .options(path=path, topic=sink, checkpointLocation=checkpoint)
        .trigger(processingTime="200 milliseconds")
        .start()
    )
    while len(query.recentProgress) < batches + WARM_UP and query.isActive:
        time.sleep(0.05)
    # Not in the middle of a micro-batch.
    while query.status["isTriggerActive"]:
        time.sleep(0.001)
    progress = query.recentProgress[WARM_UP : WARM_UP + batches]
    query.stop()
    return [one.durationMs for one in progress]


def percentile(found: list[dict[str, int]], name: str, percent: int) -> float:
    return statistics.quantiles((one[name] for one in found), n=100, method="inclusive")[percent - 1]


def main() -> None:
    parser = tables.parser(__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--batches", type=int, default=6)
    given = parser.parse_args()
    # Spark's workers find none of the modules here.
    for module in (spark_io, streams, tables, sys.modules[__name__]):
        cloudpickle.register_pickle_by_value(module)
    spark = spark_io.make_session()
    for source in (Drop, Append):
        spark.dataSource.register(source)
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        tables.show(
            "publish cost: one job",
            [f"{given.rows:,} rows in {TASKS} tasks", "seconds", "M rows/s", "of the append"],
            large(spark, folder, given.rows, given.rounds),
            document=given.document,
        )
        tables.show(
            "publish cost: micro-batches",
            [f"{SMALL} rows in {PARTITIONS} tasks, ms", "`addBatch`", "its 90 %", "whole trigger", "its 90 %"],
            small(spark, folder, given.batches, given.rounds),
            document=given.document,
        )
    spark.stop()


if __name__ == "__main__":
    main()
