"""What a small micro-batch costs: a topic of 2 partitions into `noop` and into a topic, 1,000 rows a micro-batch.

    python benchmarks/microbatch.py [--rounds 3] [--batches 30] [--kafka] [--tcp]

Each way in turn, in several rounds; printed are the medians of a whole trigger in ms, warm, and how many times as long
they are as what Spark takes by itself: its own source of rows in the JVM, into `noop`. With --kafka also Spark's Kafka
connector and a broker on this machine (`make kafka-jars` first). With --tcp Spark talks to its Python processes as it
does by default, and not over Unix sockets.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
from collections import defaultdict

import pyarrow as pa
import streams
from pyspark.sql import DataFrame

from pyspark_log import Store

ROWS, COLD = 1000, 5
#: Options of the read, by the name of the way.
WAYS = {"a task a partition": {}, "smallBatchBytes=1m": {"smallBatchBytes": "1m"}}


def fill(address: str, batches: int) -> None:
    """Sends the same records to the topic t of a broker."""
    from kafka import KafkaProducer  # noqa: PLC0415  (only with --kafka)

    producer = KafkaProducer(bootstrap_servers=address)
    for number in range(batches * ROWS):
        producer.send("t", key=b"k", value=b"v" * 100, partition=number % 2)
    producer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, default=30)
    parser.add_argument("--kafka", action="store_true")
    parser.add_argument("--tcp", action="store_true")
    given = parser.parse_args()
    spark = streams.session(**{"spark.python.unix.domain.socket.enabled": str(not given.tcp).lower()})
    found = defaultdict(list)
    with contextlib.ExitStack() as held:
        folder = held.enter_context(tempfile.TemporaryDirectory())
        address = ""
        if given.kafka:
            address = held.enter_context(streams.kafka(spark, {"t": 2, "out": 2}))
            fill(address, given.batches + COLD)
        store = Store.create(f"{folder}/store")
        store.create_topic("t", 2)
        rows = pa.record_batch({"key": [b"k"] * (ROWS // 2), "value": [b"v" * 100] * (ROWS // 2)})
        for _ in range(given.batches + COLD):
            for partition in range(2):
                store.append("t", rows, partition=partition)

        def run(name: str, df: DataFrame, sink: str, **options: str) -> None:
            checkpoint = tempfile.mkdtemp(dir=folder)
            writer = df.writeStream.format(sink).options(checkpointLocation=checkpoint, **options)
            query = writer.trigger(processingTime="0 seconds").start()
            done = streams.triggers(query, given.batches + COLD)[COLD:]
            found[name] += [one["durationMs"]["triggerExecution"] for one in done]

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
