"""The arguments that import_files and import_table share."""

from __future__ import annotations

from types import SimpleNamespace

import click

from pyspark_log.cli.support import json_option, with_options
from pyspark_log.jobs.imports.rows import RecordFields
from pyspark_log.jobs.support import Decorator, argument


def import_options(group: str) -> Decorator:
    """Gives a job them; `group` is the default of --group."""
    return with_options([
        argument("store", help="The folder or URL of the store."),
        click.option(
            "--to", required=True, metavar="TOPIC", help="The topic that gets the records; created if it is missing."
        ),
        click.option("--group", default=group, help="The group whose committed offsets record what was imported."),
        click.option("--key", metavar="COLUMN", help="The column that becomes the key; by default records have none."),
        click.option(
            "--value", metavar="COLUMN", help="The column that becomes the value; by default the whole row, as JSON."
        ),
        click.option(
            "--timestamp", metavar="COLUMN",
            help="The column that becomes the record's time: a time, ISO-8601 text (UTC unless it names a zone), or ms;"
            " by default the time of the import.",
        ),
        json_option,
    ])  # fmt: skip


def columns_of(arguments: SimpleNamespace) -> RecordFields:
    """Which columns become what. click.UsageError: one is named twice."""
    fields = RecordFields(arguments.key, arguments.value, arguments.timestamp)
    named = [name for name in fields if name is not None]
    if len(named) > len(set(named)):
        raise click.UsageError("--key, --value and --timestamp name the same column")
    return fields
