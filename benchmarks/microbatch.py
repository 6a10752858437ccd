"""What a small micro-batch costs: a topic of 2 partitions into `noop` and into a topic, 1,000 rows a micro-batch.

    python benchmarks/microbatch.py [--batches 10] [--rounds 7] [--kafka] [--folder FOLDER] [--document]

Each way in turn, in several rounds; medians of a whole trigger in ms, warm, --batches of them a round. All of it twice:
Spark talks to its Python processes over Unix sockets, and by TCP, as it does by default. Spark's own source of rows in
the JVM, into `noop`, is what Spark takes by itself. With --kafka also Spark's Kafka connector and a broker on this
machine (`make kafka-jars` first).
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import statistics
import tempfile
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor

import pyarrow as pa
import streams
import tables
from pyspark.sql import DataFrame

from pyspark_log import Store

ROWS, PARTITIONS, COLD = 1000, 2, 5
#: Options of the read, by the name of the way.
WAYS = {"a task a partition": {}, "smallBatchBytes=1m": {"smallBatchBytes": "1m"}}


def fill(address: str, batches: int) -> None:
    """Sends the same records to the topic t of a broker."""
    from kafka import KafkaProducer  # noqa: PLC0415  (only with --kafka)

    producer = KafkaProducer(bootstrap_servers=address)
    for number in range(batches * ROWS):
        producer.send("t", key=b"k", value=b"v" * 100, partition=number % 2)
    producer.close()


def measure(given: argparse.Namespace, sockets: bool) -> dict[str, float]:
    """The median of each way's triggers in ms, by name; run in a process of its own, which starts Spark."""
    spark = streams.session(**{"spark.python.unix.domain.socket.enabled": str(sockets).lower()})
    found = defaultdict(list)
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

        def run(name: str, df: DataFrame, sink: str, **options: str) -> None:
            checkpoint = tempfile.mkdtemp(dir=folder)
            writer = df.writeStream.format(sink).options(checkpointLocation=checkpoint, **options)
            query = writer.trigger(processingTime="0 seconds").start()
            done = streams.triggers(query, given.batches + COLD)[COLD:]
            found[name] += [one["durationMs"]["triggerExecution"] for one in done]

        limits = {"subscribe": "t", "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(ROWS)}
        for number in range(given.rounds):
            rate = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=ROWS, numPartitions=PARTITIONS)
            run("Spark's own source of rows to `noop`", rate.load(), "noop")
            for name, options in WAYS.items():
                df = spark.readStream.format("pylog").options(**limits, **options).load(store.path)
                df = df.select("key", "value")
                run(f"topic to `noop`: {name}", df, "noop")
                store.ensure_topic(f"out{number}")
                run(f"topic to topic: {name}", df, "pylog", path=store.path, topic=f"out{number}")
            if address:
                brokers = {"kafka.bootstrap.servers": address}
                df = spark.readStream.format("kafka").options(**limits, **brokers).load().select("key", "value")
                run("Kafka to `noop`", df, "noop")
                run("Kafka to Kafka", df, "kafka", topic="out", **brokers)
    spark.stop()
    return {name: statistics.median(times) for name, times in found.items()}


def times(name: str, found: dict[str, float]) -> str:
    """How many times as long as Kafka's a way's trigger is; "" if nothing of Kafka's is like it."""
    beside = {"`noop`": "Kafka to `noop`", "topic": "Kafka to Kafka", "Kafka": "Kafka to Kafka"}
    kafka = found.get(beside[name.partition(" to ")[2].partition(":")[0]])
    return f"{found[name] / kafka:.2f}" if kafka and not name.startswith("Spark") else ""


def main() -> None:
    parser = tables.parser(__doc__)
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--kafka", action="store_true")
    given = parser.parse_args()
    both = []
    for sockets in (True, False):
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            both.append(pool.submit(measure, given, sockets).result())
    tables.show(
        "short micro-batches", ["ms a trigger", "Unix sockets", "times Kafka's", "TCP", "times Kafka's"],
        [[name, *(cell for found in both for cell in (f"{found[name]:.0f}", times(name, found)))]
         for name in sorted(both[0], key=list(ORDER).index)], document=given.document, page="spark.md",
    )  # fmt: skip


if __name__ == "__main__":
    main()
