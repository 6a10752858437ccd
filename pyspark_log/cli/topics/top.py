"""`pylog top`: what is written to topics, and how far groups are, as it changes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from pyspark_log.cli.support import (
    NOTHING,
    complete_topics,
    human_size,
    interval_option,
    json_option,
    plural,
    print_json,
    table_text,
    watch,
)
from pyspark_log.cli.target import Target
from pyspark_log.errors import UnknownTopicError
from pyspark_log.storage.groups import OffsetsLog
from pyspark_log.storage.store import Store

_TOPICS = ("TOPIC", "PARTITIONS", "RECORDS", "SIZE", "RECORDS/S", "BYTES/S")
_GROUPS = ("GROUP", "TOPIC", "LAG", "RECORDS/S", "CAUGHT UP IN")


@dataclass(frozen=True, slots=True)
class TopicLook:
    """A topic at a moment: its partitions, the sums of its log starts and ends, and the bytes of its segments."""

    partitions: int
    starts: int
    ends: int
    size: int


@dataclass(frozen=True, slots=True)
class GroupLook:
    """A group in a topic at a moment: the sum of what it has committed, and the offsets from there to the log ends."""

    committed: int
    lag: int


@dataclass(frozen=True, slots=True)
class Look:
    """All of it at a moment.

    Attributes:
        time: seconds of a clock that never goes back.
        topics: by name.
        groups: by group and topic.
    """

    time: float
    topics: Mapping[str, TopicLook]
    groups: Mapping[tuple[str, str], GroupLook]


@click.command()
@click.argument("topic_names", metavar="[TOPIC]...", nargs=-1, shell_complete=complete_topics)
@interval_option
@click.option("--once", is_flag=True, help="Print one look, with the rates of one interval, and end.")
@json_option
@click.pass_obj
def top(target: Target, topic_names: Sequence[str], interval: float, once: bool, as_json: bool) -> None:
    """Show what is written to each TOPIC, and how far its groups are, as it changes; all if none is named.

    Needs a terminal, unless --once or --json is given; stop it with Ctrl-C. Rates are those since the look before.
    RECORDS and LAG count offsets: in a compacted topic some of them have no record any more.
    """
    store = target.open()
    for name in topic_names:
        store.describe_topic(name)
    log = OffsetsLog(store)
    before = look_at(store, log, topic_names)
    if once or as_json:
        time.sleep(interval)
        now = look_at(store, log, topic_names)
        if as_json:
            print_json(document(before, now))
        else:
            click.echo(text(before, now))
        return

    def following() -> str:
        nonlocal before
        earlier, before = before, look_at(store, log, topic_names)
        heading = f"{store.path}: {plural(len(before.topics), 'topic')}, every {interval:g} s (Ctrl-C ends it)"
        return f"{heading}\n\n{text(earlier, before)}"

    watch(following, interval)


def look_at(store: Store, log: OffsetsLog, names: Sequence[str]) -> Look:
    """Looks at the topics, or at all of them, and at all groups that have committed offsets of them."""
    now, topics, ends = time.monotonic(), dict[str, TopicLook](), dict[tuple[str, int], int]()
    for name in names or store.topics():
        try:
            count, starts, total, size = store.describe_topic(name).partitions, 0, 0, 0
            for number in store.written_partitions(name):
                starts += store.earliest_offset(name, number)
                ends[name, number] = end = store.latest_offset(name, number)
                total += end
                size += store.size(name, number)
        except UnknownTopicError:
            continue  # deleted meanwhile
        topics[name] = TopicLook(count, starts, total, size)
    return Look(now, topics, _groups(log, topics, ends))


def _groups(
    log: OffsetsLog, topics: Mapping[str, TopicLook], ends: Mapping[tuple[str, int], int]
) -> dict[tuple[str, str], GroupLook]:
    found = dict[tuple[str, str], GroupLook]()
    for group in log.groups():
        for at, kept in log.fetch(group).items():
            if at.topic in topics:
                known = found.get((group, at.topic), GroupLook(0, 0))
                lag = max(ends.get((at.topic, at.partition), 0) - kept.offset, 0)
                found[group, at.topic] = GroupLook(known.committed + kept.offset, known.lag + lag)
    return found


def text(before: Look, now: Look) -> str:
    """The tables of a look, with the rates since another one."""
    found = document(before, now)
    topics = table_text(_TOPICS, [
        (
            one["topic"], one["partitions"], one["records"], human_size(one["bytes"]), _rate(one["records_per_second"]),
            human_size(round(one["bytes_per_second"])),
        )
        for one in found["topics"]
    ])  # fmt: skip
    groups = table_text(_GROUPS, [
        (
            one["group"], one["topic"], one["lag"], _rate(one["records_per_second"]),
            NOTHING if one["seconds_to_end"] is None else f"{one['seconds_to_end']:.0f} s",
        )
        for one in found["groups"]
    ])  # fmt: skip
    return f"{topics}\n\n{groups}" if found["groups"] else topics


def _rate(amount: float) -> str:
    return f"{amount:.0f}" if amount >= 10 or not amount else f"{amount:.1f}"


def document(before: Look, now: Look) -> dict[str, list[dict[str, Any]]]:
    """A look, with the rates since another one."""
    seconds = max(now.time - before.time, 1e-3)
    topics, groups, written = list[dict[str, Any]](), list[dict[str, Any]](), dict[str, float]()
    for name, one in now.topics.items():
        earlier = before.topics.get(name, one)
        written[name] = max(one.ends - earlier.ends, 0) / seconds
        topics.append({
            "topic": name, "partitions": one.partitions, "records": one.ends - one.starts, "bytes": one.size,
            "records_per_second": written[name],
            # What retention deletes meanwhile is not seen.
            "bytes_per_second": max(one.size - earlier.size, 0) / seconds,
        })  # fmt: skip
    for (group, topic), of in now.groups.items():
        read = max(of.committed - before.groups.get((group, topic), of).committed, 0) / seconds
        gained = read - written[topic]
        groups.append({
            "group": group, "topic": topic, "lag": of.lag, "records_per_second": read,
            "seconds_to_end": 0.0 if not of.lag else of.lag / gained if gained > 0 else None,
        })  # fmt: skip
    return {"topics": topics, "groups": groups}
