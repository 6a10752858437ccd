"""What large micro-batches cost: a topic of 4 partitions into `noop` and into a topic, 187,500 rows a micro-batch.

    python benchmarks/streaming.py [--batches 8] [--rows 187500] [--rounds 7] [--kafka] [--folder FOLDER] [--document]

Keys have 8 bytes, values 100, half of them text. Each way in turn, in several rounds after an uncounted first one, in
a session with Spark's own defaults: a query of `Trigger.AvailableNow` over --batches micro-batches, from `load` to its
end. The first rows of the table are the bound of a streaming source and a streaming sink in Python: a source whose
Arrow batches are ready in memory, a sink that drops what it gets; their tasks do what those of pylog do to start soon.
With --kafka also Spark's Kafka connector and a broker on this machine (`make kafka-jars` first), and how many times as
fast as Kafka's each way is, within each round. "Set up" has the settings for large micro-batches
(docs/guides/streaming.md). A batch query of all the rows is there for comparison. The second table has the parts of a
trigger, in ms: the medians of a query's triggers but the first two. All are medians of the rounds.
"""

from __future__ import annotations

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
import tables
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from pyspark_log import Store
from pyspark_log.spark_connector.worker_process import SentToTasks, spare_modules

PARTITIONS, COLD = 4, 2
PARTS = ("addBatch", "latestOffset", "getBatch", "queryPlanning", "walCommit", "commitOffsets", "triggerExecution")


class ReadyMade(spark_io.ReadyMade):
    """The same as a stream: each micro-batch has all its rows."""

    def streamReader(self, schema):  # noqa: N802
        return ReadyMadeStreamReader(int(self.options["rows"]), int(self.options["batches"]), self.options["path"])


class ReadyMadeStreamReader(SentToTasks, DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, rows: int, batches: int, folder: str) -> None:
        self.batches, self.at, self.reader = batches, 0, spark_io.ReadyMadeReader(rows, folder)

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"batch": 0}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        pass

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(1)

    def latestOffset(self, start, limit) -> dict[str, int]:  # noqa: N802
        self.at = min(self.at + 1, self.batches)
        return {"batch": self.at}

    def partitions(self, start, end) -> list[InputPartition]:
        return self.reader.partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        spare_modules()
        return self.reader.read(partition)


class Dropping(spark_io.Dropping):
    """The same as a sink of streams."""

    def streamWriter(self, schema, overwrite):  # noqa: N802
        return DroppingStreamWriter()


class DroppingStreamWriter(SentToTasks, DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        spare_modules()
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
        # The ms of a trigger's parts, in each round.
        self.found: dict[str, list[dict[str, float]]] = defaultdict(list)

    def stream(self, name: str, frame: Callable[[], DataFrame], sink: str, **options: str) -> None:
        """Runs a query over all the rows; keeps its time and the medians of the parts of its warm triggers."""
        checkpoint = tempfile.mkdtemp(dir=self.folder)
        begun = time.perf_counter()
        writer = frame().writeStream.format(sink).options(checkpointLocation=checkpoint, **options)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        whole = (time.perf_counter() - begun) * 1000
        done = [one for one in query.recentProgress if one["numInputRows"]]
        assert [one["numInputRows"] for one in done] == [self.rows] * self.batches, name
        parts = [one["durationMs"] for one in done[COLD:]]
        medians = {part: statistics.median(one.get(part, 0) for one in parts) for part in PARTS}
        self.found[name].append({"whole": whole, **medians})

    def batch(self, name: str, work: Callable[[], None]) -> None:
        """Runs a batch query over all the rows."""
        begun = time.perf_counter()
        work()
        self.found[name].append({"whole": (time.perf_counter() - begun) * 1000})

    def speeds(self) -> list[list[str]]:
        """Lines of the first table."""
        lines, total = [], self.rows * self.batches
        for name, found in self.found.items():
            kafka, took = streams.beside(self.found, name), [one["whole"] for one in found]
            times = "" if kafka is None else f"{tables.ratio([one['whole'] for one in kafka], took):.2f}"
            whole = statistics.median(took)
            lines.append([name, f"{whole / 1000:.2f}", f"{total / whole / 1000:.2f}", times])
        return lines

    def parts(self) -> list[list[str]]:
        """Lines of the second table."""
        return [
            [name, *(f"{statistics.median(one[part] for one in found):.0f}" for part in PARTS)]
            for name, found in self.found.items()
            if PARTS[0] in found[0]
        ]


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
    parser = tables.parser(__doc__)
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--rows", type=int, default=187_500)
    parser.add_argument("--kafka", action="store_true")
    parser.add_argument("--only", default="", help="the ways whose names begin with this")
    given = parser.parse_args()
    spark = streams.session(conf="")
    for module in (spark_io, streams, tables):
        cloudpickle.register_pickle_by_value(module)
    for source in (ReadyMade, Dropping):
        spark.dataSource.register(source)
    batches = given.batches
    with contextlib.ExitStack() as held:
        folder = held.enter_context(tempfile.TemporaryDirectory(dir=given.folder))
        bench = Bench(spark, folder, batches, given.rows)
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

        def pylog() -> DataFrame:
            return spark.readStream.format("pylog").options(**each).load(store.path)

        def kafka() -> DataFrame:
            return spark.readStream.format("kafka").options(**each, **brokers).load()

        def set_up() -> DataFrame:
            reader = spark.readStream.schema("key binary, value binary").format("pylog")
            return reader.options(partitionsPerTask="2", **each).load(store.path)

        def pairs(df: DataFrame) -> DataFrame:
            return df.select("key", "value")

        for number in range(given.rounds + 1):
            out = {"path": store.path, "topic": f"out{number}"}
            store.create_topic(out["topic"], PARTITIONS)
            # Of those that do the same, Kafka's is the last.
            ways = {
                "ready-made to `noop`": lambda name: bench.stream(name, ready, "noop"),
                "pylog to `noop`": lambda name: bench.stream(name, pylog, "noop"),
                "pylog to `noop`, set up": lambda name: bench.stream(name, set_up, "noop"),
                "Kafka to `noop`": lambda name: bench.stream(name, kafka, "noop"),
                "ready-made, dropped": lambda name: bench.stream(name, lambda: pairs(ready()), "dropping"),
                "pylog to a topic": lambda name, out=out: bench.stream(name, lambda: pairs(pylog()), "pylog", **out),
                "pylog to a topic, set up": lambda name, out=out: spark_io.unbounded(
                    spark, lambda: bench.stream(name, set_up, "pylog", **out)
                ),
                "Kafka to a topic": lambda name: bench.stream(
                    name, lambda: pairs(kafka()), "kafka", topic="out", **brokers
                ),
                "pylog to `noop`, all rows in a batch": lambda name: bench.batch(name, lambda: noop(topic)),
                "Kafka to `noop`, all rows in a batch": lambda name: bench.batch(
                    name, lambda: noop(spark.read.format("kafka").options(**limits, **brokers).load())
                ),
            }
            for name, run in ways.items():
                if name.startswith(given.only) and (given.kafka or not name.startswith("Kafka")):
                    run(name)
            if not number:
                bench.found.clear()  # Of a JVM that is not warm.
        rows = f"{batches} micro-batches of {given.rows:,} rows"
        header = [rows, "seconds", "M rows/s", "times Kafka's speed"]
        tables.show("spark: streaming", header, bench.speeds(), document=given.document)
        tables.show("spark: parts of a trigger", ["ms", *PARTS], bench.parts(), document=given.document)
    spark.stop()


if __name__ == "__main__":
    main()
