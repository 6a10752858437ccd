"""How fast the connector is with each PySpark: batch write and read, and a warm micro-batch from topic to topic.

    make .pyspark/4.0.2 OTHER_PYSPARK=4.0.2 (also 4.1.4 and 4.2.1)
    python benchmarks/pysparks.py .pyspark/4.0.2 .pyspark/4.1.4 .pyspark/4.2.1 [--rounds 7] [--folder DIR] [--document]

Each PySpark, and at last the installed one, in a process of its own, in turns. A session with Spark's defaults writes a
million records with keys of 8 bytes and values of 100 into 4 partitions, and reads them into `noop`, each twice, of
which the second counts; then a query copies 1,000 rows a micro-batch, 2 partitions, of which the first five do not
count. Medians; ratios within a round. MB/s (10**6 bytes) count keys and values.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import pyspark
import streams
import tables
from pyspark.sql import SparkSession

from pyspark_log import Store

ROWS, BYTES, PARTITIONS = 1_000_000, 108, 4
EACH, BATCHES, COLD = 1_000, 10, 5


def second(work: Callable[[], object]) -> float:
    """The seconds of it when it is done again."""
    work()
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def batches(spark: SparkSession, store: Store) -> tuple[float, float]:
    """MB/s of a batch read, and of a batch write."""
    store.create_topic("t", PARTITIONS)
    rows = spark.range(0, ROWS, 1, PARTITIONS).selectExpr("lpad(id, 8, '0') AS key", "repeat('v', 100) AS value")
    read = spark.read.format("pylog").option("subscribe", "t").load(store.path)

    wrote = second(lambda: rows.write.format("pylog").mode("append").option("topic", "t").save(store.path))
    took = second(lambda: read.write.format("noop").mode("overwrite").save())
    return 2 * ROWS * BYTES / took / 1e6, ROWS * BYTES / wrote / 1e6


def micro_batch(spark: SparkSession, store: Store, folder: str) -> float:
    """The ms of a warm trigger."""
    for topic in ("in", "out"):
        store.create_topic(topic, 2)
    for _ in range(BATCHES + COLD):
        store.topic("in").append([{"key": str(number), "value": "v" * 100} for number in range(EACH)])
    source = spark.readStream.format("pylog").options(subscribe="in", startingOffsets="earliest")
    rows = source.option("maxOffsetsPerTrigger", EACH).load(store.path).select("key", "value")
    sink = rows.writeStream.format("pylog").options(topic="out", checkpointLocation=f"{folder}/checkpoint")
    done = streams.triggers(sink.trigger(processingTime="0 seconds").start(store.path), BATCHES + COLD)
    return statistics.median(one["durationMs"]["triggerExecution"] for one in done[COLD:])


def session(folder: str) -> None:
    """Prints the version and the figures of one session."""
    spark, store = streams.session(conf=""), Store.create(f"{folder}/store")
    print(json.dumps([pyspark.__version__, *batches(spark, store), micro_batch(spark, store, folder)]))


def main() -> None:
    parser = tables.parser(__doc__)
    parser.add_argument("pysparks", nargs="*", help="folders with a PySpark each")
    parser.add_argument("--session", action="store_true", help="only for itself")
    given = parser.parse_args()
    if given.session:
        session(given.folder)
        return
    found: dict[str, list[list[float]]] = {}
    for _ in range(given.rounds):
        for place in [*given.pysparks, ""]:
            # Absolute: with a relative PYTHONPATH `pylog-python` is plain Python.
            path = os.pathsep.join(filter(None, [place and os.path.abspath(place), os.environ.get("PYTHONPATH")]))
            with tempfile.TemporaryDirectory(dir=given.folder) as folder:
                command = [sys.executable, __file__, "--session", "--folder", folder]
                environment = os.environ | {"PYTHONPATH": path}
                done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
            version, *figures = json.loads(done.stdout.splitlines()[-1])
            found.setdefault(version, []).append(figures)
            print(version, *(f"{figure:.0f}" for figure in figures), file=sys.stderr)
    newest, lines = found[pyspark.__version__], []
    for version, rounds in sorted(found.items()):
        cells = [version]
        for mine, its in zip(zip(*rounds, strict=True), zip(*newest, strict=True), strict=True):
            cells += [f"{statistics.median(mine):.0f}", f"{tables.ratio(mine, its):.2f}"]
        lines.append(cells)
    header = ["PySpark", "batch read, MB/s", "times", "batch write, MB/s", "times", "micro-batch, ms", "times"]
    tables.show("each PySpark", header, lines, document=given.document)


if __name__ == "__main__":
    main()
