"""Spark's real-time mode at `pylog serve` and at a Kafka broker: how late records come out, from topic to topic.

    python benchmarks/real_time.py [--rates 1000,10000] [--rounds 3] [--queries map,count] [--seconds 30] [--batch 10]
        [--python /usr/bin/python3.11]

Spark's own connector in both; a batch lasts `--batch` seconds. `map` changes the value, `count` groups by one of 1,000
keys and gives the count with each record; `once` is `map` into a topic that takes each record once, and only at `pylog
serve`. `--python` runs the server, with the packages of the one that runs this: how a Python was built decides a tenth
of the server's time. A value has 1,000 bytes and begins with the time at which it was sent, in ns. All of it is on one
machine: clients, driver and server share its cores. Medians of the rounds, in ms; and on standard error in which
seconds of a run the slowest records were sent: those of the ends of batches, if they are a batch apart.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import site
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import streams
from confluent_kafka import Consumer, Producer
from pyspark.sql import DataFrame

from pyspark_log import Store
from pyspark_log.spark import with_source_position

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests/kafka"))
from tests.kafka.kafka_tools import SPARK_JARS, Broker
from tests.server_tools import NewServer

PARTITIONS, KEYS, SIZE = 2, 1_000, 1_000
WARM_UP = 15.0
ROCKS_DB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def run_query(servers: str, query: str, batch: str, checkpoint: str) -> None:
    """The driver: runs until it is killed."""
    spark = streams.session(**{
        "spark.jars": ",".join(map(str, SPARK_JARS.glob("*.jar"))),
        "spark.sql.streaming.stateStore.providerClass": ROCKS_DB,
        "spark.sql.shuffle.partitions": str(PARTITIONS),
        # Real-time mode has a slot for each task of both stages.
        "spark.master": f"local[{3 * PARTITIONS}]",
    })  # fmt: skip
    target = {"kafka.bootstrap.servers": servers}
    source = spark.readStream.format("kafka").options(subscribe="in", startingOffsets="earliest", **target).load()
    sink = (
        rows_of(source, query).writeStream.format("kafka").options(topic="out", checkpointLocation=checkpoint, **target)
    )
    sink.outputMode("update").trigger(realTime=f"{batch} seconds").start().awaitTermination()


def rows_of(source: DataFrame, query: str) -> DataFrame:
    """What a query writes."""
    if query == "count":
        counts = source.groupBy("key").agg({"value": "max", "*": "count"})
        return counts.selectExpr("key", "cast(`max(value)` as string) || ' ' || `count(1)` as value")
    mapped = source.selectExpr("* except (value)", "upper(cast(value as string)) as value")
    return with_source_position(mapped, "map") if query == "once" else mapped.select("key", "value")


@contextlib.contextmanager
def server_of(name: str, query: str) -> Iterator[str]:
    """The address of a server with two empty topics."""
    with tempfile.TemporaryDirectory() as folder:
        if name == "kafka":
            from kafka_clients import create_topics  # noqa: PLC0415  (after the path is set)

            broker = Broker(folder, as_shipped=True)
            broker.start()
            try:
                create_topics(broker, {"in": PARTITIONS, "out": PARTITIONS}, {})
                yield broker.bootstrap
            finally:
                broker.kill()
            return
        with Store.create(f"{folder}/store") as store:
            store.create_topic("in", PARTITIONS)
            store.create_topic("out", PARTITIONS, {"source.position.header": "source"} if query == "once" else None)
        server = NewServer(f"{folder}/store", folder)
        server.start()
        try:
            yield server.bootstrap
        finally:
            server.kill()


class Reading(threading.Thread):
    """Reads what comes out, and notes how late each record is, in ms."""

    def __init__(self, servers: str) -> None:
        super().__init__()
        self.late: list[tuple[int, float]] = []  # when a record was sent, in ns, and how late it came
        self.ends = False
        self._consumer = Consumer({
            "bootstrap.servers": servers, "group.id": "reading", "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 100,
        })  # fmt: skip
        self._consumer.subscribe(["out"])

    def run(self) -> None:
        while not self.ends:
            # One that is there is had at once: a wait for several would be counted as theirs.
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None and (value := message.value()) is not None:
                sent = int(value.split()[0])
                self.late.append((sent, (time.time_ns() - sent) / 1e6))
        self._consumer.close()


def send(servers: str, rate: int, seconds: float) -> None:
    """Sends records at a rate, each at its time."""
    producer, filler = Producer({"bootstrap.servers": servers, "linger.ms": 1}), b" " + b"v" * (SIZE - 20)
    begin = time.time()
    for number in range(int(rate * seconds)):
        if (wait := begin + number / rate - time.time()) > 0:
            time.sleep(wait)  # The producer's own wait is in whole ms: below one it would keep a core busy.
        producer.poll(0)
        producer.produce("in", b"%d" % time.time_ns() + filler, b"%d" % (number * 7919 % KEYS))
    producer.flush(60)


def measure(name: str, query: str, rate: int, seconds: float, batch: int) -> tuple[float, float]:
    """p50 and p99 of one run, in ms."""
    with server_of(name, query) as servers, tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, __file__, "--driver", servers, query, str(batch), f"{folder}/checkpoint"]
        driver, reading = subprocess.Popen(words, stderr=subprocess.DEVNULL, start_new_session=True), Reading(servers)
        try:
            reading.start()
            while not reading.late:  # until the query is there
                send(servers, 20, 0.5)
                if driver.poll() is not None:
                    sys.exit(f"the driver has ended with {driver.returncode}")
            send(servers, rate, WARM_UP)
            begin = time.time_ns()
            send(servers, rate, seconds)
            time.sleep(3)
        finally:
            reading.ends = True
            reading.join()
            os.killpg(driver.pid, signal.SIGKILL)  # with its JVM
            driver.wait()
    slowest = sorted((late, sent) for sent, late in reading.late if sent >= begin)[-len(reading.late) // 100 :]
    seconds_of = sorted({round((sent - begin) / 1e9) for _, sent in slowest})
    print(f"{name}, {query}, {rate}/s: the slowest 1 % were sent in the seconds {seconds_of}", file=sys.stderr)
    late = sorted(late for sent, late in reading.late if sent >= begin)
    if query != "count" and len(late) < rate * seconds:
        sys.exit(f"{name}, {query}, {rate}/s: {len(late)} of {rate * seconds:.0f} records came out")
    return late[len(late) // 2], late[int(len(late) * 0.99)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", default="1000,10000")
    parser.add_argument("--queries", default="map,count,once")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--batch", type=int, default=10)
    parser.add_argument("--python")
    parser.add_argument("--driver", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.driver:
        run_query(*options.driver)
        return
    if options.python:
        NewServer.interpreter = (options.python,)
        os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), *site.getsitepackages()])
    for query in options.queries.split(","):
        for rate in map(int, options.rates.split(",")):
            found: dict[str, list[tuple[float, float]]] = {"pylog": [], "kafka": []}
            for _ in range(options.rounds):
                for name in ("pylog",) if query == "once" else ("pylog", "kafka"):
                    found[name].append(measure(name, query, rate, options.seconds, options.batch))
            for name, figures in found.items():
                if figures:
                    p50, p99 = (statistics.median(column) for column in zip(*figures, strict=True))
                    print(f"{query:5}  {rate:6,}/s  {name:5}  p50 {p50:9.1f}  p99 {p99:9.1f}  of {figures}", flush=True)


if __name__ == "__main__":
    main()
