"""A pipeline from topic to topic that is killed while it runs, and started again: each record is there once.

    python examples/exactly_once.py

The pipeline is a process of its own (`exactly_once.py FOLDER`). This program kills it (SIGKILL, Java and all) in the
middle of its work, twice, and starts it again with the same checkpoint.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter

from spark_session import start_spark

from pyspark_log import Store

RECORDS = 20_000
KILLS_AFTER = (RECORDS // 5, RECORDS // 2)


def pipeline(folder: str) -> None:
    """Reads `numbers`, 1,000 records a micro-batch, and writes their squares to `squares`."""
    spark = start_spark("exactly-once")
    numbers = (
        spark.readStream.format("pylog")
        .option("subscribe", "numbers")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "1000")
        .load(f"{folder}/store")
    )
    squares = numbers.selectExpr("key", "string(pow(int(string(value)), 2)) AS value")
    query = (
        squares.writeStream.format("pylog")
        .option("topic", "squares")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start(f"{folder}/store")
    )
    query.awaitTermination()


def main(folder: str) -> None:
    store = Store.create(f"{folder}/store")
    store.create_topic("numbers", 4)
    store.create_topic("squares", 4)
    store.topic("numbers").append([{"key": f"{number % 100}", "value": f"{number}"} for number in range(RECORDS)])

    for limit in (*KILLS_AFTER, None):
        process = subprocess.Popen([sys.executable, __file__, folder], start_new_session=True)
        while process.poll() is None and (limit is None or written(store) < limit):
            time.sleep(0.01)
        if limit is not None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            print(f"killed when {written(store):,} of {RECORDS:,} records were written; starting it again")
        elif process.returncode:
            raise SystemExit("the pipeline failed")

    found = Counter(int(float(value)) for value in store.topic("squares").read().to_table()["value"].to_pylist())
    expected = Counter(number * number for number in range(RECORDS))
    print(f"{found.total():,} squares; each is there once: {found == expected}")
    if found != expected:
        raise SystemExit("records are missing, or there twice")


def written(store: Store) -> int:
    return sum(store.topic("squares").latest_offsets().values())


if __name__ == "__main__":
    if len(sys.argv) > 1:
        pipeline(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as place:
            main(place)
