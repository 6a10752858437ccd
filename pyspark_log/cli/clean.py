"""`pylog clean`: retention, and what writers that died have left behind."""

from __future__ import annotations

import click

from pyspark_log.cli.target import Target
from pyspark_log.storage.maintenance import janitor


@click.command()
@click.argument("topic", required=False)
@click.pass_obj
def clean(target: Target, topic: str | None) -> None:
    """Remove what TOPIC's retention no longer asks for; without TOPIC, of all topics and of the store itself.

    Writers do this for a partition whenever they begin a segment of it. This is for partitions that nobody writes to
    any more, for the files of deleted topics, for positions of groups that have expired, and for staged output that
    was never published.
    """
    store = target.open()
    count = janitor.clean(store) if topic is None else store.clean(topic)
    click.echo(f"{count} segments removed")
