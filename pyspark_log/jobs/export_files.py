"""Exports topics into files of JSON, CSV, text or Parquet, exactly once:

    spark-submit $(pylog jobs path export_files) STORE TARGET --topics A,B --format json

The same as bulk_load, for other formats. Keys and values of JSON, CSV and text must be UTF-8, or are written in base64.
JSON has the fields of `pylog consume --format json`, a record a line; text has the values, a line each.
"""

from __future__ import annotations

from types import SimpleNamespace

import click

from pyspark_log.jobs.export import export_options, export_topics, request_of
from pyspark_log.jobs.support import Job, session, show_summary


@click.command(cls=Job, help=__doc__)
@export_options("export-files")
@click.option("--format", type=click.Choice(["json", "csv", "text", "parquet"]), default="json", help="Of the files.")
@click.option(
    "--encoding",
    type=click.Choice(["text", "base64"]),
    default="text",
    help="How keys and values are written, except in Parquet.",
)
def main(arguments: SimpleNamespace) -> bool:
    """Runs the job."""
    spark = session("pylog export_files")
    request = request_of(arguments, arguments.format, spark, base64=arguments.encoding == "base64")
    show_summary(export_topics(spark, request), as_json=arguments.as_json)
    return True


if __name__ == "__main__":
    raise SystemExit(main())
