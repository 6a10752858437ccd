"""Finds damage anywhere in a store, one Spark task a partition:

    spark-submit $(pylog jobs path verify) STORE [TOPIC]

What it finds is what `pylog verify` finds, and it prints the same. STORE must be a folder that all executors see, or
the URL of a store in an object store; it can be the log dir of a Kafka broker. Nothing is changed. Ends with code 1 if
there is damage.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial

from pyspark_log import TopicPartition
from pyspark_log.cli.maintenance.verify import show_report
from pyspark_log.jobs.support import JobParser, run, run_tasks, session
from pyspark_log.storage.maintenance.verify import PartitionReport, check_partition, verify_elsewhere


def work(arguments: argparse.Namespace) -> bool:
    """Runs the job."""

    def check(partitions: Sequence[TopicPartition]) -> list[PartitionReport | None]:
        return run_tasks(session("pylog verify"), "verify", partial(check_partition, arguments.store), partitions)

    report = verify_elsewhere(arguments.store, arguments.topic, check)
    show_report(report, as_json=arguments.json)
    return not report.damaged


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the job with these arguments, or with those of the call; returns its exit code."""
    parser = JobParser(__doc__)
    parser.add_argument("store", help="the folder or URL of the store, or the folder of a broker's logs")
    parser.add_argument("topic", nargs="?", help="check only this topic")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    return run(parser, work, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
