"""A store at a moment, as any process can read it: sizes, offsets, lag, publishers."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pyspark_log.errors import PylogError, UnknownTopicError
from pyspark_log.storage.fs import clock
from pyspark_log.storage.groups import GroupState
from pyspark_log.storage.groups.members.query_readers import state_of
from pyspark_log.storage.log_manager import PartitionDescription
from pyspark_log.storage.publish import Decision
from pyspark_log.storage.store import Store
from pyspark_log.types import TopicPartition

_log = logging.getLogger(__name__)

# Reading takes at most this part of the time: 1 / 20.
_LEAST_PAUSES = 20


class GroupSnapshot(NamedTuple):
    """A group at a moment.

    Attributes:
        state: by Kafka's name, or "Query".
        members: how many it has.
        generations: how many generations it has had, of a group of KIP-848 its epoch; None: only its server knows.
    """

    state: str
    members: int
    generations: int | None = None


@dataclass(frozen=True, slots=True)
class TopicSnapshot:
    """A topic at a moment.

    Attributes:
        partitions: how many it has.
        written: those that have files.
    """

    partitions: int
    written: Sequence[PartitionDescription]

    @property
    def ends(self) -> int:
        """The sum of the ends of the partitions that can be read; it grows by one with each record."""
        return sum(one.high_watermark for one in self.written if not one.problem)

    @property
    def records(self) -> int:
        """How many offsets can be read."""
        return sum(one.high_watermark - one.log_start for one in self.written if not one.problem)

    @property
    def size(self) -> int:
        """The bytes of its records, as they are stored."""
        return sum(one.size for one in self.written if not one.problem)

    @property
    def offline(self) -> int:
        """How many partitions cannot be read."""
        return sum(bool(one.problem) for one in self.written)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A store at a moment.

    Attributes:
        time: when it was read (ms since 1970).
        seconds: how long that took.
        problem: why the store could not be read; "": it could. All that follows is empty otherwise.
        topics: by name, with the engine's own.
        committed: the committed offsets of each group; below 0: it starts over.
        last_commits: when each group committed last (ms).
        groups: their states, of those that have one.
        publishers: the last decision of each publisher.
        pending: how many publishes were decided and not visible everywhere yet.
    """

    time: int
    seconds: float
    problem: str = ""
    topics: Mapping[str, TopicSnapshot] = field(default_factory=dict)
    committed: Mapping[str, Mapping[TopicPartition, int]] = field(default_factory=dict)
    last_commits: Mapping[str, int] = field(default_factory=dict)
    groups: Mapping[str, GroupSnapshot] = field(default_factory=dict)
    publishers: Sequence[Decision] = ()
    pending: int = 0

    def ends(self) -> dict[TopicPartition, int | None]:
        """The ends of all partitions that have files; None: it is unknown."""
        return {
            TopicPartition(name, one.partition): None if one.problem else one.high_watermark
            for name, topic in self.topics.items()
            for one in topic.written
        }

    def positions(self) -> Iterator[tuple[str, TopicPartition, int, int | None]]:
        """What groups have committed in partitions that exist: group, partition, offset, and the offsets after it.

        The last one is None where the end of the partition is unknown, and where the group starts over.
        """
        ends = self.ends()
        for group, offsets in self.committed.items():
            for at, offset in offsets.items():
                topic = self.topics.get(at.topic)
                if topic is not None and at.partition < topic.partitions:
                    end = ends.get(at, 0)
                    yield group, at, offset, None if end is None or offset < 0 else max(end - offset, 0)


Live = Callable[[], Mapping[str, GroupSnapshot]]


def take_snapshot(store: Store, live: Live | None = None) -> Snapshot:
    """Reads a store. Publishes that are decided and not applied are counted, and then applied.

    Args:
        store: the store.
        live: gives the groups as the store's server has them; None: groups are as their records say.

    Raises:
        PylogError, OSError: the store cannot be read. A partition that cannot be is described with its problem.
    """
    began = time.monotonic()
    with store.partitions.looking():
        publishers, pending = store.publishes.publishers(), len(store.publishes.pending())
        store.publishes.apply_pending()
        log = store.groups.log
        # Before the ends of logs, as in `pylog groups describe`.
        kept = {group: log.fetch(group, with_resets=True) for group in log.groups()}
        topics = _topics(store)
        found = _recorded(store, list(kept)) if live is None else live()
        groups = {name: one._replace(state=state_of(one.state, kept.get(name, {}))) for name, one in found.items()}
    committed = {group: {at: one.offset for at, one in offsets.items()} for group, offsets in kept.items()}
    last_commits = {
        group: max(one.commit_timestamp for one in offsets.values()) for group, offsets in kept.items() if offsets
    }
    return Snapshot(
        clock.now_ms(), time.monotonic() - began, topics=topics, committed=committed, last_commits=last_commits,
        groups=groups, publishers=publishers, pending=pending,
    )  # fmt: skip


def _topics(store: Store) -> dict[str, TopicSnapshot]:
    topics = dict[str, TopicSnapshot]()
    for name in store.topics(internal=True):
        try:
            count = store.describe_topic(name).partitions
            written = [store.partitions.describe(name, number) for number in store.partitions.written(name)]
        except UnknownTopicError:
            continue  # deleted meanwhile
        topics[name] = TopicSnapshot(count, written)
    return topics


def _recorded(store: Store, groups: list[str]) -> dict[str, GroupSnapshot]:
    found = [store.groups.log.describe(name) for name in groups]
    return {
        group.group: GroupSnapshot(group.state.value, len(group.members))
        for group in found
        if group.state is not GroupState.DEAD
    }


class Snapshots:
    """The newest snapshot of a store, taken again when it is a few seconds old; safe to use from several threads.

    However many ask, reading takes at most a twentieth of the time.

    Attributes:
        store: the store.
    """

    def __init__(self, store: Store, live: Live | None = None, fresh_s: float = 5.0) -> None:
        """`live`: as take_snapshot; `fresh_s`: how long at least a snapshot is taken for current; 0: never."""
        self.store, self._live, self._fresh = store, live, fresh_s
        self._lock, self._read_at = threading.Lock(), float("-inf")
        self._current = Snapshot(0, 0.0)

    def current(self) -> Snapshot:
        """The snapshot. Where the store cannot be read that is logged, and the snapshot's `problem` says why."""
        with self._lock:
            wait = self._fresh and max(self._fresh, _LEAST_PAUSES * self._current.seconds)
            if time.monotonic() - self._read_at >= wait:
                began = time.monotonic()
                try:
                    self._current = take_snapshot(self.store, self._live)
                except (PylogError, OSError) as error:
                    _log.warning("%s cannot be read: %s", self.store.path, error)
                    self._current = Snapshot(clock.now_ms(), time.monotonic() - began, problem=str(error))
                self._read_at = time.monotonic()
            return self._current
