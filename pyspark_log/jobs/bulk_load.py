"""Loads topics into Parquet files, exactly once:

    spark-submit $(pylog jobs path bulk_load) STORE TARGET --topics A,B

Each call loads what came since the one before it, by the committed offsets of a group. One Spark task a partition reads
the log into Arrow and writes the files; no row passes through the JVM. STORE and TARGET must be folders that all
executors see. docs/jobs.md says what is guaranteed.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from pyspark_log.jobs.export import add_arguments, check_delta, export_topics, request_of
from pyspark_log.jobs.support import JobParser, run, session, show_summary


def work(arguments: argparse.Namespace) -> bool:
    """Runs the job."""
    if arguments.delta:
        check_delta()
    spark = session("pylog bulk_load")
    show_summary(export_topics(spark, request_of(arguments, "parquet", spark)), as_json=arguments.json)
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the job with these arguments, or with those of the call; returns its exit code."""
    parser = JobParser(__doc__)
    add_arguments(parser, group="bulk-load")
    parser.add_argument(
        "--delta", action="store_true", help="make TARGET a Delta table, of which each load is a version"
    )
    return run(parser, work, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
