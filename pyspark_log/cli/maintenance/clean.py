"""`pylog clean`: applies retention, and removes leftovers of dead writers."""

from __future__ import annotations

import click

from pyspark_log.cli.support import complete_topics, plural
from pyspark_log.cli.target import Target
from pyspark_log.storage.maintenance import janitor


@click.command()
@click.argument("topic", required=False, shell_complete=complete_topics)
@click.pass_obj
def clean(target: Target, topic: str | None) -> None:
    """Delete what exceeds TOPIC's retention, or that of all topics.

    Writers do this whenever they roll a segment of a partition. This command is for partitions that no process writes
    to any more. Without TOPIC it also removes the files of deleted topics, expired committed offsets, and staged
    output that was never published.
    """
    store = target.open_folder()
    count = janitor.clean(store) if topic is None else store.clean(topic)
    click.echo(f"{plural(count, 'segment')} removed")
