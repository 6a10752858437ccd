"""Finds damage anywhere in a store, one Spark task a partition:

    spark-submit $(pylog jobs path verify) STORE [TOPIC]

What it finds is what `pylog verify` finds, and it prints the same. STORE must be a folder that all executors see, or
the URL of a store in an object store; it can be the log dir of a Kafka broker. Nothing is changed. Ends with code 1 if
there is damage.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace

import click

from pyspark_log import TopicPartition
from pyspark_log.cli.maintenance.verify import show_report
from pyspark_log.cli.support import json_option
from pyspark_log.jobs.support import Job, argument, run_tasks, session
from pyspark_log.storage.maintenance.verify import PartitionReport, check_partition, verify_elsewhere


@click.command(cls=Job, help=__doc__)
@argument("store", help="The folder or URL of the store, or the folder of a broker's logs.")
@argument("topic", required=False, help="Check only this topic.")
@json_option
def main(arguments: SimpleNamespace) -> bool:
    """Runs the job."""

    def check(partitions: Sequence[TopicPartition]) -> list[PartitionReport | None]:
        return run_tasks(session("pylog verify"), "verify", partial(check_partition, arguments.store), partitions)

    report = verify_elsewhere(arguments.store, arguments.topic, check)
    show_report(report, as_json=arguments.as_json)
    return not report.damaged


if __name__ == "__main__":
    raise SystemExit(main())
