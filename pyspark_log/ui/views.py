"""What each page of the store shows, as its template is given it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pyspark_log.config import TOPIC_CONFIGS
from pyspark_log.errors import UnknownGroupError
from pyspark_log.monitoring import GroupSnapshot, Snapshot, TopicSnapshot
from pyspark_log.storage.groups import assigned_partitions
from pyspark_log.storage.groups.log.metadata import CONSUMER
from pyspark_log.storage.groups.members.query_readers import query_of
from pyspark_log.storage.publish.decision import NO_NUMBER
from pyspark_log.storage.store import Store
from pyspark_log.types import TopicPartition
from pyspark_log.ui.bounds import MOST_DIGITS, MOST_ROWS
from pyspark_log.ui.history import History, Points, Trend, latest

_ENGINES = "__"
Context = dict[str, Any]


class TopicRow(NamedTuple):
    """A topic in a table."""

    name: str
    partitions: int
    records: int
    size: int
    offline: int
    rate: float | None
    points: Points
    lag: int | None


class GroupRow(NamedTuple):
    """A group in a table."""

    name: str
    known: GroupSnapshot | None
    topics: Sequence[str]
    lag: int
    points: Points
    trend: Trend
    last_commit: int | None


class ConfigRow(NamedTuple):
    """A config of a topic: its value, "topic", "store" or "default" as where that is set, and what it means."""

    name: str
    value: str
    source: str
    default: str
    unit: str
    meaning: str


_TOPIC_ORDERS: Mapping[str, Callable[[TopicRow], Any]] = {
    "name": lambda row: row.name,
    "partitions": lambda row: -row.partitions,
    "records": lambda row: -row.records,
    "size": lambda row: -row.size,
    "rate": lambda row: -(row.rate or 0),
    "lag": lambda row: -(row.lag or 0),
}
_GROUP_ORDERS: Mapping[str, Callable[[GroupRow], Any]] = {
    "name": lambda row: row.name,
    "state": lambda row: row.known.state if row.known else "",
    "members": lambda row: -(row.known.members if row.known else 0),
    "lag": lambda row: -row.lag,
    "commit": lambda row: -(row.last_commit or 0),
}


class Part(NamedTuple):
    """Some rows of a table.

    Attributes:
        rows: these.
        first, total: the number of the first one, and of all.
        next, previous: the numbers at which other parts begin; None: there are none.
    """

    rows: Sequence[Any]
    first: int
    total: int
    previous: int | None
    next: int | None


def part(rows: Sequence[Any], query: Mapping[str, str]) -> Part:
    """As many rows as a page has, from the one on that the query says."""
    text = query.get("from", "0")
    first = min(int(text), len(rows)) if text.isdecimal() and len(text) <= MOST_DIGITS else 0
    end = first + MOST_ROWS
    return Part(
        rows[first:end], first, len(rows), max(first - MOST_ROWS, 0) if first else None,
        end if end < len(rows) else None,
    )  # fmt: skip


def overview(snapshot: Snapshot, history: History, query: Mapping[str, str]) -> Context:
    """All topics."""
    lags = _lags(snapshot)
    of_topics = defaultdict[str, int](int)
    for (_, topic), lag in lags.items():
        of_topics[topic] = max(of_topics[topic], lag)
    own = {name: topic for name, topic in snapshot.topics.items() if not name.startswith(_ENGINES)}
    shown = snapshot.topics if "internal" in query else own
    wanted = query.get("filter", "")
    chosen = [
        TopicRow(
            name, topic.partitions, topic.records, topic.size, topic.offline,
            latest(points := history.written(name)), points, of_topics.get(name),
        )
        for name, topic in shown.items()
        if wanted in name
    ]  # fmt: skip
    order = query.get("sort", "name")
    chosen.sort(key=_TOPIC_ORDERS.get(order, _TOPIC_ORDERS["name"]))
    written, stored = history.all_written(own), history.all_bytes_written(own)
    lagging = history.lag(snapshot.committed)
    return {
        "rows": part(chosen, query), "order": order, "wanted": wanted, "internal": "internal" in query,
        "topics": len(own), "partitions": sum(topic.partitions for topic in own.values()),
        "records": sum(topic.records for topic in own.values()), "size": sum(topic.size for topic in own.values()),
        "offline": sum(topic.offline for topic in snapshot.topics.values()), "groups": len(snapshot.committed),
        "lag": sum(lags.values()), "written": written, "stored": stored, "lagging": lagging,
        "rate": latest(written), "size_rate": latest(stored),
    }  # fmt: skip


def topic(store: Store, snapshot: Snapshot, history: History, name: str, query: Mapping[str, str]) -> Context:
    """One topic. UnknownTopicError."""
    described = store.describe_topic(name)
    found = snapshot.topics.get(name) or TopicSnapshot(described.partitions, ())  # it was created just now
    written = {one.partition: one for one in found.written}
    lags = {group: lag for (group, topic), lag in sorted(_lags(snapshot).items()) if topic == name}
    return {
        "topic": name, "found": found, "configs": _configs(described.configs, store.configs),
        "topic_id": described.topic_id, "is_brokers": store.partitions.are_brokers, "written": history.written(name),
        "stored": history.bytes_written(name), "rate": latest(history.written(name)),
        "rows": part([(number, written.get(number)) for number in range(found.partitions)], query),
        "open": sum(one.high_watermark - one.last_stable_offset for one in found.written if not one.problem),
        "sizes": [max(written[number].size, 0) if number in written else 0 for number in range(found.partitions)],
        "readers": _group_rows(snapshot, history, lags),
    }  # fmt: skip


def _configs(own: Mapping[str, str], of_store: Mapping[str, str]) -> list[ConfigRow]:
    """All configs of a topic as they count, those that are set first."""
    rows = list[ConfigRow]()
    for key in TOPIC_CONFIGS.values():
        value, source = key.default, "default"
        if key.name in own:
            value, source = own[key.name], "topic"
        elif key.store_name in of_store:
            value, source = of_store[key.store_name], "store"
        rows.append(ConfigRow(key.name, value, source, key.default, key.unit, key.meaning))
    return sorted(rows, key=lambda row: (row.source == "default", row.name))


def groups(snapshot: Snapshot, history: History, query: Mapping[str, str]) -> Context:
    """All groups."""
    wanted, order = query.get("filter", ""), query.get("sort", "name")
    names = {*snapshot.committed, *snapshot.groups}
    rows = _group_rows(snapshot, history, [name for name in names if wanted in name])
    rows.sort(key=lambda row: row.name)
    rows.sort(key=_GROUP_ORDERS.get(order, _GROUP_ORDERS["name"]))
    return {"rows": part(rows, query), "order": order, "wanted": wanted, "all": len(names)}


def group(store: Store, snapshot: Snapshot, history: History, name: str, query: Mapping[str, str]) -> Context:
    """One group. UnknownGroupError."""
    if name not in snapshot.committed and name not in snapshot.groups:
        raise UnknownGroupError(f"there is no group {name!r} in {store.path}")
    [row] = _group_rows(snapshot, history, [name])
    ends = snapshot.ends()
    rows = [
        (at, offset, ends.get(at, 0), left) for whose, at, offset, left in sorted(snapshot.positions()) if whose == name
    ]
    owners = dict[TopicPartition, str]()
    described = store.groups.log.describe(name)
    for member in described.members:
        if member.partitions is not None or described.protocol_type == CONSUMER:
            assigned = assigned_partitions(member.assignment) if member.partitions is None else member.partitions
            owners |= dict.fromkeys(assigned, member.client_id)
    return {
        "group": name, "row": row, "read": history.read(name), "rows": part(rows, query), "owners": owners,
        "members": described.members[:MOST_ROWS], "protocol": described.protocol,
        "reader": query_of(store.groups.log.fetch(name, with_resets=True)),
    }  # fmt: skip


def publishes(snapshot: Snapshot, query: Mapping[str, str]) -> Context:
    """All publishers, those that published last first."""
    known = [one for one in snapshot.publishers if one.number != NO_NUMBER]
    return {"rows": part(sorted(known, key=lambda one: -one.time), query), "pending": snapshot.pending}


def _lags(snapshot: Snapshot) -> dict[tuple[str, str], int]:
    """How many records each group has left in each topic."""
    found = defaultdict[tuple[str, str], int](int)
    for group, at, _, left in snapshot.positions():
        found[group, at.topic] += left or 0
    return found


def _group_rows(snapshot: Snapshot, history: History, names: Iterable[str]) -> list[GroupRow]:
    topics, lags = defaultdict[str, list[str]](list), defaultdict[str, int](int)
    for (group, topic), lag in _lags(snapshot).items():
        topics[group].append(topic)
        lags[group] += lag
    return [
        GroupRow(
            name,
            snapshot.groups.get(name),
            topics[name],
            lags[name],
            history.lag([name]),
            history.trend(name),
            snapshot.last_commits.get(name),
        )
        for name in names
    ]
