"""Where a consumer's partitions come from: an assignment by hand, or topics, all of whose partitions it reads."""

from __future__ import annotations

import logging
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from math import inf
from typing import Protocol

from pyspark_log.errors import InvalidConfigError, UnknownTopicError
from pyspark_log.near_names import did_you_mean
from pyspark_log.storage.catalog import check_name
from pyspark_log.storage.store import Store
from pyspark_log.types import TopicPartition

log = logging.getLogger(__name__)


class ConsumerRebalanceListener:
    """Is called, in the thread of the consumer, when its partitions change. Override what is wanted."""

    def on_partitions_revoked(self, revoked: Set[TopicPartition]) -> None:
        """The consumer is about to give these up; it still has them, and may commit."""

    def on_partitions_assigned(self, assigned: Set[TopicPartition]) -> None:
        """The consumer has these from now on; it may seek."""

    def on_partitions_lost(self, lost: Set[TopicPartition]) -> None:
        """The consumer has lost these already, to others or as their topic was deleted; it cannot commit."""
        self.on_partitions_revoked(lost)


class Holder(Protocol):
    """A consumer, as a subscription sees it."""

    @property
    def held(self) -> Set[TopicPartition]:
        """The partitions that it has."""

    @property
    def ended(self) -> Set[TopicPartition]:
        """Those whose topic was deleted; there may be another one of its name."""

    def take(self, partitions: Collection[TopicPartition], *, from_start: bool = False) -> None:
        """Begins to read partitions, and calls the listener.

        Args:
            partitions: which ones.
            from_start: at their log starts; if not, at committed offsets, or where auto_offset_reset says.
        """

    def take_at(self, starts: Mapping[TopicPartition, int]) -> None:
        """Begins to read partitions at offsets, and calls the listener."""

    def give_up(self, partitions: Collection[TopicPartition]) -> None:
        """Calls the listener, commits what was handed out if that is done by itself, and ends reading them."""

    def lose(self, partitions: Collection[TopicPartition]) -> None:
        """Ends reading them, and calls the listener."""


class Subscription(ABC):
    """Where partitions come from.

    Attributes:
        due: when `update` is to be called next, by `time.monotonic`. It may be called earlier.
        watched: partitions beside those that are read whose changes end a wait, and have `update` called.
        commit: commits offsets for the consumer's group in another way than `Group.commit`; None: as that.
    """

    due: float = inf
    watched: Collection[TopicPartition] = ()
    commit: Callable[[Mapping[TopicPartition, int]], None] | None = None

    @property
    @abstractmethod
    def topics(self) -> set[str]:
        """The topics that are subscribed to, as far as they are known."""

    @property
    def missing(self) -> Set[str]:
        """Those that were named, and were not there at the last look."""
        return frozenset()

    @abstractmethod
    def update(self, holder: Holder) -> None:
        """Has the consumer take and give up partitions; called before it hands out records."""

    def waited(self) -> None:  # noqa: B027  (most change with time alone)
        """A wait for records, or for a change of `watched`, has ended."""

    def look_again(self) -> None:
        """A topic was deleted: `update` is to find that."""
        self.due = 0.0

    def close(self) -> None:  # noqa: B027  (most have nothing to end)
        """Ends it; the consumer has given up its partitions."""


class _Looking(Subscription):
    """Looks now and then how the topics of the store are."""

    def __init__(self, store: Store, age: float) -> None:
        """Looks at nothing yet.

        Args:
            store: where.
            age: how long it takes at most until a change is found, in seconds.
        """
        self._store, self._age = store, age
        # The ids of the topics that were there at the last look; None: it has not looked yet.
        self._ids: dict[str, str | None] | None = None
        self.due = 0.0

    def update(self, holder: Holder) -> None:
        """Looks, if it is due; before, it finishes publishes whose process has died."""
        if time.monotonic() >= self.due:
            self._store.publishes.apply_pending()
            with self._store.partitions.looking(self._age):
                self._look(holder)
            self.due = time.monotonic() + self._age

    @abstractmethod
    def _look(self, holder: Holder) -> None:
        """Has the consumer take and give up partitions."""

    def _id_of(self, topic: str) -> str | None:
        """What a recreated topic has another one of; None: it is not known. UnknownTopicError."""
        return self._store.partitions.recorded_ids([topic])[1].get(topic)

    def _note(self, ids: dict[str, str | None]) -> set[str]:
        """Notes the ids of topics; returns those that were recreated since the last look."""
        before, self._ids = self._ids or {}, ids
        recreated = {name for name, topic_id in ids.items() if before.get(name, topic_id) != topic_id}
        for name in sorted(recreated):
            log.warning("topic %s was deleted and recreated: it is read from its start", name)
        return recreated


class Assigned(_Looking):
    """Partitions that were assigned by hand, and stay."""

    topics: set[str] = set()  # noqa: RUF012  (a constant)

    def _look(self, holder: Holder) -> None:
        """Has a topic that was recreated read from its start. UnknownTopicError: there is one no more."""
        recreated = self._note({name: self._id_of(name) for name in {at.topic for at in holder.held}})
        if others := {at for at in holder.held if at.topic in recreated}:
            holder.lose(others)
            # Whatever is committed, which is of the deleted one.
            holder.take_at({at: self._store.earliest_offset(at.topic, at.partition) for at in others})


class Wanted:
    """Topics that are named, or whose names match a pattern.

    Attributes:
        names: those that are named; they need not exist.
        missing: those of them that were not there at the last look.
    """

    def __init__(self, topics: Iterable[str], pattern: str | None) -> None:
        """Looks for none yet.

        Args:
            topics: their names.
            pattern: a regular expression that whole names match; None: there is none.

        Raises:
            InvalidTopicError: no topic can have such a name. InvalidConfigError: the pattern is malformed.
        """
        self.names, self.missing = set(topics), set[str]()
        for name in self.names:
            check_name(name)
        try:
            self._pattern = None if pattern is None else re.compile(pattern)
        except re.error as error:
            raise InvalidConfigError(f"pattern {pattern!r} is no regular expression: {error}") from None

    def found_in(self, store: Store) -> set[str]:
        """Those that are named, and those of a store that match."""
        if self._pattern is None:
            return self.names
        return self.names | {name for name in store.topics() if self._pattern.fullmatch(name)}

    def note_missing(self, store: Store, listed: Collection[str]) -> None:
        """Notes which topics a look has found; warns of each that is named and is not there, once until it comes."""
        before, self.missing = self.missing, self.names.difference(listed)
        for name in sorted(self.missing - before):
            log.warning("there is no topic %r yet: nothing is read of it%s", name, did_you_mean(name, store.topics()))


class AllPartitions(_Looking):
    """All partitions of topics: of those that are named, or whose names match a pattern."""

    def __init__(self, store: Store, age: float, topics: Iterable[str], pattern: str | None) -> None:
        """Looks at nothing yet.

        Args:
            store, age: where, and how often.
            topics: their names; they need not exist yet.
            pattern: a regular expression that whole names match; None: only `topics`.

        Raises:
            InvalidTopicError: no topic can have such a name.
        """
        super().__init__(store, age)
        self._wanted = Wanted(topics, pattern)

    @property
    def topics(self) -> set[str]:
        """Those that are named, and those that match."""
        return self._wanted.names | set(self._ids or ())

    @property
    def missing(self) -> Set[str]:
        """As Subscription.missing."""
        return self._wanted.missing

    def _look(self, holder: Holder) -> None:
        """The partitions that the first look finds are read from where the consumer's settings say. Later ones are new,
        so they are read from their start.
        """
        present, ids, is_first = set[TopicPartition](), dict[str, str | None](), self._ids is None
        names = self._wanted.found_in(self._store)
        for name in names:
            try:
                ids[name] = self._id_of(name)
                present |= {
                    TopicPartition(name, number) for number in range(self._store.describe_topic(name).partitions)
                }
            except UnknownTopicError:
                ids.pop(name, None)  # It may come, or come back.
        self._wanted.note_missing(self._store, ids)
        recreated = self._note(ids)
        gone = {at for at in holder.held if at not in present or at.topic in recreated}
        unwanted = {at for at in gone if at.topic not in names}
        if unwanted:
            holder.give_up(unwanted)
        if gone > unwanted:
            holder.lose(gone - unwanted)
        if new := present - holder.held:
            holder.take(new, from_start=not is_first)
