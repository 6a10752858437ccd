"""`pylog top`: how fast topics grow, and how far groups lag, as it changes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from pyspark_log.cli.support import (
    NOTHING,
    Colour,
    complete_topics,
    human_size,
    interval_option,
    is_end,
    json_option,
    print_json,
    strong,
    table_text,
    watch,
)
from pyspark_log.cli.target import Target
from pyspark_log.errors import UnknownTopicError
from pyspark_log.storage.seam import Offsets
from pyspark_log.storage.store import Store
from pyspark_log.types import TopicPartition

_TOPICS = ("TOPIC", "PARTITIONS", "RECORDS", "SIZE", "RECORDS/S", "BYTES/S")
_GROUPS = ("GROUP", "TOPIC", "LAG", "RECORDS/S", "CAUGHT UP IN")


@dataclass(frozen=True, slots=True)
class TopicSnapshot:
    """A topic at a moment: its partitions, the sums of its log starts and ends, and the bytes of its segments."""

    partitions: int
    starts: int
    ends: int
    size: int


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """A group in a topic at a moment: the sum of what it has committed, and the offsets from there to the log ends."""

    committed: int
    lag: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is shown, at one moment.

    Attributes:
        time: seconds of a clock that never goes back.
        topics: by name.
        groups: by group and topic.
    """

    time: float
    topics: Mapping[str, TopicSnapshot]
    groups: Mapping[tuple[str, str], GroupSnapshot]


@click.command()
@click.argument("topic_names", metavar="[TOPIC]...", nargs=-1, shell_complete=complete_topics)
@interval_option
@click.option("--once", is_flag=True, help="Print one update, with the rates of one interval, and end.")
@json_option
@click.pass_obj
def top(target: Target, topic_names: Sequence[str], interval: float, once: bool, as_json: bool) -> None:
    """Watch how fast each TOPIC grows and how far its groups lag.

    Without TOPIC, all topics are shown. Keys: q ends it, s sorts by the next column, r reverses the order, / filters
    by a part of a name (Esc clears the filter). Needs a terminal, unless --once or --json is given.

    Rates are those since the update before. RECORDS and LAG count offsets, of which some have no record in a compacted
    topic.
    """
    store = target.open()
    for name in topic_names:
        store.describe_topic(name)
    log = store.groups.log
    before = take_snapshot(store, log, topic_names)
    if once or as_json:
        time.sleep(interval)
        found = document(before, take_snapshot(store, log, topic_names))
        if as_json:
            print_json(found)
        else:
            click.echo(text(found))
        return
    view = View(f"{store.path}, every {interval:g} s", before)
    watch(lambda: view.update(take_snapshot(store, log, topic_names)), view.show, interval, view.press)


class View:
    """What is shown, and how the user wants it."""

    def __init__(self, heading: str, first: Snapshot) -> None:
        self._heading, self._now = heading, first
        self._found = document(first, first)
        self._sort, self._backwards, self._filter, self._typing = 0, False, "", False

    def update(self, now: Snapshot) -> None:
        """Shows a newer snapshot from now on."""
        self._found, self._now = document(self._now, now), now

    def press(self, key: str) -> bool:
        """A key was pressed. Returns whether it ends the view."""
        if self._typing:
            self._type(key)
        elif key == "s":
            self._sort = (self._sort + 1) % len(_SORTS)
        elif key == "r":
            self._backwards = not self._backwards
        elif key == "/":
            self._typing = True
        elif key == _ESCAPE:
            self._filter = ""
        return is_end(key) and not self._typing

    def _type(self, key: str) -> None:
        if key in ("\r", "\n", _ESCAPE):
            self._typing = False
            self._filter = "" if key == _ESCAPE else self._filter
        elif key in ("\x7f", "\b"):
            self._filter = self._filter[:-1]
        elif key.isprintable():
            self._filter += key

    def show(self) -> str:
        """The text of the view."""
        heading, field = list(_SORTS.items())[self._sort]
        topics = [one for one in self._found["topics"] if self._filter in one["topic"]]
        groups = [one for one in self._found["groups"] if self._filter in one["topic"] or self._filter in one["group"]]
        # Names from a on, figures from the largest on.
        topics.sort(key=lambda one: one[field], reverse=(self._sort > 0) != self._backwards)
        groups.sort(key=lambda one: one["lag" if self._sort else "group"], reverse=(self._sort > 0) != self._backwards)
        chosen = f"filter: {self._filter}{'_' if self._typing else ''}   " if self._filter or self._typing else ""
        keys = f"{chosen}sorted by {heading}   q: end  s: sort  r: reverse  /: filter"
        return f"{strong(self._heading)}   {keys}\n\n{text({'topics': topics, 'groups': groups}, _colour)}"


_ESCAPE = "\x1b"
# The columns that topics can be sorted by, with their fields.
_SORTS = {
    "TOPIC": "topic",
    "RECORDS": "records",
    "SIZE": "bytes",
    "RECORDS/S": "records_per_second",
    "BYTES/S": "bytes_per_second",
}


def _colour(heading: str, cell: str) -> str | None:
    if cell == heading:
        return None
    if heading in ("RECORDS/S", "BYTES/S"):
        return None if cell in ("0", "0 B") else "green"
    if heading == "LAG":
        return None if cell == "0" else "yellow"
    return "red" if heading == "CAUGHT UP IN" and cell == NOTHING else None


def take_snapshot(store: Store, log: Offsets, names: Sequence[str]) -> Snapshot:
    """Reads the topics, or all of them, and all groups that have committed offsets in them."""
    now, topics, ends = time.monotonic(), dict[str, TopicSnapshot](), dict[TopicPartition, int]()
    store.publishes.apply_pending()
    for name in names or store.topics():
        try:
            count = store.describe_topic(name).partitions
            written = [TopicPartition(name, number) for number in store.partitions.written(name)]
            starts = sum(store.earliest_offset(name, at.partition) for at in written)
            latest = store.partitions.latest_offsets(written)
            size = sum(store.partitions.size(name, at.partition) for at in written)
        except UnknownTopicError:
            continue  # deleted meanwhile
        topics[name] = TopicSnapshot(count, starts, sum(latest.values()), size)
        ends |= latest
    return Snapshot(now, topics, _groups(log, topics, ends))


def _groups(
    log: Offsets, topics: Mapping[str, TopicSnapshot], ends: Mapping[TopicPartition, int]
) -> dict[tuple[str, str], GroupSnapshot]:
    found = dict[tuple[str, str], GroupSnapshot]()
    for group in log.groups():
        for at, kept in log.fetch(group).items():
            if at.topic in topics:
                known = found.get((group, at.topic), GroupSnapshot(0, 0))
                lag = max(ends.get(at, 0) - kept.offset, 0)
                found[group, at.topic] = GroupSnapshot(known.committed + kept.offset, known.lag + lag)
    return found


def text(found: Mapping[str, Sequence[Mapping[str, Any]]], colour: Colour = lambda *_: None) -> str:
    """The tables of a document."""
    topics = table_text(_TOPICS, [
        (
            one["topic"], one["partitions"], one["records"], human_size(one["bytes"]), _rate(one["records_per_second"]),
            human_size(round(one["bytes_per_second"])),
        )
        for one in found["topics"]
    ], colour=colour)  # fmt: skip
    groups = table_text(_GROUPS, [
        (
            one["group"], one["topic"], one["lag"], _rate(one["records_per_second"]),
            NOTHING if one["seconds_to_end"] is None else f"{one['seconds_to_end']:.0f} s",
        )
        for one in found["groups"]
    ], colour=colour)  # fmt: skip
    return f"{topics}\n\n{groups}" if found["groups"] else topics


def _rate(amount: float) -> str:
    return f"{amount:.0f}" if amount >= 10 or not amount else f"{amount:.1f}"


def document(before: Snapshot, now: Snapshot) -> dict[str, list[dict[str, Any]]]:
    """A snapshot, with the rates since an earlier one."""
    seconds = max(now.time - before.time, 1e-3)
    topics, groups, written = list[dict[str, Any]](), list[dict[str, Any]](), dict[str, float]()
    for name, one in now.topics.items():
        earlier = before.topics.get(name, one)
        written[name] = max(one.ends - earlier.ends, 0) / seconds
        topics.append(
            {
                "topic": name,
                "partitions": one.partitions,
                "records": one.ends - one.starts,
                "bytes": one.size,
                "records_per_second": written[name],
                # What retention deletes meanwhile is not seen.
                "bytes_per_second": max(one.size - earlier.size, 0) / seconds,
            }
        )
    for (group, topic), of in now.groups.items():
        read = max(of.committed - before.groups.get((group, topic), of).committed, 0) / seconds
        gained = read - written[topic]
        groups.append(
            {
                "group": group,
                "topic": topic,
                "lag": of.lag,
                "records_per_second": read,
                "seconds_to_end": 0.0 if not of.lag else of.lag / gained if gained > 0 else None,
            }
        )
    return {"topics": topics, "groups": groups}
