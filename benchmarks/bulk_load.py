"""A bulk load into Parquet, and an import from there, compared with a plain copy of the Parquet files by Spark.

    python benchmarks/bulk_load.py [--folder FOLDER] [--records 10000000] [--partitions 4] [--rounds 3] [--document]

Values of 100 bytes, half text and half noise, uncompressed in the log; all Parquet in one codec. The three take turns
in one session of Spark with two cores; each figure is the median of the rounds, the ratio is taken within each round.
What a load has written is imported into a new topic, and copied by Spark. Load and import sync their files; Spark does
not.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import tables
from pyspark.sql import SparkSession

from pyspark_log import Store
from pyspark_log.jobs import bulk_load, import_files

PIECE = 50_000


def timed(action: Callable[[], object]) -> float:
    """Seconds of a call."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def fill(store: Store, partitions: int, records: int) -> None:
    """Appends records to each partition of a new topic."""
    text, left = b"all happy families are alike; each unhappy family."[:50], records // partitions
    store.create_topic("t", partitions)
    while left:
        count = min(PIECE, left)
        noise = os.urandom(50 * count)
        values = pa.array([text + noise[50 * number : 50 * number + 50] for number in range(count)], pa.binary())
        for partition in range(partitions):
            store.append("t", pa.record_batch({"value": values}), partition=partition)
        left -= count


def session() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    settings = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false"}
    builder = SparkSession.builder.master("local[2]").config("spark.ui.showConsoleProgress", "false")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def size_of(folder: str) -> int:
    """Bytes of the Parquet files in a folder."""
    return sum(path.stat().st_size for path in Path(folder).rglob("*.parquet"))


def main() -> None:
    parser = tables.parser(__doc__)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--codec", default="zstd")
    parser.set_defaults(rounds=3)
    given = parser.parse_args()
    spark = session()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        store = Store.create(f"{folder}/store")
        fill(store, given.partitions, given.records)
        stored = sum(store.size("t", partition) for partition in range(given.partitions))
        loads, imports, copies, sizes = [], [], [], (0, 0)

        def load(number: int) -> None:
            arguments = ["--topics", "t", "--group", str(number), "--codec", given.codec]
            assert bulk_load.main([store.path, f"{folder}/loaded", *arguments]) == 0

        def bring_back(number: int) -> None:
            store.create_topic(f"t{number}", given.partitions)
            arguments = ["--to", f"t{number}", "--group", f"import-{number}", "--format", "parquet", "--value", "value"]
            assert import_files.main([store.path, f"{folder}/loaded", *arguments]) == 0

        def copy() -> None:
            writer = spark.read.parquet(f"{folder}/loaded").write.option("compression", given.codec)
            writer.parquet(f"{folder}/copied")

        for number in range(given.rounds + 1):
            for name in ("loaded", "copied"):
                shutil.rmtree(f"{folder}/{name}", ignore_errors=True)
            os.sync()
            took = timed(lambda number=number: load(number))
            os.sync()
            brought = timed(lambda number=number: bring_back(number))
            assert sum(store.topic(f"t{number}").latest_offsets().values()) == given.records
            store.delete_topic(f"t{number}")
            os.sync()
            copied = timed(copy)
            if number:  # The first round is to warm up.
                loads.append(took)
                imports.append(brought)
                copies.append(copied)
            sizes = size_of(f"{folder}/loaded"), size_of(f"{folder}/copied")
        rows = spark.read.parquet(f"{folder}/loaded").count()
        assert rows == spark.read.parquet(f"{folder}/copied").count() == given.records
    ratios = [
        statistics.median(copy / one for one, copy in zip(ones, copies, strict=True)) for ones in (loads, imports)
    ]
    shown = [
        [name, f"{seconds:.1f}", f"{rows / seconds / 1e6:.2f}", f"{read / 1e6:,.0f}", f"{size / 1e6:,.0f}", times]
        for name, seconds, read, size, times in (
            ("bulk load", statistics.median(loads), stored, sizes[0], f"{ratios[0]:.2f}"),
            ("import", statistics.median(imports), sizes[0], stored, f"{ratios[1]:.2f}"),
            ("copy by Spark", statistics.median(copies), sizes[0], sizes[1], "1.00"),
        )
    ]
    what = f"{given.records:,} records, {given.codec}"
    header = [what, "s", "M rows/s", "MB read", "MB written", "times as fast"]
    tables.show("bulk load", header, shown, document=given.document)
    spark.stop()


if __name__ == "__main__":
    main()
