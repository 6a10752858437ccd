"""`pylog tail`: the last records of a topic, and then new ones."""

from __future__ import annotations

import click

from pyspark_log.cli.records.consume import consume
from pyspark_log.cli.records.layout_options import printing_options
from pyspark_log.cli.support import complete_topics, partitions_option

_LAST = 10


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@click.option(
    "-n",
    "--last",
    type=click.IntRange(min=0),
    default=_LAST,
    show_default=True,
    metavar="N",
    help="The number of records of each partition to begin with.",
)
@partitions_option
@printing_options
@click.pass_context
def tail(ctx: click.Context, /, **options: object) -> None:
    """Print the last records of each partition of TOPIC, then new ones as they arrive.

    Stop it with Ctrl-C. `pylog consume --last N` prints the last records and ends.
    """
    ctx.invoke(consume, follow=True, **options)
