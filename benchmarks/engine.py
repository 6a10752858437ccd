"""The engine without Spark: appends, reads and publishes of one process. `python benchmarks/engine.py [FOLDER]`."""

import statistics
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa

from pyspark_log import Store
from pyspark_log.storage.publish import StagedWriter, StagingPlan, publish

ROUNDS = 5
ROWS = 500_000


def rows(count):
    return pa.record_batch({
        "key": pa.array([b"%08d" % number for number in range(count)]),
        "value": pa.array([b"%0100d" % number for number in range(count)]),
    })


def seconds(action, times=1):
    """The median over the rounds of what one call takes."""
    taken = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        for _ in range(times):
            action()
        taken.append((time.perf_counter() - started) / times)
    return statistics.median(taken)


def publishes(store, topic, partitions):
    store.create_topic(topic, partitions)
    plan, data, numbers = StagingPlan.make(store.logs, [topic]), rows(20 * partitions), iter(range(10**6))

    def once():
        writer = StagedWriter(store.logs, plan)
        writer.append(topic, data)
        publish(store.decisions, topic, next(numbers), writer.finish(), run="run")

    return once


def main(folder):
    store = Store.create(Path(folder) / "store")
    for topic in ("large", "small", "synced"):
        store.create_topic(topic, 1)
    many, one = rows(ROWS), rows(1)
    append = seconds(lambda: store.append("large", many))
    read = seconds(lambda: sum(batch.num_rows for batch in store.read("large", 0, 0, ROWS)))
    print(f"{'append, ' + format(ROWS, ',') + ' records a call':42}{ROWS / append / 1e6:10.1f} M records/s")
    print(f"{'read, 1 MiB a batch':42}{ROWS / read / 1e6:10.1f} M records/s")
    for name, sync in (("small", False), ("synced", True)):
        took = seconds(lambda name=name, sync=sync: store.append(name, one, sync=sync), 300)
        print(f"{'append, one record a call' + (', synced' if sync else ''):42}{1 / took:10,.0f} calls/s")
    for partitions in (1, 2, 8, 50):
        took = seconds(publishes(store, f"p{partitions}", partitions), 20)
        print(f"{f'publish, 20 rows to each of {partitions} partitions':42}{took * 1000:10.1f} ms")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as place:
        main(place)
