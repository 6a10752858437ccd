"""`pylog offsets`: where the partitions of topics start and end, and how large they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from pyspark_log.cli.output import NOTHING, human_size, json_option, print_json, print_table
from pyspark_log.cli.target import Target
from pyspark_log.cli.times import to_ms
from pyspark_log.storage.store import Store


@click.command()
@click.argument("topic_names", metavar="[TOPIC]...", nargs=-1)
@click.option(
    "--time", "timestamp", callback=to_ms, metavar="TIME",
    help="Instead: the first offset whose record has this time or a later one"
    " (ms since 1970, or ISO-8601, UTC if it names no zone).",
)
@json_option
@click.pass_obj
def offsets(target: Target, topic_names: Sequence[str], timestamp: int | None, as_json: bool) -> None:
    """Print earliest and latest offset and size of each partition of each TOPIC; of all if none is named.

    The latest offset is the one that the next record will get. RECORDS counts offsets: in a compacted topic
    some of them have no record any more.
    """
    store = target.open()
    names = topic_names or store.topics()
    if timestamp is None:
        _print_ends(list(_ends(store, names)), as_json)
    else:
        _print_matches(list(_matches(store, names, timestamp)), as_json)


def _partitions(store: Store, names: Sequence[str]) -> Iterator[tuple[str, int]]:
    for name in names:
        for partition in range(store.describe_topic(name).partitions):
            yield name, partition


def _ends(store: Store, names: Sequence[str]) -> Iterator[tuple[str, int, int, int, int]]:
    for name, partition in _partitions(store, names):
        earliest = store.earliest_offset(name, partition)
        # In this order, so that a partition that is being written to never seems to end before it starts.
        yield name, partition, earliest, store.latest_offset(name, partition), store.size(name, partition)


def _print_ends(rows: list[tuple[str, int, int, int, int]], as_json: bool) -> None:
    if as_json:
        names = ("topic", "partition", "earliest", "latest", "size_bytes")
        print_json([dict(zip(names, row, strict=True)) for row in rows])
        return
    print_table(("TOPIC", "PARTITION", "EARLIEST", "LATEST", "RECORDS", "SIZE"), [
        (topic, partition, earliest, latest, latest - earliest, human_size(size))
        for topic, partition, earliest, latest, size in rows
    ])


def _matches(
    store: Store, names: Sequence[str], timestamp: int
) -> Iterator[tuple[str, int, int | None, int | None]]:
    for name, partition in _partitions(store, names):
        match = store.offset_for_timestamp(name, partition, timestamp)
        if match is None:
            yield name, partition, None, None
        else:
            yield name, partition, match.offset, match.timestamp


def _print_matches(rows: list[tuple[str, int, int | None, int | None]], as_json: bool) -> None:
    if as_json:
        names = ("topic", "partition", "offset", "timestamp")
        print_json([dict(zip(names, row, strict=True)) for row in rows])
        return
    print_table(("TOPIC", "PARTITION", "OFFSET", "TIMESTAMP"), [
        [NOTHING if cell is None else cell for cell in row] for row in rows
    ])
