"""Imports files into a topic, each once: JSON lines, CSV, Parquet or text.

    spark-submit $(pylog jobs path import_files) STORE /landing --to orders --format json --key id

Each call imports the files that came since the one before it. A task reads a file into Arrow and stages its records;
the driver publishes them together with the committed offsets that say so. So a file is imported as a whole or not at
all, and once, whatever is killed. The topic is created if it is missing. docs/reference/jobs.md says more.
"""

from __future__ import annotations

from types import SimpleNamespace

import click

from pyspark_log.jobs.imports import ImportTarget, columns_of, import_files, import_options
from pyspark_log.jobs.imports.run import FileImport
from pyspark_log.jobs.imports.task import FORMATS
from pyspark_log.jobs.support import Job, argument, session, show_summary


@click.command(cls=Job, help=__doc__)
@import_options("import-files")
@argument(
    "sources", nargs=-1, required=True, help="Files, folders, or patterns with * and **, which all executors see."
)
@click.option("--format", required=True, type=click.Choice(FORMATS), help="The format of the files.")
@click.option("--delimiter", default=",", help="Between the columns of CSV.")
@click.option("--publish-bytes", type=int, default=1 << 30, metavar="N", help="Publish about N bytes of files at once.")
def main(arguments: SimpleNamespace) -> bool:
    """Runs the job."""
    if len(arguments.delimiter) != 1:
        raise click.UsageError("--delimiter is one character")
    wanted = FileImport(
        arguments.sources, arguments.format, columns_of(arguments), arguments.delimiter, arguments.publish_bytes
    )
    target = ImportTarget(arguments.store, arguments.to, arguments.group, own_times=arguments.timestamp is not None)
    show_summary(import_files(session("pylog import_files"), target, wanted), as_json=arguments.as_json)
    return True


if __name__ == "__main__":
    raise SystemExit(main())
