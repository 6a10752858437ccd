"""`pylog clean`: applies retention, and removes leftovers of dead writers."""

from __future__ import annotations

import click

from pyspark_log.cli.support import complete_topics, plural
from pyspark_log.cli.target import Target
from pyspark_log.storage.folder_store import FolderStore
from pyspark_log.storage.kinds import by_store
from pyspark_log.storage.maintenance import janitor
from pyspark_log.storage.object_store import ObjectStore


@click.command()
@click.argument("topic", required=False, shell_complete=complete_topics)
@click.pass_obj
def clean(target: Target, topic: str | None) -> None:
    """Delete what exceeds TOPIC's retention, or that of all topics.

    Writers do this whenever they roll a segment of a partition. This command is for partitions that no process writes
    to any more. Without TOPIC it also removes the files of deleted topics, expired committed offsets, and staged
    output that was never published.

    Of a store in an object store it deletes objects that nothing needs any more; run it once a day. An object is
    deleted by the second run that finds it so, a day after the first.
    """

    def clean_folder(store: FolderStore) -> None:
        count = janitor.clean(store) if topic is None else store.clean(topic)
        click.echo(f"{plural(count, 'segment')} removed")

    def clean_objects(store: ObjectStore) -> None:
        cleaned = store.clean(topic)
        click.echo(f"{plural(cleaned.pieces, 'piece')} removed, {plural(cleaned.deleted, 'object')} deleted")
        if cleaned.unused:
            click.echo(f"{plural(cleaned.unused, 'object')} to delete after a day")

    by_store(target.open(), folder=clean_folder, objects=clean_objects)
