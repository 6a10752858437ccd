"""`pylog offsets`: where the partitions of topics start and end, and how large they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import click

from pyspark_log.cli.support import (
    NOTHING,
    complete_topics,
    human_size,
    json_option,
    partitions_option,
    print_json,
    print_table,
    to_ms,
)
from pyspark_log.cli.target import Target
from pyspark_log.storage.store import Store
from pyspark_log.types import NO_TIMESTAMP, OffsetAndTimestamp, TopicPartition

#: What is found out of a partition; None: there is no such record.
_Lookup = Callable[[TopicPartition], OffsetAndTimestamp | None]

# Kafka's names of points in a log, by the numbers that a ListOffsets request has for them.
_NUMBERS = {"-1": "latest", "-2": "earliest", "-3": "max-timestamp"}
_POINTS = frozenset(_NUMBERS.values())


def _point_or_time(ctx: click.Context, param: click.Parameter, text: str | None) -> str | int | None:
    """An option's callback: the name of a point in a log, or a time in ms."""
    name = _NUMBERS.get(text or "", text)
    return name if name in _POINTS else to_ms(ctx, param, text)


@click.command()
@click.argument("topic_names", metavar="[TOPIC]...", nargs=-1, shell_complete=complete_topics)
@click.option(
    "--time",
    "point",
    callback=_point_or_time,
    metavar="TIME",
    help="Print one offset instead: that of the first record at or after this time"
    " (ms since 1970, or ISO-8601; UTC unless it names a zone), or latest (-1), earliest (-2) or max-timestamp (-3),"
    " the first record with the largest time, as in kafka-get-offsets.sh.",
)
@partitions_option
@json_option
@click.pass_obj
def offsets(
    target: Target, topic_names: Sequence[str], point: str | int | None, partitions: Sequence[int], as_json: bool
) -> None:
    """Print the earliest and latest offset and the size of each partition of TOPIC.

    Without TOPIC, of all topics. The latest offset is what the next record will get. RECORDS counts offsets, of
    which some have no record in a compacted topic.
    """
    store = target.open()
    places = _partitions(store, topic_names or store.topics(), sorted(set(partitions)))
    if point is None:
        _print_ends(list(_ends(store, places)), as_json)
    else:
        _print_matches(list(_matches(places, _lookup(store, point))), as_json)


def _partitions(store: Store, names: Sequence[str], numbers: Sequence[int]) -> Iterator[TopicPartition]:
    """The partitions of those numbers, which need not exist, or all."""
    for name in names:
        for partition in numbers or range(store.describe_topic(name).partitions):
            yield TopicPartition(name, partition)


def _ends(store: Store, places: Iterable[TopicPartition]) -> Iterator[tuple[str, int, int, int, int]]:
    # In this order, so that a partition that is being written to never seems to end before it starts.
    starts = {at: store.earliest_offset(at.topic, at.partition) for at in places}
    for at, end in store.partitions.latest_offsets(starts).items():
        yield at.topic, at.partition, starts[at], end, store.partitions.size(at.topic, at.partition)


def _print_ends(rows: list[tuple[str, int, int, int, int]], as_json: bool) -> None:
    if as_json:
        names = ("topic", "partition", "earliest", "latest", "size_bytes")
        print_json([dict(zip(names, row, strict=True)) for row in rows])
        return
    print_table(
        ("TOPIC", "PARTITION", "EARLIEST", "LATEST", "RECORDS", "SIZE"),
        [
            (topic, partition, earliest, latest, latest - earliest, human_size(size))
            for topic, partition, earliest, latest, size in rows
        ],
    )


def _lookup(store: Store, point: str | int) -> _Lookup:
    if isinstance(point, int):
        return lambda at: store.offset_for_timestamp(at.topic, at.partition, point)
    if point == "max-timestamp":
        return lambda at: store.partitions.offset_of_max_timestamp(at.topic, at.partition)
    if point == "latest":
        return lambda at: OffsetAndTimestamp(store.partitions.latest_offsets([at])[at], NO_TIMESTAMP)
    return lambda at: OffsetAndTimestamp(store.earliest_offset(at.topic, at.partition), NO_TIMESTAMP)


def _matches(places: Iterable[TopicPartition], lookup: _Lookup) -> Iterator[tuple[str, int, int | None, int | None]]:
    for at in places:
        match = lookup(at)
        if match is None:
            yield at.topic, at.partition, None, None
        else:
            yield at.topic, at.partition, match.offset, None if match.timestamp == NO_TIMESTAMP else match.timestamp


def _print_matches(rows: list[tuple[str, int, int | None, int | None]], as_json: bool) -> None:
    if as_json:
        names = ("topic", "partition", "offset", "timestamp")
        print_json([dict(zip(names, row, strict=True)) for row in rows])
        return
    print_table(
        ("TOPIC", "PARTITION", "OFFSET", "TIMESTAMP"),
        [[NOTHING if cell is None else cell for cell in row] for row in rows],
    )
