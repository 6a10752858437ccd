"""What a small micro-batch costs: a topic of 2 partitions into `noop` and into a topic, 1,000 rows a micro-batch.

    python benchmarks/microbatch.py [--rounds 3] [--batches 30] [--kafka]

Each way in turn, in several rounds; printed are the medians of a whole trigger in ms, warm, and how many times as long
they are as what Spark takes by itself: its own source of rows in the JVM, into `noop`. With --kafka also Spark's Kafka
connector and a broker on this machine (`make kafka-jars` first).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_log import Store

ROWS, COLD = 1000, 5
#: Options of the read, by the name of the way.
WAYS = {"a task a partition": {}, "smallBatchBytes=1m": {"smallBatchBytes": "1m"}}


def session() -> SparkSession:
    """With the settings for short micro-batches (docs/spark.md)."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    manager = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.streaming.checkpointFileManagerClass", manager)
        .config("spark.sql.streaming.numRecentProgressUpdates", "1000")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def triggers(query: StreamingQuery, batches: int) -> list[int]:
    """The ms of each whole trigger, without those in which the processes start."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and query.isActive:
        done = [one["durationMs"]["triggerExecution"] for one in query.recentProgress if one["numInputRows"]]
        if len(done) >= batches + COLD:
            break
        time.sleep(0.1)
    query.stop()
    return done[COLD : COLD + batches]


@contextlib.contextmanager
def kafka(spark: SparkSession, folder: str, batches: int) -> Iterator[str]:
    """The address of a broker with the same records in its topic t."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests/kafka"))
    from kafka import KafkaProducer  # noqa: PLC0415  (only with --kafka)
    from kafka_clients import create_topics  # noqa: PLC0415
    from kafka_tools import SPARK_JARS, Broker  # noqa: PLC0415

    for jar in SPARK_JARS.glob("*.jar"):
        spark.sql(f"ADD JAR '{jar}'")
    Path(folder, "broker").mkdir()
    broker = Broker(f"{folder}/broker")
    broker.start()
    try:
        create_topics(broker, {"t": 2, "out": 2}, {})
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
        for number in range(batches * ROWS):
            producer.send("t", key=b"k", value=b"v" * 100, partition=number % 2)
        producer.close()
        yield broker.bootstrap
    finally:
        broker.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, default=30)
    parser.add_argument("--kafka", action="store_true")
    given = parser.parse_args()
    spark = session()
    found = defaultdict(list)
    with contextlib.ExitStack() as held:
        folder = held.enter_context(tempfile.TemporaryDirectory())
        address = held.enter_context(kafka(spark, folder, given.batches + COLD)) if given.kafka else ""
        store = Store.create(f"{folder}/store")
        store.create_topic("t", 2)
        rows = pa.record_batch({"key": [b"k"] * (ROWS // 2), "value": [b"v" * 100] * (ROWS // 2)})
        for _ in range(given.batches + COLD):
            for partition in range(2):
                store.append("t", rows, partition=partition)

        def run(name: str, df: DataFrame, sink: str, **options: str) -> None:
            checkpoint = tempfile.mkdtemp(dir=folder)
            writer = df.writeStream.format(sink).options(checkpointLocation=checkpoint, **options)
            found[name] += triggers(writer.trigger(processingTime="0 seconds").start(), given.batches)

        for number in range(given.rounds):
            rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).option("numPartitions", 2)
            run("Spark's rows to noop", rate.load(), "noop")
            for name, options in WAYS.items():
                reader = spark.readStream.format("pylog").options(
                    subscribe="t", startingOffsets="earliest", maxOffsetsPerTrigger=str(ROWS), **options
                )
                df = reader.load(store.path).select("key", "value")
                run(f"topic to noop, {name}", df, "noop")
                store.ensure_topic(f"out{number}")
                run(f"topic to topic, {name}", df, "pylog", path=store.path, topic=f"out{number}")
            if address:
                brokers = {"kafka.bootstrap.servers": address}
                reader = spark.readStream.format("kafka").options(
                    subscribe="t", startingOffsets="earliest", maxOffsetsPerTrigger=str(ROWS), **brokers
                )
                df = reader.load().select("key", "value")
                run("Kafka to noop", df, "noop")
                run("Kafka to Kafka", df, "kafka", topic="out", **brokers)
    least = statistics.median(found["Spark's rows to noop"])
    for name, times in found.items():
        middle = statistics.median(times)
        print(f"{name:40} {middle:6.0f} ms {middle / least:5.1f} times  ({len(times)} triggers)")
    spark.stop()


if __name__ == "__main__":
    main()
