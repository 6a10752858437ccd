"""Loads topics into Parquet files, exactly once:

    spark-submit $(pylog jobs path bulk_load) STORE TARGET --topics A,B

Each call loads what came since the one before it, by the committed offsets of a group. One Spark task a partition reads
the log into Arrow and writes the files; no row passes through the JVM. STORE and TARGET must be folders that all
executors see; STORE can be the URL of a store in an object store. docs/jobs.md says what is guaranteed.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from pyspark_log.jobs.export import add_arguments, check_delta, compact_table, export_topics, request_of
from pyspark_log.jobs.support import CallError, JobParser, run, session, show_summary


def work(arguments: argparse.Namespace) -> bool:
    """Runs the job."""
    if arguments.compact and not arguments.delta:
        raise CallError("--compact needs --delta: only a Delta table can replace files that readers may have open")
    if arguments.delta:
        check_delta()
    spark = session("pylog bulk_load")
    figures = export_topics(spark, request_of(arguments, "parquet", spark))
    if arguments.compact:
        figures |= compact_table(arguments.target)
    show_summary(figures, as_json=arguments.json)
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the job with these arguments, or with those of the call; returns its exit code."""
    parser = JobParser(__doc__)
    add_arguments(parser, group="bulk-load")
    parser.add_argument(
        "--delta", action="store_true", help="make TARGET a Delta table, of which each load is a version"
    )
    parser.add_argument(
        "--compact",
        action="store_true",
        help="with --delta, at the end: merge small files of the table into larger ones, as a version of its own",
    )
    return run(parser, work, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
