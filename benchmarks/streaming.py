"""What large micro-batches cost: a topic of 4 partitions into `noop` and into a topic, 190,000 rows a micro-batch.

    python benchmarks/streaming.py [--rounds 3] [--batches 8] [--rows 190000] [--kafka]

Keys have 8 bytes, values 100, half of them text. Each way in turn, in several rounds. The first rows of the table are
the bound of a streaming source and a streaming sink in Python: a source whose Arrow batches are ready in memory, a sink
that drops what it gets. With --kafka also Spark's Kafka connector and a broker on this machine (`make kafka-jars`
first), and how many times as fast as Kafka's each way is. "Set up" has the settings for large micro-batches
(docs/spark.md). A batch query of all the rows is there for comparison. The second table has the parts of a trigger, in
ms. All are medians of warm triggers.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator

import pyarrow as pa
import spark_io
import streams
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)

from pyspark_log import Store

PARTITIONS, COLD = 4, 2
PARTS = ("addBatch", "latestOffset", "getBatch", "queryPlanning", "walCommit", "commitOffsets", "triggerExecution")


class ReadyMade(spark_io.ReadyMade):
    """The same as a stream: each micro-batch has all its rows."""

    def streamReader(self, schema):  # noqa: N802
        return ReadyMadeStreamReader(int(self.options["rows"]), int(self.options["batches"]), self.options["path"])


class ReadyMadeStreamReader(DataSourceStreamReader):
    def __init__(self, rows: int, batches: int, folder: str) -> None:
        self.batches, self.at, self.reader = batches, 0, spark_io.ReadyMadeReader(rows, folder)

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"batch": 0}

    def latestOffset(self) -> dict[str, int]:  # noqa: N802
        self.at = min(self.at + 1, self.batches)
        return {"batch": self.at}

    def partitions(self, start, end) -> list[InputPartition]:
        return self.reader.partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self.reader.read(partition)


class Dropping(spark_io.Dropping):
    """The same as a sink of streams."""

    def streamWriter(self, schema, overwrite):  # noqa: N802
        return DroppingStreamWriter()


class DroppingStreamWriter(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages, batchId) -> None:  # noqa: N803
        pass

    def abort(self, messages, batchId) -> None:  # noqa: N803
        pass


class Bench:
    """The ways, and what was measured."""

    def __init__(self, spark: SparkSession, folder: str, batches: int, rows: int) -> None:
        self.spark, self.folder, self.batches, self.rows = spark, folder, batches, rows
        self.found: dict[str, list[dict[str, int]]] = defaultdict(list)
        self.seconds: dict[str, list[float]] = defaultdict(list)

    def stream(self, name: str, df: DataFrame, sink: str, **options: str) -> None:
        """Runs a query over all the rows; keeps the parts of its warm triggers."""
        checkpoint = tempfile.mkdtemp(dir=self.folder)
        writer = df.writeStream.format(sink).options(checkpointLocation=checkpoint, **options)
        query = writer.trigger(processingTime="0 seconds").start()
        done = streams.triggers(query, self.batches + COLD)
        assert len(done) == self.batches + COLD, query.exception()
        assert {one["numInputRows"] for one in done} == {self.rows}
        self.found[name] += [one["durationMs"] for one in done[COLD:]]

    def batch(self, name: str, work: Callable[[], None]) -> None:
        """Runs a batch query over all the rows."""
        start = time.perf_counter()
        work()
        self.seconds[name].append((time.perf_counter() - start) / (self.batches + COLD))

    def speed(self, name: str) -> float:
        """Rows/s."""
        if name in self.seconds:
            return self.rows / statistics.median(self.seconds[name])
        return self.rows / statistics.median(one["triggerExecution"] for one in self.found[name]) * 1000

    def report(self) -> None:
        """Prints both tables."""
        print(f"{'':<42}{'rows/s':>10}{'ms':>8}{'of Kafka':>10}")
        for name in (*self.found, *self.seconds):
            beside = f"Kafka{name[name.index(' to '):].partition(',')[0]}"
            known = beside in self.found or beside in self.seconds
            times = f"{self.speed(name) / self.speed(beside):.2f}" if known else ""
            print(f"{name:<42}{self.speed(name):>10,.0f}{self.rows / self.speed(name) * 1000:>8.0f}{times:>10}")
        print(f"\n{'ms':<42}" + "".join(f"{part:>17}" for part in PARTS))
        for name, triggers in self.found.items():
            middle = (statistics.median(one.get(part, 0) for one in triggers) for part in PARTS)
            print(f"{name:<42}" + "".join(f"{one:>17.0f}" for one in middle))


def fill(store: Store, ready: str, batches: int, rows: int) -> None:
    """Puts the rows of all micro-batches into a topic, and those of one into the folder of the ready-made source."""
    store.create_topic("t", PARTITIONS)
    os.mkdir(ready)
    for partition in range(PARTITIONS):
        batch = spark_io.rows_of(partition)
        with pa.ipc.new_file(f"{ready}/{partition}", batch.schema) as file:
            file.write_batch(batch)
        for chunk in spark_io.chunks(batch.select(["key", "value"]), batches * rows // PARTITIONS):
            store.append("t", chunk, partition=partition)


def noop(df: DataFrame) -> None:
    df.write.format("noop").mode("overwrite").save()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--rows", type=int, default=190_000)
    parser.add_argument("--kafka", action="store_true")
    parser.add_argument("--only", default="", help="the ways whose names begin with this")
    given = parser.parse_args()
    spark = streams.session()
    for module in (spark_io, streams):
        cloudpickle.register_pickle_by_value(module)
    for source in (ReadyMade, Dropping):
        spark.dataSource.register(source)
    batches = given.batches + COLD
    with contextlib.ExitStack() as held:
        folder = held.enter_context(tempfile.TemporaryDirectory())
        bench = Bench(spark, folder, given.batches, given.rows)
        store = Store.create(f"{folder}/store")
        fill(store, f"{folder}/ready", batches, given.rows)
        limits = {"startingOffsets": "earliest", "subscribe": "t"}
        each = {"maxOffsetsPerTrigger": str(given.rows), **limits}
        topic = spark.read.format("pylog").options(**limits).load(store.path)
        brokers: dict[str, str] = {}
        if given.kafka:
            address = held.enter_context(streams.kafka(spark, {"t": PARTITIONS, "out": PARTITIONS}))
            brokers = {"kafka.bootstrap.servers": address}
            topic.select("key", "value", "partition").write.format("kafka").options(topic="t", **brokers).save()

        def ready() -> DataFrame:
            reader = spark.readStream.format("ready_made")
            return reader.options(rows=str(given.rows // PARTITIONS), batches=str(batches)).load(f"{folder}/ready")

        def stream(kind: str, path: str = "", **options: str) -> DataFrame:
            reader = spark.readStream.format(kind).options(**each, **options)
            return reader.load(path) if path else reader.load()

        def set_up() -> DataFrame:
            reader = spark.readStream.schema("key binary, value binary").format("pylog")
            return reader.options(partitionsPerTask="2", **each).load(store.path)

        def pairs(df: DataFrame) -> DataFrame:
            return df.select("key", "value")

        for number in range(given.rounds):
            out = {"path": store.path, "topic": f"out{number}"}
            store.ensure_topic(out["topic"])
            ways = {
                "ready-made to noop": lambda: bench.stream("ready-made to noop", ready(), "noop"),
                "ready-made to topic, dropped": lambda: bench.stream(
                    "ready-made to topic, dropped", pairs(ready()), "dropping"
                ),
                "pylog to noop": lambda: bench.stream("pylog to noop", stream("pylog", store.path), "noop"),
                "pylog to topic": lambda out=out: bench.stream(
                    "pylog to topic", pairs(stream("pylog", store.path)), "pylog", **out
                ),
                "pylog to noop, set up": lambda: bench.stream("pylog to noop, set up", set_up(), "noop"),
                "pylog to topic, set up": lambda out=out: spark_io.unbounded(
                    spark, lambda: bench.stream("pylog to topic, set up", set_up(), "pylog", **out)
                ),
                "pylog to noop in a batch": lambda: bench.batch("pylog to noop in a batch", lambda: noop(topic)),
            }
            if given.kafka:
                kafka = spark.read.format("kafka").options(**limits, **brokers)
                ways |= {
                    "Kafka to noop": lambda: bench.stream("Kafka to noop", stream("kafka", **brokers), "noop"),
                    "Kafka to topic": lambda: bench.stream(
                        "Kafka to topic", pairs(stream("kafka", **brokers)), "kafka", topic="out", **brokers
                    ),
                    "Kafka to noop in a batch": lambda kafka=kafka: bench.batch(
                        "Kafka to noop in a batch", lambda: noop(kafka.load())
                    ),
                }
            for name, run in ways.items():
                if name.startswith(given.only):
                    run()
        bench.report()
    spark.stop()


if __name__ == "__main__":
    main()
