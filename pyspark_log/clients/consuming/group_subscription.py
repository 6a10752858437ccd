"""The subscription of a consumer that is a member of a group: the group says which partitions it has."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Collection, Iterable, Set
from math import inf

from pyspark_log.clients.consuming.membership import Membership
from pyspark_log.clients.consuming.subscriptions import Holder, Subscription, Wanted
from pyspark_log.errors import FencedMemberError, UnknownTopicError
from pyspark_log.storage.store import Store
from pyspark_log.types import TopicPartition

log = logging.getLogger(__name__)


class GroupSubscription(Subscription):
    """Partitions of topics, as members of a group share them.

    A member that others have removed, as it was silent for too long, loses its partitions and joins again. One whose
    instance id another consumer has taken raises FencedMemberError.
    """

    def __init__(
        self, store: Store, topics: Iterable[str], pattern: str | None, age: float, membership: Membership
    ) -> None:
        """Joins the group at the first `update`.

        Args:
            store: where.
            topics: their names; they need not exist yet.
            pattern: a regular expression that whole names match; None: only `topics`.
            age: how long it takes at most until topics that match later are found, in seconds.
            membership: has not joined yet.

        Raises:
            InvalidTopicError: no topic can have such a name.
            ReadOnlyError, others: as Membership.prepare.
        """
        self._store, self._age, self._membership = store, age, membership
        self.watched, self.commit = [membership.prepare()], membership.commit
        self.change(topics, pattern)

    @property
    def topics(self) -> set[str]:
        """Those that are named, and those that match."""
        return self._wanted.names | self._topics

    @property
    def missing(self) -> Set[str]:
        """As Subscription.missing."""
        return self._wanted.missing

    def waited(self) -> None:
        """The group may have changed."""
        self.due = 0.0

    def look_again(self) -> None:
        """As Subscription.look_again."""
        self.due, self._find_at = 0.0, -inf

    def change(self, topics: Iterable[str], pattern: str | None) -> None:
        """Subscribes to other topics; arguments and errors as above."""
        self._wanted = Wanted(topics, pattern)
        self._topics = set[str]()  # that were found at the last look
        # How many partitions each topic had at the first look: later ones are read from their start.
        self._first_counts: dict[str, int] | None = None
        self.due, self._find_at = 0.0, -inf

    def update(self, holder: Holder) -> None:
        """Has the consumer take and give up what the group says, if it is due."""
        now = time.monotonic()
        if now < self.due:
            return
        finds = now >= self._find_at
        if finds:
            self._find_at = now + self._age
            # Of publishes whose process has died.
            self._store.publishes.apply_pending()
            self._find_topics()
        try:
            if finds:
                self._end(holder, holder.ended)
            self._follow(holder)
        except FencedMemberError as error:
            if self._membership.has_heir:
                raise
            log.warning("%s; it joins again", error)
            self._membership.leave()
            if holder.held:
                holder.lose(holder.held)
            self._follow(holder)
        self.due = time.monotonic() + self._membership.LOOK

    def _end(self, holder: Holder, partitions: Collection[TopicPartition]) -> None:
        """Loses partitions whose topic was deleted, if there are any."""
        if not partitions:
            return
        holder.lose(partitions)
        # So that another topic of that name is read from its start, whichever member has it.
        self._membership.commit(dict.fromkeys(partitions, 0))
        self._membership.look_again()

    def _follow(self, holder: Holder) -> None:
        member = self._membership
        if not member.member_id:
            member.join(self.topics)
        member.look()
        member.subscribe(self.topics)
        if not member.is_settled:
            if member.to_give_up & holder.held:
                self._end(holder, member.to_give_up & holder.ended)
            if gone := member.to_give_up & holder.held:
                holder.give_up(gone)
            member.settle()
        self._take(holder, member.owned - holder.held)

    def _take(self, holder: Holder, partitions: Collection[TopicPartition]) -> None:
        counts = self._first_counts or {}
        later = {at for at in partitions if at.partition >= counts.get(at.topic, 0)}
        with contextlib.suppress(UnknownTopicError):  # It is assigned no more at the next look.
            if first := set(partitions) - later:
                holder.take(first)
            if later:
                holder.take(later, from_start=True)

    def _find_topics(self) -> None:
        self._topics = self._wanted.found_in(self._store)
        counts = dict[str, int]()
        for name in self.topics:
            with contextlib.suppress(UnknownTopicError):  # All that come later are new.
                counts[name] = self._store.describe_topic(name).partitions
        self._wanted.note_missing(self._store, counts)
        if self._first_counts is None:
            self._first_counts = counts

    def close(self) -> None:
        """Leaves the group."""
        self._membership.leave()
