"""The memory of a task of Spark that reads a large partition: the peak of its Python worker.

Printed beside that of the same worker after a small read.

python benchmarks/task_memory.py [--gib 10] [--batch-mib 1] [--folder FOLDER]
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from pyspark_log import Store

#: The processes of tasks have this in their command line; those that plan have another module.
WORKER = "pyspark.worker"


def fill(store: Store, topic: str, size: int, batch: int) -> None:
    """A topic of one partition, with record batches of about `batch` bytes; each record has 1,000 bytes."""
    store.create_topic(topic, 1, {"max.message.bytes": str(batch), "retention.ms": "-1"})
    rows = pa.record_batch({"value": [os.urandom(1000) for _ in range(max(batch // 1024 - 1, 1))]})
    for _ in range(max(size // batch, 1)):
        store.append(topic, rows, partition=0)


def peak() -> int:
    """The largest peak of resident memory of a task's Python process, in MiB."""
    found = [0]
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            command = status.with_name("cmdline").read_bytes().replace(b"\0", b" ").decode()
            if command.rstrip().endswith(WORKER):
                found.append(int(re.search(r"VmHWM:\s*(\d+)", status.read_text())[1]) // 1024)
        except (OSError, TypeError):
            continue
    return max(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=float, default=10)
    parser.add_argument("--batch-mib", type=float, default=1)
    parser.add_argument("--folder")
    given = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        store = Store.create(f"{folder}/store")
        batch = int(given.batch_mib * (1 << 20))
        fill(store, "small", batch, 10_000)
        fill(store, "large", int(given.gib * (1 << 30)), batch)
        spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        found = {}
        for topic in ("small", "large"):
            spark.read.format("pylog").option("subscribe", topic).load(store.path).write.format("noop").mode(
                "append"
            ).save()
            found[topic] = peak()
        size = store.size("large", 0) / (1 << 30)
        print(f"partition of {size:.1f} GiB, batches of {given.batch_mib:g} MiB: the worker's peak is "
              f"{found['large']} MiB, after a small read it was {found['small']} MiB")
        spark.stop()


if __name__ == "__main__":
    main()
