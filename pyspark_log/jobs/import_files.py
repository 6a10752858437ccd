"""Imports files into a topic, each once: JSON lines, CSV, Parquet or text.

    spark-submit $(pylog jobs path import_files) STORE /landing --to orders --format json --key id

Each call imports the files that came since the one before it. A task reads a file into Arrow and stages its records;
the driver publishes them together with the committed offsets that say so. So a file is imported as a whole or not at
all, and once, whatever is killed. The topic is created if it is missing. docs/jobs.md says more.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from pyspark_log.jobs.imports import ImportTarget, add_arguments, columns_of, import_files
from pyspark_log.jobs.imports.run import FileImport
from pyspark_log.jobs.imports.task import FORMATS
from pyspark_log.jobs.support import CallError, JobParser, run, session, show_summary


def work(arguments: argparse.Namespace) -> bool:
    """Runs the job."""
    if len(arguments.delimiter) != 1:
        raise CallError("--delimiter is one character")
    wanted = FileImport(
        arguments.sources, arguments.format, columns_of(arguments), arguments.delimiter, arguments.publish_bytes
    )
    target = ImportTarget(arguments.store, arguments.to, arguments.group, own_times=arguments.timestamp is not None)
    show_summary(import_files(session("pylog import_files"), target, wanted), as_json=arguments.json)
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the job with these arguments, or with those of the call; returns its exit code."""
    parser = JobParser(__doc__)
    add_arguments(parser, "import-files")
    parser.add_argument("sources", nargs="+", help="files, folders, or patterns with * and **, which all executors see")
    parser.add_argument("--format", required=True, choices=FORMATS, help="the format of the files")
    parser.add_argument("--delimiter", default=",", help="between the columns of CSV (a comma)")
    parser.add_argument(
        "--publish-bytes",
        type=int,
        default=1 << 30,
        metavar="N",
        help="publish about N bytes of files at once (%(default)s)",
    )
    return run(parser, work, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
