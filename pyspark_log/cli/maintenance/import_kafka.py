"""`pylog import-kafka`: copy topics from a broker's folder into a store."""

from __future__ import annotations

from collections.abc import Sequence

import click

from pyspark_log.cli.support import ProgressBar, human_size, json_option, print_json, print_table, warn
from pyspark_log.cli.target import Target
from pyspark_log.cli.topics.topics import config_option
from pyspark_log.errors import StoreNotFoundError
from pyspark_log.storage.folder_store import FolderStore
from pyspark_log.storage.fs import files
from pyspark_log.storage.maintenance.transfer import ImportedPartition
from pyspark_log.storage.maintenance.transfer import import_kafka as import_topic

_INSTEAD = (
    "Import into a store in a folder, and copy that to a new URL with `pylog backup --into URL`; or use the job mirror "
    "with --from-store, which reads a broker's folder."
)


@click.command("import-kafka")
@click.argument("folder", type=click.Path())
@click.option("--topic", "names", multiple=True, metavar="TOPIC", help="Only this topic; repeatable.")
@click.option(
    "--take-what-is-there",
    "take",
    is_flag=True,
    help="Also import a log that is shorter than the checkpoints say, or whose .txnindex contradicts its markers.",
)
@config_option
@json_option
@click.pass_obj
def import_kafka(
    target: Target, folder: str, names: Sequence[str], take: bool, configs: dict[str, str], as_json: bool
) -> None:
    """Copy topics from FOLDER, the log dir of a Kafka broker, into the store.

    Offsets do not change, and every record is checked. Each topic is imported completely or not at all, with
    retention.ms=-1 unless --config says otherwise. The command ends at the first topic that cannot be copied; every
    topic it prints is imported. The store is created if its folder is missing or empty. Committed offsets
    of groups are not imported: the job mirror copies them, with --groups.
    """
    source = _open(folder)
    chosen = [source.describe_topic(name).name for name in dict.fromkeys(names)] or source.topics()
    store = target.open_folder_or_create(_INSTEAD)
    done = list[ImportedPartition]()
    try:
        for name in chosen:
            done += _bring(store, source, name, configs, take)
    finally:
        if as_json:
            print_json([_document(one) for one in done])
        elif done:
            click.echo("committed offsets of groups are not copied: use the job mirror with --groups", err=True)
            print_table(
                ("PARTITION", "START", "END", "BATCHES", "SIZE"),
                [(str(one.at), one.log_start, one.log_end, one.batches, human_size(one.bytes)) for one in done],
            )


def _open(folder: str) -> FolderStore:
    """The log dir of a broker."""
    try:
        return FolderStore.open(folder)
    except StoreNotFoundError as error:
        if files.exists(folder) or "," in folder:
            raise
        raise click.ClickException(
            f"there is no folder {folder}: give a folder of a Kafka broker's log.dirs, or a copy of one"
        ) from error


def _document(one: ImportedPartition) -> dict[str, object]:
    return {
        "topic": one.at.topic,
        "partition": one.at.partition,
        "log_start": one.log_start,
        "log_end": one.log_end,
        "last_stable_offset": one.last_stable_offset,
        "batches": one.batches,
        "bytes": one.bytes,
    }


def _bring(
    store: FolderStore, source: FolderStore, topic: str, configs: dict[str, str], take: bool
) -> Sequence[ImportedPartition]:
    """Copies one topic."""
    with ProgressBar(f"import {topic}") as progress:
        imported = import_topic(store, source, topic, configs, take_what_is_there=take, progress=progress)
    for one in imported:
        if one.last_stable_offset < one.log_end:
            warn(
                f"{one.at}: a transaction is open since offset {one.last_stable_offset}, and no producer can end it "
                "here; read_committed readers stop there"
            )
    return imported
