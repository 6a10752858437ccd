"""Deletes what exceeds retention, one Spark task a partition:

    spark-submit $(pylog jobs path retention) STORE [TOPIC]

What it does is what `pylog clean` does: with TOPIC retention of that topic, without it of all topics, and the store's
leftovers, expired offsets and deleted topics. STORE must be a folder that all executors see. Ends with code 1 if a
partition cannot be cleaned; the others are.
"""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import click

from pyspark_log import TopicPartition
from pyspark_log.cli.support import json_option, one_line
from pyspark_log.errors import PylogError, UnsupportedByStoreError
from pyspark_log.jobs.support import Job, argument, run_tasks, session, show_summary
from pyspark_log.storage.folder_store import FolderStore
from pyspark_log.storage.log_manager import cleaning
from pyspark_log.storage.maintenance import janitor


def clean_one(path: str, at: TopicPartition) -> tuple[int, str]:
    """In a task: cleans one partition; returns how many segments were deleted, and why it failed."""
    try:
        return cleaning.clean_partition(FolderStore.shared(path).logs, at), ""
    except (PylogError, OSError) as error:
        return 0, one_line(error)


@click.command(cls=Job, help=__doc__)
@argument("store", help="The folder of the store.")
@argument("topic", required=False, help="Clean only this topic.")
@json_option
def main(arguments: SimpleNamespace) -> bool:
    """Runs the job."""
    try:
        store = FolderStore.open(arguments.store)
    except UnsupportedByStoreError:
        raise click.UsageError(
            f"{arguments.store} is in an object store: use `pylog clean`, which needs no tasks there"
        ) from None
    store.check_writable()
    topics = store.topics(internal=True) if arguments.topic is None else [arguments.topic]
    partitions = [TopicPartition(topic, number) for topic in topics for number in store.written_partitions(topic)]
    done = run_tasks(session("pylog retention"), "retention", partial(clean_one, store.path), partitions)
    failed = {at: problem for at, (_, problem) in zip(partitions, done, strict=True) if problem}
    for at, problem in failed.items():
        print(f"{at}: {problem}")
    if arguments.topic is None:
        janitor.sweep(store)
    figures = {"partitions": len(partitions), "segments_removed": sum(count for count, _ in done)}
    show_summary(figures, as_json=arguments.as_json)
    return not failed


if __name__ == "__main__":
    raise SystemExit(main())
