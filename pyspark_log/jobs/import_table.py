r"""Imports the rows of a database's table into a topic, each once, by a column that only grows:

    spark-submit --packages org.postgresql:postgresql:42.7.7 $(pylog jobs path import_table) STORE --to orders \
        --url jdbc:postgresql://host/shop --option driver=org.postgresql.Driver --option user=shop \
        --option password=... --table orders --column id

Each call imports the rows whose column is larger than any that was imported. Spark reads the table by JDBC; the driver
publishes the rows together with the committed offset that says so. Rows that are changed or deleted later are not seen.
"""

from __future__ import annotations

from types import SimpleNamespace

import click

from pyspark_log.cli.support import named_values
from pyspark_log.jobs.imports import ImportTarget, Table, columns_of, import_options, import_table
from pyspark_log.jobs.support import Job, session, show_summary


@click.command(cls=Job, help=__doc__)
@import_options("import-table")
@click.option("--url", required=True, help="The database, as JDBC names it.")
@click.option("--table", required=True, help="The table or view.")
@click.option("--column", required=True, help="A column of whole numbers that only grows.")
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    callback=named_values,
    help="An option of Spark's JDBC source; repeatable.",
)
@click.option("--tasks", type=int, default=1, help="How many tasks read the table.")
def main(arguments: SimpleNamespace) -> bool:
    """Runs the job."""
    table = Table(arguments.url, arguments.table, arguments.column, arguments.options, arguments.tasks)
    fields = columns_of(arguments)
    target = ImportTarget(arguments.store, arguments.to, arguments.group, own_times=arguments.timestamp is not None)
    show_summary(import_table(session("pylog import_table"), target, table, fields), as_json=arguments.as_json)
    return True


if __name__ == "__main__":
    raise SystemExit(main())
