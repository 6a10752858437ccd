"""Which topics a job is about."""

from __future__ import annotations

import re
from types import SimpleNamespace

import click

from pyspark_log.cli.support import Pattern, with_options

#: Gives a job --topics and --pattern.
topic_options = with_options(
    [
        click.option("--topics", metavar="A,B", help="The topics; give --topics or --pattern."),
        click.option(
            "--pattern",
            type=Pattern(),
            metavar="REGEX",
            help="All topics whose names contain a match, also later ones.",
        ),
    ]
)


def chosen_topics(arguments: SimpleNamespace) -> list[str] | re.Pattern[str]:
    """The names in --topics, each once, or --pattern. click.UsageError: not one of both is given."""
    names = list(dict.fromkeys(name.strip() for name in (arguments.topics or "").split(",") if name.strip()))
    pattern: re.Pattern[str] | None = arguments.pattern
    if arguments.topics is not None and pattern is not None:
        raise click.UsageError("--topics and --pattern exclude each other")
    if not names and (pattern is None or not pattern.pattern):
        raise click.UsageError("which topics? Give --topics or --pattern")
    return pattern or names
