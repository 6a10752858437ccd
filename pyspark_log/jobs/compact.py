"""Compacts a store, one Spark task a partition:

    spark-submit $(pylog jobs path compact) STORE [TOPIC]

What it does to a partition is what `pylog compact` does; its help says which partitions are taken. STORE must be a
folder that all executors see. Ends with code 1 if a partition cannot be compacted; the others are.
"""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import click

from pyspark_log import TopicPartition
from pyspark_log.errors import UnsupportedByStoreError
from pyspark_log.jobs.support import Job, argument, run_tasks, session
from pyspark_log.storage.compaction import Outcome, compact_partition, due, uncleanable
from pyspark_log.storage.folder_store import FolderStore


def compact_one(path: str, at: TopicPartition) -> Outcome:
    """In a task: compacts one partition."""
    return compact_partition(FolderStore.shared(path).logs, at)


@click.command(cls=Job, help=__doc__)
@argument("store", help="The folder of the store.")
@argument("topic", required=False, help="Compact all of this topic, not only what is due.")
def main(arguments: SimpleNamespace) -> bool:
    """Runs the job."""
    try:
        store = FolderStore.open(arguments.store)
    except UnsupportedByStoreError:
        raise click.UsageError(
            f"{arguments.store} is in an object store: use `pylog compact`, which needs no tasks there"
        ) from None
    waiting = due(store.logs, arguments.topic)
    left_out = uncleanable(store.logs) if arguments.topic is None else {}
    for at, reason in left_out.items():
        print(f"{at}: skipped until its topic is named, because it could not be compacted: {reason}")
    if not waiting:
        print("nothing to compact")
        return True
    spark = session("pylog compact")
    outcomes = run_tasks(spark, "compact", partial(compact_one, store.path), [one.at for one in waiting])
    for outcome in outcomes:
        total = outcome.total
        done = f"{total.records_before} records, {total.records_after} left" if total else "nothing was done"
        print(f"{outcome.at}: {outcome.problem or f'{done}, {outcome.seconds:.1f} s'}")
    return not any(outcome.problem for outcome in outcomes)


if __name__ == "__main__":
    raise SystemExit(main())
