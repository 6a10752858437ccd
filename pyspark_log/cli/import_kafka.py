"""`pylog import-kafka`: copy topics from a broker's folder into a store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from pyspark_log.cli.output import human_size, print_table, warn
from pyspark_log.cli.target import Target
from pyspark_log.cli.topics import config_option
from pyspark_log.cli.verify import ProgressLine
from pyspark_log.storage.maintenance.transfer import import_kafka as import_topic
from pyspark_log.storage.store import Store


@click.command("import-kafka")
@click.argument("folder", type=click.Path())
@click.option("--topic", "names", multiple=True, metavar="TOPIC", help="Only this topic; may be given several times.")
@click.option(
    "--take-what-is-there", "take", is_flag=True,
    help="Also of a log that has lost its end, by the broker's checkpoints, or whose .txnindex its markers refute.",
)
@config_option
@click.pass_obj
def import_kafka(target: Target, folder: str, names: Sequence[str], take: bool, configs: dict[str, str]) -> None:
    """Copy topics from FOLDER, in which a Kafka broker keeps its logs, into the store; offsets stay as they are.

    Every record is checked. Each topic is imported atomically, with retention.ms=-1 unless --config says otherwise;
    the first that cannot be copied ends the command, and every printed topic is imported. The store is created if
    its folder is missing or empty.
    """
    source = Store.open(folder)
    chosen = [source.describe_topic(name).name for name in dict.fromkeys(names)] or source.topics()
    store = target.open_or_create()
    rows = list[tuple[object, ...]]()
    try:
        for name in chosen:
            rows += _bring(store, source, name, configs, take)
    finally:
        if rows:
            print_table(("PARTITION", "START", "END", "BATCHES", "SIZE"), rows)


def _bring(
    store: Store, source: Store, topic: str, configs: dict[str, str], take: bool
) -> Iterator[tuple[object, ...]]:
    """Copies one topic; a row for each of its partitions."""
    progress = ProgressLine()
    try:
        imported = import_topic(store, source, topic, configs, take_what_is_there=take, progress=progress)
    finally:
        progress.clear()
    for one in imported:
        yield str(one.at), one.log_start, one.log_end, one.batches, human_size(one.bytes)
        if one.last_stable_offset < one.log_end:
            warn(
                f"{one.at}: a transaction is open since offset {one.last_stable_offset}, and no producer will end it "
                "here: readers of committed records stop there"
            )
