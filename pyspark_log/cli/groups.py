"""`pylog groups`: consumer groups and how far behind they are."""

from __future__ import annotations

import click

from pyspark_log.cli.output import NOTHING, json_option, print_json, print_table
from pyspark_log.cli.target import Target
from pyspark_log.storage.errors import UnknownTopicError
from pyspark_log.storage.offsets_log import OffsetsLog
from pyspark_log.storage.store import Store
from pyspark_log.storage.types import TopicPartition


@click.group()
def groups() -> None:
    """List and describe consumer groups (a streaming query is one, too)."""


@groups.command("list")
@json_option
@click.pass_obj
def list_groups(target: Target, as_json: bool) -> None:
    """Print the names of all groups that have committed offsets."""
    names = OffsetsLog(target.open()).groups()
    if as_json:
        print_json(names)
    for name in [] if as_json else names:
        click.echo(name)


@groups.command()
@click.argument("group")
@json_option
@click.pass_obj
def describe(target: Target, group: str, as_json: bool) -> None:
    """Print what GROUP has committed for each partition, where its log ends, and the lag between."""
    store = target.open()
    committed = OffsetsLog(store).fetch(group)
    if not committed:
        raise click.ClickException(f"there is no group {group!r} with committed offsets in {store.path}")
    rows = []
    for at in sorted(committed):
        end = _log_end(store, at)
        offset = committed[at].offset
        rows.append({
            "group": group, "topic": at.topic, "partition": at.partition, "committed": offset,
            "log_end": end, "lag": None if end is None else max(end - offset, 0),
            "metadata": committed[at].metadata, "commit_timestamp": committed[at].commit_timestamp,
        })
    if as_json:
        print_json(rows)
    else:
        shown = ("group", "topic", "partition", "committed", "log_end", "lag")
        print_table(
            ("GROUP", "TOPIC", "PARTITION", "COMMITTED", "LOG-END", "LAG"),
            [[_cell(row[name]) for name in shown] for row in rows],
        )


def _log_end(store: Store, at: TopicPartition) -> int | None:
    try:
        return store.latest_offset(at.topic, at.partition)
    except UnknownTopicError:
        return None  # deleted since; the commit stays until the group's offsets expire


def _cell(value: object) -> object:
    return NOTHING if value is None else value
