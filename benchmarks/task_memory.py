"""The memory of Spark's Python processes: of a task that reads a large partition, and of the driver's that plan a read.

Each is printed beside the same after a small read. A process's peak is what Linux says of its resident memory (VmHWM).

python benchmarks/task_memory.py [--gib 10] [--batch-mib 1] [--partitions 5000] [--folder FOLDER]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from pyspark_log import Store

#: What the processes have in their command line.
TASK, PLANNER, STREAM = "pyspark.worker", "plan_data_source_read", "python_streaming_source_runner"
_EVERY = 0.02  # seconds; a process that plans ends soon


def fill(store: Store, topic: str, size: int, batch: int) -> None:
    """A topic of one partition, with record batches of about `batch` bytes; each record has 1,000 bytes."""
    store.create_topic(topic, 1, {"max.message.bytes": str(batch), "retention.ms": "-1"})
    rows = pa.record_batch({"value": [os.urandom(1000) for _ in range(max(batch // 1024 - 1, 1))]})
    for _ in range(max(size // batch, 1)):
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
    rows = spark.read.format("pylog").options(subscribe=topic, partitionsPerTask="100").load(store.path)
    rows.write.format("noop").mode("append").save()


def stream(spark: SparkSession, store: Store, topic: str) -> None:
    """The same by a streaming query."""
    rows = spark.readStream.format("pylog").options(
        subscribe=topic, startingOffsets="earliest", partitionsPerTask="100"
    ).load(store.path)  # fmt: skip
    query = rows.writeStream.format("noop").trigger(availableNow=True).start()
    query.awaitTermination()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=10)
    parser.add_argument("--batch-mib", type=float, default=1)
    parser.add_argument("--partitions", type=int, default=5000)
    parser.add_argument("--folder")
    given = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        store = Store.create(f"{folder}/store")
        batch = int(given.batch_mib * (1 << 20))
        fill(store, "small", batch, 10_000)
        fill(store, "large", int(given.gib * (1 << 30)), batch)
        spread(store, "many", given.partitions)
        spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        print("peaks in MiB: a task, a process that plans a batch read, one that plans a stream")
        for topic in ("small", "large", "many"):
            with peaks() as found:
                read(spark, store, topic)
                stream(spark, store, topic)
            print(f"{topic:6} {found[TASK]:5} {found[PLANNER]:5} {found[STREAM]:5}", flush=True)
        size = store.size("large", 0) / (1 << 30)
        print(f"large: {size:.1f} GiB in batches of {given.batch_mib:g} MiB; many: {given.partitions} partitions")
        spark.stop()


if __name__ == "__main__":
    main()
