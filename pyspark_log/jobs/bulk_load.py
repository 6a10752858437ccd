"""Loads topics into Parquet files, exactly once:

    spark-submit $(pylog jobs path bulk_load) STORE TARGET --topics A,B

Each call loads what came since the one before it, by the committed offsets of a group. One Spark task a partition reads
the log into Arrow and writes the files; no row passes through the JVM. STORE and TARGET must be folders that all
executors see; STORE can be the URL of a store in an object store. docs/reference/jobs.md says what is guaranteed.
"""

from __future__ import annotations

from types import SimpleNamespace

import click

from pyspark_log.jobs.export import check_delta, compact_table, export_options, export_topics, request_of
from pyspark_log.jobs.support import Job, session, show_summary


@click.command(cls=Job, help=__doc__)
@export_options("bulk-load")
@click.option("--delta", is_flag=True, help="Make TARGET a Delta table, of which each load is a version.")
@click.option(
    "--compact",
    is_flag=True,
    help="With --delta, at the end: merge small files of the table into larger ones, as a version of its own.",
)
def main(arguments: SimpleNamespace) -> bool:
    """Runs the job."""
    if arguments.compact and not arguments.delta:
        raise click.UsageError(
            "--compact needs --delta: only a Delta table can replace files that readers may have open"
        )
    if arguments.delta:
        check_delta()
    spark = session("pylog bulk_load")
    figures = export_topics(spark, request_of(arguments, "parquet", spark))
    if arguments.compact:
        figures |= compact_table(arguments.target)
    show_summary(figures, as_json=arguments.as_json)
    return True


if __name__ == "__main__":
    raise SystemExit(main())
