"""`pylog du`: how large topics are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import click

from pyspark_log.cli.support import NOTHING, complete_topics, human_size, json_option, print_json, print_table, warn
from pyspark_log.cli.target import Target
from pyspark_log.storage.store import Store


@dataclass(frozen=True, slots=True)
class _Usage:
    """The size of a topic, or of a partition of it (-1: all)."""

    topic: str
    partition: int
    partitions: int
    written: int
    segments: int
    records: int
    bytes: int


_SORTS: dict[str, Callable[[_Usage], tuple[int | str, ...]]] = {
    "size": lambda one: (-one.bytes, one.topic, one.partition),
    "records": lambda one: (-one.records, one.topic, one.partition),
    "name": lambda one: (one.topic, one.partition),
}


@click.command()
@click.argument("topic_names", metavar="[TOPIC]...", nargs=-1, shell_complete=complete_topics)
@click.option("--partitions", "each", is_flag=True, help="Print a line per partition.")
@click.option("--internal", is_flag=True, help="Include internal topics, if no TOPIC is named.")
@click.option("--sort", type=click.Choice(list(_SORTS)), default="size", show_default=True, help="The order of rows.")
@json_option
@click.pass_obj
def du(target: Target, topic_names: Sequence[str], each: bool, internal: bool, sort: str, as_json: bool) -> None:
    """Print the size of each TOPIC: bytes, segments and records.

    Without TOPIC, of all topics; the largest come first. Sizes are those of the .log files, as in kafka-log-dirs.sh.
    WRITTEN counts the partitions that have files; with --internal the total is the number that `pylog verify` prints.
    RECORDS counts offsets, of which some have no record in a compacted topic.
    """
    store = target.open()
    names = list(dict.fromkeys(topic_names)) or store.topics(internal=internal)
    parts = {name: list(_parts(store, name)) for name in names}
    topics = [_sum(name, store.describe_topic(name).partitions, parts[name]) for name in names]
    rows = [part for name in names for part in parts[name]] if each else topics
    rows.sort(key=_SORTS[sort])
    total = _sum("total", sum(topic.partitions for topic in topics), topics)
    if as_json:
        print_json({"topics": [_document(row, each) for row in rows], **_amounts(total)})
        return
    places = ("PARTITION",) if each else ("PARTITIONS", "WRITTEN")
    print_table(
        ("TOPIC", *places, "SEGMENTS", "RECORDS", "SIZE"),
        [(row.topic, *_place(row, each), row.segments, row.records, human_size(row.bytes)) for row in [*rows, total]],
    )


def _parts(store: Store, topic: str) -> Iterable[_Usage]:
    for number in store.partitions.written(topic):
        one = store.partitions.describe(topic, number)
        if one.problem:
            warn(f"{topic}-{number} is left out: {' '.join(one.problem.split())}")
        else:
            yield _Usage(topic, number, 1, 1, one.segments, one.records, one.size)


def _sum(topic: str, partitions: int, parts: Sequence[_Usage]) -> _Usage:
    return _Usage(
        topic,
        -1,
        partitions,
        sum(part.written for part in parts),
        sum(part.segments for part in parts),
        sum(part.records for part in parts),
        sum(part.bytes for part in parts),
    )


def _place(row: _Usage, each: bool) -> tuple[object, ...]:
    if not each:
        return row.partitions, row.written
    return (NOTHING if row.partition < 0 else row.partition,)


def _document(row: _Usage, each: bool) -> dict[str, object]:
    which = {"partition": row.partition} if each else {"partitions": row.partitions, "written": row.written}
    return {"topic": row.topic, **which, **_amounts(row)}


def _amounts(row: _Usage) -> dict[str, int]:
    return {"segments": row.segments, "records": row.records, "bytes": row.bytes}
