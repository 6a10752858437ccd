"""The memory of Spark's Python processes: of a task that reads a large partition, and of the driver's that plan a read.

    python benchmarks/task_memory.py [--gib 2] [--partitions 5000] [--rounds 3] [--folder FOLDER] [--document]

Batches of 1 MiB. A process's peak is what Linux says of its resident memory (VmHWM), and each task has a process of its
own. Medians of the rounds, in which the topics take turns.
"""

from __future__ import annotations

import contextlib
import os
import re
import statistics
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import streams
import tables
from pyspark.sql import SparkSession

from pyspark_log import Store

#: What the processes have in their command line.
TASK, PLANNER, STREAM = "pyspark.worker", "plan_data_source_read", "python_streaming_source_runner"
BATCH = 1 << 20
# How many partitions one task reads.
TOGETHER = 500
_EVERY = 0.02  # seconds; a process that plans ends soon


def fill(store: Store, topic: str, batches: int) -> None:
    """A topic of one partition, with `batches` record batches; each record has 1,000 bytes."""
    store.create_topic(topic, 1, {"max.message.bytes": str(BATCH), "retention.ms": "-1"})
    rows = pa.record_batch({"value": [os.urandom(1000) for _ in range(BATCH // 1024 - 1)]})
    for _ in range(batches):
        store.append(topic, rows, partition=0)


def spread(store: Store, topic: str, partitions: int) -> None:
    """A topic with ten records in each of many partitions."""
    store.create_topic(topic, partitions)
    numbers = pa.array([number for number in range(partitions) for _ in range(10)], pa.int32())
    store.append(topic, pa.record_batch({"value": [b"v"] * len(numbers), "partition": numbers}))


@contextlib.contextmanager
def peaks() -> Iterator[dict[str, int]]:
    """The largest peak of each kind of process while the block runs, in MiB."""
    found, ended = dict.fromkeys((TASK, PLANNER, STREAM), 0), threading.Event()

    def watch() -> None:
        while not ended.wait(_EVERY):
            for status in Path("/proc").glob("[0-9]*/status"):
                with contextlib.suppress(OSError):
                    command = status.with_name("cmdline").read_bytes().replace(b"\0", b" ").decode()
                    peak = re.search(r"VmHWM:\s*(\d+)", status.read_text())
                    for kind in found:
                        if kind in command and "java" not in command and peak is not None:
                            found[kind] = max(found[kind], int(peak[1]) // 1024)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield found
    finally:
        ended.set()
        watcher.join()


def read(spark: SparkSession, store: Store, topic: str) -> None:
    """A batch read of a topic; one task reads a hundred partitions."""
    rows = spark.read.format("pylog").options(subscribe=topic, partitionsPerTask=str(TOGETHER)).load(store.path)
    rows.write.format("noop").mode("append").save()


def stream(spark: SparkSession, store: Store, topic: str) -> None:
    """The same by a streaming query."""
    rows = (
        spark.readStream.format("pylog")
        .options(subscribe=topic, startingOffsets="earliest", partitionsPerTask=str(TOGETHER))
        .load(store.path)
    )
    query = rows.writeStream.format("noop").trigger(availableNow=True).start()
    query.awaitTermination()


def main() -> None:
    parser = tables.parser(__doc__)
    parser.add_argument("--gib", type=float, default=2)
    parser.add_argument("--partitions", type=int, default=5000)
    parser.set_defaults(rounds=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        store = Store.create(f"{folder}/store")
        fill(store, "small", 1)
        fill(store, "large", int(given.gib * 1024))
        spread(store, "many", given.partitions)
        names = {
            "small": "a partition with one batch",
            "large": f"a partition of {given.gib:g} GiB",
            "many": f"{given.partitions:,} partitions, a task for {TOGETHER} of them",
        }
        spark = streams.session(**{"spark.python.worker.reuse": "false"})
        found: dict[str, list[dict[str, int]]] = {topic: [] for topic in names}
        for _ in range(given.rounds):
            for topic, rounds in found.items():
                with peaks() as peak:
                    read(spark, store, topic)
                    stream(spark, store, topic)
                rounds.append(peak)
        spark.stop()
    tables.show(
        "task memory",
        ["MiB", "a task", "plans a batch read", "plans a stream"],
        [
            [name, *(round(statistics.median(one[kind] for one in found[topic])) for kind in (TASK, PLANNER, STREAM))]
            for topic, name in names.items()
        ],
        document=given.document,
    )


if __name__ == "__main__":
    main()
