"""`pylog clean`: applies retention, and removes leftovers of dead writers."""

from __future__ import annotations

import click

from pyspark_log.cli.support import complete_topics
from pyspark_log.cli.target import Target
from pyspark_log.storage.maintenance import janitor


@click.command()
@click.argument("topic", required=False, shell_complete=complete_topics)
@click.pass_obj
def clean(target: Target, topic: str | None) -> None:
    """Delete what exceeds TOPIC's retention; without TOPIC, clean all topics and the store itself.

    Writers do this for a partition whenever they roll a segment of it. This is for partitions that no process writes
    to any more, for the files of deleted topics, for expired offsets of groups, and for staged output that was never
    published.
    """
    store = target.open()
    count = janitor.clean(store) if topic is None else store.clean(topic)
    click.echo(f"{count} segments removed")
