"""Kafka's own performance tools and a broker, next to `pylog perf`; and what the same records take on disk.

    python benchmarks/kafka_tools.py [--rounds 5] [--records 2000000] [--document]

The broker runs here with its shipped settings and 2 GB, and so do kafka-producer-perf-test and kafka-consumer-perf-test
(`make kafka-jars` first). They take turns with `pylog perf`, which is a process of its own as well: values of 100
bytes to a topic of 6 partitions, nothing synced, and all of them read from the beginning. A tool's own figures count,
which leave its start out. Sizes are those of the `.log` files, with lines of JSON as values.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import tables

from pyspark_log import Store

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/kafka"))
from kafka_clients import create_topics
from kafka_tools import Broker, missing, run

PARTITIONS, VALUE = 6, 100
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# Lines in the files of values, records in a log whose size is taken.
LINES, SIZED = 20_000, 300_000
#: The options of Java, in place of those for a quick start.
AS_SHIPPED = {"memory": "1g", "options": ()}


def kafka_speeds(broker: Broker, topic: str, records: int) -> tuple[float, float]:
    """Records a second of Kafka's producer and of its consumer."""
    create_topics(broker, {topic: PARTITIONS}, {})
    said = run(
        "org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--num-records", records, "--record-size",
        VALUE, "--throughput", -1, "--command-property", f"bootstrap.servers={broker.bootstrap}", **AS_SHIPPED,
    )  # fmt: skip
    produced = float(said.splitlines()[-1].partition(" records/sec")[0].rpartition(" ")[2])
    said = run(
        "org.apache.kafka.tools.ConsumerPerformance", "--bootstrap-server", broker.bootstrap, "--topic", topic,
        "--num-records", records, **AS_SHIPPED,
    )  # fmt: skip
    heading, *_, line = [line for line in said.splitlines() if ", " in line]
    found = dict(zip(heading.split(", "), line.split(", "), strict=True))
    # Without the time that the broker takes to give a group its partitions.
    return produced, float(found["fetch.nMsg.sec"])


def pylog_speeds(store: Store, topic: str, records: int) -> tuple[float, float]:
    """Records a second of `pylog perf`."""
    store.create_topic(topic, PARTITIONS)
    command = [sys.executable, "-m", "pyspark_log.cli.start", "--store", store.path, "perf"]
    found = [
        json.loads(subprocess.run([*command, *arguments, "--json"], check=True, capture_output=True).stdout)
        for arguments in (
            ["produce", topic, "--num-records", str(records), "--record-size", str(VALUE)],
            ["consume", topic, "--messages", str(records)],
        )
    ]
    return found[0]["records_per_second"], found[1]["records_per_second"]


def lines() -> list[bytes]:
    """Values as applications have them."""
    chance = random.Random(1)
    return [
        json.dumps(
            {
                "order": chance.randrange(10**9),
                "customer": f"c{chance.randrange(50_000)}",
                "item": chance.choice(ITEMS),
                "price": chance.randrange(100, 100_000) / 100,
                "at": f"2026-01-01T12:{chance.randrange(60):02}:00Z",
            }
        ).encode()
        for _ in range(LINES)
    ]


ITEMS = ("tea", "milk", "jam", "bread", "butter", "salt")


def size_of(folder: str | Path, topic: str) -> int:
    """The bytes of the logs of a topic."""
    return sum(path.stat().st_size for path in Path(folder).glob(f"{topic}-*/*.log"))


def kafka_size(broker: Broker, folder: str, codec: str, batch: int) -> float:
    """Bytes a record in a broker's log, from a producer with that size of a batch."""
    topic = f"size-{codec}-{batch}"
    create_topics(broker, {topic: 1}, {})
    run(
        "org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--num-records", SIZED, "--payload-file",
        f"{folder}/lines", "--throughput", -1, "--command-property", f"bootstrap.servers={broker.bootstrap}",
        f"compression.type={codec}", f"batch.size={batch}", "linger.ms=500", **AS_SHIPPED,
    )  # fmt: skip
    return size_of(broker.log_dir, topic) / SIZED


def pylog_size(store: Store, codec: str, values: list[bytes]) -> float:
    """Bytes a record in our log."""
    topic = f"size-{codec}"
    store.create_topic(topic, 1, {"compression.type": "uncompressed" if codec == "none" else codec})
    chance = random.Random(0)
    store.append(topic, pa.record_batch({"value": chance.choices(values, k=SIZED)}))
    return size_of(f"{store.path}/data", topic) / SIZED


def main() -> None:
    parser = tables.parser(__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.set_defaults(rounds=5)
    given = parser.parse_args()
    if problem := missing():
        raise SystemExit(problem)
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        Path(folder, "broker").mkdir()
        broker = Broker(f"{folder}/broker", as_shipped=True)
        broker.start()
        try:
            store = Store.create(f"{folder}/store")
            rounds = [
                (kafka_speeds(broker, f"t{number}", given.records), pylog_speeds(store, f"t{number}", given.records))
                for number in range(given.rounds)
            ]
            rows = [
                [
                    name,
                    f"{statistics.median(kafka[at] for kafka, _ in rounds):,.0f}",
                    f"{statistics.median(ours[at] for _, ours in rounds):,.0f}",
                    f"{statistics.median(ours[at] / kafka[at] for kafka, ours in rounds):.1f}",
                ]
                for at, name in enumerate(("written", "read"))
            ]
            tables.show(
                "kafka: tools", ["records a second", "Kafka", "pylog perf", "times"], rows, document=given.document
            )
            values = lines()
            Path(folder, "lines").write_bytes(b"\n".join(values))
            sizes = [
                [
                    codec,
                    *(kafka_size(broker, folder, codec, batch) for batch in (16_384, 524_288)),
                    pylog_size(store, codec, values),
                ]
                for codec in CODECS
            ]
            tables.show(
                "kafka: sizes",
                ["bytes a record", "Kafka, 16 KiB", "Kafka, 512 KiB", "here, 512 KiB", "of the second"],
                [[codec, *(f"{size:.1f}" for size in found), f"{found[2] / found[1]:.3f}"] for codec, *found in sizes],
                document=given.document,
            )
        finally:
            broker.kill()


if __name__ == "__main__":
    main()
