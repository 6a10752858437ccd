"""Compacts a store with Spark, one task a partition:

    spark-submit "$(python -m pyspark_log.jobs)/compact.py" STORE [TOPIC]

What it does to a partition is what `pylog compact` does; its help says which partitions are taken. STORE must be a
folder that all executors see. Ends with code 1 if a partition cannot be compacted; the others are.
"""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession

from pyspark_log import Store, TopicPartition
from pyspark_log.storage.compaction import Outcome, compact_partition, due, uncleanable


def compact_one(path: str, topic: str, partition: int) -> Outcome:
    """In a task: compacts one partition."""
    return compact_partition(Store.shared(path).logs, TopicPartition(topic, partition))


def main() -> int:
    """Runs the job; returns its exit code."""
    parser = argparse.ArgumentParser(description="Compact the topics of a store, one task a partition.")
    parser.add_argument("store", help="the folder of the store")
    parser.add_argument("topic", nargs="?", help="compact whatever there is of this topic, not only what is due")
    arguments = parser.parse_args()
    store = Store.open(arguments.store)
    waiting = due(store.logs, arguments.topic)
    left_out = uncleanable(store.logs) if arguments.topic is None else {}
    for at, reason in left_out.items():
        print(f"{at}: left out until its topic is named, as it could not be compacted: {reason}")
    if not waiting:
        print("nothing is to be compacted")
        return 0
    path, targets = store.path, [(one.at.topic, one.at.partition) for one in waiting]
    context = SparkSession.builder.appName("pylog compact").getOrCreate().sparkContext
    outcomes = context.parallelize(targets, len(targets)).map(lambda target: compact_one(path, *target)).collect()
    for outcome in outcomes:
        total = outcome.total
        done = f"{total.records_before} records, {total.records_after} left" if total else "nothing was done"
        print(f"{outcome.at}: {outcome.problem or f'{done}, {outcome.seconds:.1f} s'}")
    return 1 if any(outcome.problem for outcome in outcomes) else 0


if __name__ == "__main__":
    raise SystemExit(main())
