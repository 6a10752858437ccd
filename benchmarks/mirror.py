"""How fast `pylog mirror` copies a topic of Kafka on one core, beside Kafka's own mirror maker (of Kafka 3.9).

    python benchmarks/mirror.py [--rounds 3] [--quick] [--document]

The brokers have one core, what copies has another one for itself. The mirror maker writes into a second broker, which
`pylog mirror` needs not. Figures are medians of the rounds; a GB is 10^9 bytes of records of 1 KB as they are stored.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import tables

from pyspark_log.kafka.client_config import ClientConfig
from pyspark_log.kafka.cluster import Cluster
from pyspark_log.types import TopicPartition

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.kafka.kafka_tools import Broker, command, missing, run

_SIZE, _AMOUNT, _QUICK = 1000, 1_000_000_000, 0.01
_TOPIC, _PARTITIONS = "copied", 4
_BROKERS, _COPIER = 1, 0  # cores
_PATIENCE = 600


class Copied(NamedTuple):
    """What a copy took: seconds, and seconds of the processor."""

    seconds: float
    processor: float


def _end(bootstrap: str) -> int:
    """How many records a broker has of the topic."""
    host, port = bootstrap.split(":")
    with Cluster([(host, int(port))], ClientConfig()) as cluster:
        for topic in cluster.topics([_TOPIC]):
            leaders = {TopicPartition(topic.name, number): one.node for number, one in enumerate(topic.leaders)}
            return sum(cluster.ends(leaders).values())
    return 0


def _create(broker: Broker) -> None:
    broker.run("org.apache.kafka.tools.TopicCommand", "--create", "--topic", _TOPIC, "--partitions", str(_PARTITIONS))


def _fill(broker: Broker, records: int) -> None:
    _create(broker)
    run(
        "org.apache.kafka.tools.ProducerPerformance", "--topic", _TOPIC, "--num-records", str(records),
        "--record-size", str(_SIZE), "--throughput", "-1", "--command-property",
        f"bootstrap.servers={broker.bootstrap}", "batch.size=65536", "linger.ms=5",
    )  # fmt: skip


def _ours(source: Broker, folder: Path) -> Copied:
    """`pylog mirror` into a new store."""
    call = ["taskset", "-c", str(_COPIER), sys.executable, "-m", "pyspark_log.cli.start", "--store", str(folder)]
    call += ["mirror", f"kafka://{source.bootstrap}", "--topics", _TOPIC, "--until-now"]
    begun = time.perf_counter()
    process = subprocess.Popen(call, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    assert status == 0, f"pylog mirror has ended with {status}"
    return Copied(time.perf_counter() - begun, used.ru_utime + used.ru_stime)


def _kafkas(source: Broker, target: Broker, folder: Path, records: int) -> Copied:
    """The mirror maker, into a new topic of another broker."""
    _create(target)
    consumer, producer = folder / "consumer.properties", folder / "producer.properties"
    consumer.write_text(
        f"bootstrap.servers={source.bootstrap}\ngroup.id=g{time.time_ns()}\nauto.offset.reset=earliest\n"
    )
    producer.write_text(f"bootstrap.servers={target.bootstrap}\nbatch.size=65536\nlinger.ms=5\n")
    call = command(
        "kafka.tools.MirrorMaker", "--consumer.config", consumer, "--producer.config", producer, "--include", _TOPIC,
        "--num.streams", "1", memory="512m", options=("-XX:+UseSerialGC",), jars="jars-3.9",
    )  # fmt: skip
    begun = time.perf_counter()
    process = subprocess.Popen(
        ["taskset", "-c", str(_COPIER), *call], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        while _end(target.bootstrap) < records:
            assert process.poll() is None, "the mirror maker has ended"
            assert time.perf_counter() - begun < _PATIENCE, "the mirror maker does not finish"
            time.sleep(0.2)
        seconds = time.perf_counter() - begun
    finally:
        process.terminate()
        _, _, used = os.wait4(process.pid, 0)
    target.run("org.apache.kafka.tools.TopicCommand", "--delete", "--topic", _TOPIC)
    while _end(target.bootstrap):
        time.sleep(0.2)
    return Copied(seconds, used.ru_utime + used.ru_stime)


def main() -> None:
    parser = tables.parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="as little as possible, one round")
    parser.set_defaults(rounds=3)
    given = parser.parse_args()
    if problem := missing():
        raise SystemExit(problem)
    records = round(_AMOUNT * (_QUICK if given.quick else 1) / _SIZE)
    # The brokers inherit it.
    os.sched_setaffinity(0, {_BROKERS})
    ours, kafkas = list[Copied](), list[Copied]()
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        brokers = []
        for number in range(2):
            (folder / str(number)).mkdir()
            brokers.append(Broker(folder / str(number), as_shipped=True))
        source, target = brokers
        try:
            for broker in brokers:
                broker.start()
            _fill(source, records)
            for number in range(1 if given.quick else given.rounds):
                ways = [
                    lambda: ours.append(_ours(source, folder / "store")),
                    lambda: kafkas.append(_kafkas(source, target, folder, records)),
                ]
                for way in ways if number % 2 == 0 else reversed(ways):
                    way()
                shutil.rmtree(folder / "store")
        finally:
            for broker in brokers:
                broker.kill()
    size = records * _SIZE
    rows = []
    for what, each in (
        ("MB/s", lambda one: size / 1e6 / one.seconds),
        ("GB a minute", lambda one: size / 1e9 / one.seconds * 60),
        ("seconds of the processor a GB", lambda one: one.processor / size * 1e9),
    ):
        left, right = [each(one) for one in ours], [each(one) for one in kafkas]
        middle = [sorted(side)[len(side) // 2] for side in (left, right)]
        rows.append([what, *(f"{value:,.1f}" for value in middle), f"{tables.ratio(left, right):.2f}"])
    header = ["a mirror on one core", "pylog mirror", "kafka-mirror-maker", "ratio"]
    tables.show("mirror", header, rows, document=given.document)


if __name__ == "__main__":
    main()
