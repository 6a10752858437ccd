"""`pylog merge`: makes few large objects of many small ones."""

from __future__ import annotations

import click

from pyspark_log.cli.support import ProgressBar, complete_topics, human_size, plural
from pyspark_log.cli.target import Target
from pyspark_log.storage.abilities import Missing
from pyspark_log.storage.folder_store import FolderStore
from pyspark_log.storage.kinds import by_store
from pyspark_log.storage.publish_log.maintenance import Merged


@click.command()
@click.argument("topic", required=False, shell_complete=complete_topics)
@click.pass_obj
def merge(target: Target, topic: str | None) -> None:
    """Merge small pieces of TOPIC into larger objects, or those of all topics.

    Of a store in an object store: each publish adds a piece to a partition. Merged, they take fewer requests to read,
    and can be opened as segments of Kafka once they are large. Other processes may read and write meanwhile. Run it
    once an hour.
    """

    def refuse_folder(store: FolderStore) -> Merged:
        raise click.UsageError(f"{store.path}: {Missing.MERGE.value}")

    with ProgressBar("merge") as progress:
        merged = by_store(target.open(), folder=refuse_folder, objects=lambda store: store.merge(topic, progress))
    click.echo(f"{plural(merged.before, 'piece')} ({human_size(merged.size)}) merged into {merged.after}")
