"""The arguments that import_files and import_table share."""

from __future__ import annotations

import argparse

from pyspark_log.jobs.imports.rows import RecordFields
from pyspark_log.jobs.support import CallError, JobParser


def add_arguments(parser: JobParser, group: str) -> None:
    """Adds them; `group` is the default of --group."""
    parser.add_argument("store", help="the folder or URL of the store")
    parser.add_argument(
        "--to", required=True, metavar="TOPIC", help="the topic that gets the records; created if it is missing"
    )
    parser.add_argument(
        "--group", default=group, help="the group whose committed offsets record what was imported (%(default)s)"
    )
    parser.add_argument("--key", metavar="COLUMN", help="the column that becomes the key; by default records have none")
    parser.add_argument(
        "--value", metavar="COLUMN", help="the column that becomes the value; by default the whole row, as JSON"
    )
    parser.add_argument(
        "--timestamp",
        metavar="COLUMN",
        help="the column that becomes the record's time: a time, ISO-8601 text (UTC unless it names a zone), or ms;"
        " by default the time of the import",
    )
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")


def columns_of(arguments: argparse.Namespace) -> RecordFields:
    """Which columns become what. CallError: one is named twice."""
    fields = RecordFields(arguments.key, arguments.value, arguments.timestamp)
    named = [name for name in fields if name is not None]
    if len(named) > len(set(named)):
        raise CallError("--key, --value and --timestamp name the same column")
    return fields
