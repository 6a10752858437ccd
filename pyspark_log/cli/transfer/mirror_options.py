"""The options that `pylog mirror` and the job mirror have in common."""

from __future__ import annotations

import click

from pyspark_log.cli.support import Pattern, json_option, with_options
from pyspark_log.cli.transfer.client_option import client_option

#: Gives a command --topics, --until-now, --groups, --client-config, --skip-lost and --json.
mirror_options = with_options([
    click.option(
        "--topics", multiple=True, required=True, type=Pattern(), metavar="PATTERN",
        help="Topics whose whole names match this regular expression, such as orders or 'clicks-.*'; repeatable.",
    ),
    click.option(
        "--until-now", is_flag=True, help="End at what SOURCE has now; otherwise run until Ctrl-C or SIGTERM."
    ),
    click.option(
        "--groups", type=Pattern(), metavar="PATTERN",
        help="Also copy the committed offsets of groups whose names contain a match.",
    ),
    client_option,
    click.option(
        "--skip-lost", is_flag=True, help="Continue even if records were deleted or lost before they were mirrored."
    ),
    json_option,
])  # fmt: skip
