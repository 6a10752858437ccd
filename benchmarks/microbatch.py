"""What a small micro-batch costs: a topic of 2 partitions into `noop` and into a topic, 1,000 rows a micro-batch.

    python benchmarks/microbatch.py [--batches 10] [--rounds 7] [--kafka] [--folder FOLDER] [--document]

Each way in turn, in several rounds, in a session with Spark's own defaults; medians in ms of a whole trigger, warm,
--batches of them a round, and of a whole query of `Trigger.AvailableNow` with 1,000 rows, from `load` to its end.
The last row into `noop` is the bound of a source in Python: its rows are ready, and it does nothing else. With
--kafka also Spark's Kafka connector and a broker on this machine (`make kafka-jars` first).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator

import pyarrow as pa
import streams
import tables
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_log import Store

ROWS, PARTITIONS, COLD = 1000, 2, 5


class Ready(DataSource):
    """A source whose rows are ready: what is left is Spark's part."""

    @classmethod
    def name(cls) -> str:
        return "ready"

    def schema(self) -> str:
        return "key binary, value binary"

    def streamReader(self, schema):  # noqa: N802
        return ReadyReader(int(self.options["micro_batches"]))


class ReadyReader(DataSourceStreamReader):
    def __init__(self, batches: int) -> None:
        self.at, self.batches = 0, batches

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"batch": 0}

    def latestOffset(self) -> dict[str, int]:  # noqa: N802
        self.at = min(self.at + 1, self.batches)
        return {"batch": self.at}

    def partitions(self, start, end) -> list[InputPartition]:
        return [InputPartition(number) for number in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        each = ROWS // PARTITIONS
        yield pa.record_batch({"key": [b"k"] * each, "value": [b"v" * 100] * each})


def fill(address: str, batches: int) -> None:
    """Sends the same records to the topic t of a broker."""
    from kafka import KafkaProducer  # noqa: PLC0415  (only with --kafka)

    producer = KafkaProducer(bootstrap_servers=address)
    for number in range(batches * ROWS):
        producer.send("t", key=b"k", value=b"v" * 100, partition=number % 2)
    producer.close()


def measure(given: argparse.Namespace) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """The medians of each way's triggers in the rounds, and its whole queries, in ms, by name."""
    spark, found, whole = streams.session(conf=""), defaultdict(list), defaultdict(list)
    spark.dataSource.register(Ready)
    with contextlib.ExitStack() as held:
        folder = held.enter_context(tempfile.TemporaryDirectory(dir=given.folder))
        address = ""
        if given.kafka:
            address = held.enter_context(streams.kafka(spark, {"t": PARTITIONS, "out": PARTITIONS}))
            fill(address, given.batches + COLD)
        store = Store.create(f"{folder}/store")
        store.create_topic("t", PARTITIONS)
        each = ROWS // PARTITIONS
        rows = pa.record_batch({"key": [b"k"] * each, "value": [b"v" * 100] * each})
        for _ in range(given.batches + COLD):
            for partition in range(PARTITIONS):
                store.append("t", rows, partition=partition)
        last = json.dumps({"t": dict.fromkeys(map(str, range(PARTITIONS)), each * (given.batches + COLD - 1))})

        def run(name: str, frame: Callable[[str], DataFrame], sink: str, **options: str) -> None:
            def start(df: DataFrame, **trigger: object) -> StreamingQuery:
                checkpoint = tempfile.mkdtemp(dir=folder)
                writer = df.writeStream.format(sink).options(checkpointLocation=checkpoint, **options)
                return writer.trigger(**trigger).start()

            done = streams.triggers(start(frame("earliest"), processingTime="0 seconds"), given.batches + COLD)[COLD:]
            found[name].append(statistics.median(one["durationMs"]["triggerExecution"] for one in done))
            begun = time.perf_counter()
            query = start(frame(last), availableNow=True)
            query.awaitTermination()
            whole[name].append((time.perf_counter() - begun) * 1000)
            assert sum(one["numInputRows"] for one in query.recentProgress) == ROWS, name

        def topic(kind: str, path: str = "", **options: str) -> Callable[[str], DataFrame]:
            def frame(start: str) -> DataFrame:
                limits = {"subscribe": "t", "startingOffsets": start, "maxOffsetsPerTrigger": str(ROWS)}
                reader = spark.readStream.format(kind).options(**limits, **options)
                return (reader.load(path) if path else reader.load()).select("key", "value")

            return frame

        def ready(start: str) -> DataFrame:
            return spark.readStream.format("ready").option("micro_batches", 1 if start == last else 1000).load()

        for number in range(given.rounds):
            brokers = {"kafka.bootstrap.servers": address}
            run("topic to `noop`", topic("pylog", store.path), "noop")
            run("rows that are ready, to `noop`", ready, "noop")
            if address:
                run("Kafka to `noop`", topic("kafka", **brokers), "noop")
            out = {"path": store.path, "topic": f"out{number}"}
            store.ensure_topic(out["topic"])
            run("topic to topic", topic("pylog", store.path), "pylog", **out)
            if address:
                run("Kafka to Kafka", topic("kafka", **brokers), "kafka", topic="out", **brokers)
    spark.stop()
    return dict(found), dict(whole)


def cells(found: dict[str, list[float]], name: str) -> list[str]:
    """Of a way: the ms, and how many times as long that is as with Kafka."""
    kafka = streams.beside(found, name)
    return [f"{statistics.median(found[name]):.0f}", f"{tables.ratio(found[name], kafka):.2f}" if kafka else ""]


def main() -> None:
    parser = tables.parser(__doc__)
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--kafka", action="store_true")
    given = parser.parse_args()
    both = measure(given)
    tables.show(
        "short micro-batches",
        ["ms", "a trigger", "times Kafka's", "a whole query", "times Kafka's"],
        [[name, *(cell for found in both for cell in cells(found, name))] for name in both[0]],
        document=given.document,
    )


if __name__ == "__main__":
    main()
