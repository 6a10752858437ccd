"""Imports the rows of a database's table into a topic, each once, by a column that only grows:

    spark-submit --packages org.postgresql:postgresql:42.7.7 $(pylog jobs path import_table) STORE --to orders \
        --url jdbc:postgresql://host/shop --option driver=org.postgresql.Driver --option user=shop \
        --option password=... --table orders --column id

Each call imports the rows whose column is larger than any that was imported. Spark reads the table by JDBC; the driver
publishes the rows together with the committed offset that says so. Rows that are changed or deleted later are not seen.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from pyspark_log.jobs.imports import ImportTarget, Table, add_arguments, columns_of, import_table
from pyspark_log.jobs.support import JobParser, named_values, run, session, show_summary


def work(arguments: argparse.Namespace) -> bool:
    """Runs the job."""
    options = named_values("--option", arguments.option)
    table = Table(arguments.url, arguments.table, arguments.column, options, arguments.tasks)
    fields = columns_of(arguments)
    target = ImportTarget(arguments.store, arguments.to, arguments.group, own_times=arguments.timestamp is not None)
    show_summary(import_table(session("pylog import_table"), target, table, fields), as_json=arguments.json)
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the job with these arguments, or with those of the call; returns its exit code."""
    parser = JobParser(__doc__)
    add_arguments(parser, "import-table")
    parser.add_argument("--url", required=True, help="the database, as JDBC names it")
    parser.add_argument("--table", required=True, help="the table or view")
    parser.add_argument("--column", required=True, help="a column of whole numbers that only grows")
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="an option of Spark's JDBC source"
    )
    parser.add_argument("--tasks", type=int, default=1, help="how many tasks read the table (%(default)s)")
    return run(parser, work, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
