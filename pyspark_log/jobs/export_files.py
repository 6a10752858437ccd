"""Exports topics into files of JSON, CSV, text or Parquet, exactly once:

    spark-submit $(pylog jobs path export_files) STORE TARGET --topics A,B --format json

The same as bulk_load, for other formats. Keys and values of JSON, CSV and text must be UTF-8, or are written in base64.
JSON has the fields of `pylog consume --format json`, a record a line; text has the values, a line each.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from pyspark_log.jobs.export import add_arguments, export_topics, request_of
from pyspark_log.jobs.support import JobParser, run, session, show_summary


def work(arguments: argparse.Namespace) -> bool:
    """Runs the job."""
    spark = session("pylog export_files")
    request = request_of(arguments, arguments.format, spark, base64=arguments.encoding == "base64")
    show_summary(export_topics(spark, request), as_json=arguments.json)
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the job with these arguments, or with those of the call; returns its exit code."""
    parser = JobParser(__doc__)
    add_arguments(parser, group="export-files")
    parser.add_argument(
        "--format", default="json", choices=("json", "csv", "text", "parquet"), help="of the files (%(default)s)"
    )
    parser.add_argument(
        "--encoding",
        default="text",
        choices=("text", "base64"),
        help="how keys and values are written, except in Parquet (%(default)s)",
    )
    return run(parser, work, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
