"""What a consumer has, and how that changes: it takes and gives up partitions, commits as time passes, and waits."""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from typing import TypeVar

from pyspark_log.clients.consuming.commits import Commits
from pyspark_log.clients.consuming.fetching import FetchConfig, Fetcher
from pyspark_log.clients.consuming.subscriptions import ConsumerRebalanceListener, Subscription
from pyspark_log.clients.consuming.waiting import Waiter
from pyspark_log.clients.records import FetchedRows, used_by_another_thread
from pyspark_log.errors import FencedMemberError, UnknownTopicError, WakeupError
from pyspark_log.storage.store import Store
from pyspark_log.types import TopicPartition

log = logging.getLogger(__name__)

_Found = TypeVar("_Found")

# An iteration looks for what is due at least this often, in seconds.
_DUE_SECONDS = 0.25


class Holding:
    """The partitions of a consumer; a Holder for its subscription.

    Attributes:
        fetcher: reads them.
        commits: commits for them; None: the consumer has no group.
        subscription: where they come from.
        waiter: waits for records of them.
        is_closed: whether it has ended.
    """

    def __init__(self, store: Store, config: FetchConfig, commits: Commits | None, subscription: Subscription) -> None:
        """No partitions yet."""
        self.is_closed = False
        self.waiter = Waiter(store)
        self.fetcher = Fetcher(store, config, self.waiter.take_changed)
        self.commits = commits
        self.subscription = subscription
        self._listener = ConsumerRebalanceListener()
        # Held while a thread reads; a listener may read within a read.
        self._reading, self._reader = threading.RLock(), ""
        _open.add(self)

    @property
    def held(self) -> Set[TopicPartition]:
        """As Holder.held."""
        return frozenset(self.fetcher.partitions)

    @property
    def ended(self) -> Set[TopicPartition]:
        """As Holder.ended."""
        return self.fetcher.ended

    # ---- changes

    def replace(self, subscription: Subscription, listener: ConsumerRebalanceListener | None = None) -> None:
        """Has another subscription, which then says what to take and to give up."""
        self.subscription.close()
        self.subscription = subscription
        if self.commits is not None:
            self.commits.write = subscription.commit
        self.listen(listener)
        self._watch(self.held)

    def listen(self, listener: ConsumerRebalanceListener | None) -> None:
        """Calls another listener from now on."""
        self._listener = listener or ConsumerRebalanceListener()

    def take(self, partitions: Collection[TopicPartition], *, from_start: bool = False) -> None:
        """As Holder.take."""
        committed = self._committed(partitions)
        starts = dict(committed)
        if from_start:
            starts |= self.fetcher.beginnings([at for at, offset in committed.items() if offset is None])
        self._begin(starts, committed)

    def take_at(self, starts: Mapping[TopicPartition, int]) -> None:
        """As Holder.take_at."""
        self._begin(dict(starts), self._committed(starts))

    def _committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        return dict.fromkeys(partitions) if self.commits is None else self.commits.fetch(partitions)

    def _begin(
        self, starts: Mapping[TopicPartition, int | None], committed: Mapping[TopicPartition, int | None]
    ) -> None:
        self._watch({*self.held, *starts})
        self.fetcher.take(starts)
        try:
            self._begin_commits(committed)
        except BaseException:
            self._drop(starts)  # They are taken again.
            raise
        self._listener.on_partitions_assigned(set(starts))

    def _begin_commits(self, committed: Mapping[TopicPartition, int | None]) -> None:
        if self.commits is not None:
            self.commits.begin(committed)
            positions = self.fetcher.positions()
            self.commits.begin_at(positions)
            if self.subscription.commit is not None:
                # Where a member begins without a committed offset, others have to begin too if it dies.
                first = {at for at, offset in committed.items() if offset is None} & positions.keys()
                if first:
                    self.commits.commit({at: positions[at] for at in first})

    def give_up(self, partitions: Collection[TopicPartition], *, commit: bool = True) -> None:
        """As Holder.give_up; without `commit` nothing is committed by itself."""
        self._listener.on_partitions_revoked(set(partitions))
        if self.commits is not None and commit:
            positions = self.fetcher.positions()
            self.commits.commit_moved({at: positions[at] for at in partitions if at in positions})
        self._drop(partitions)

    def lose(self, partitions: Collection[TopicPartition]) -> None:
        """As Holder.lose."""
        self._drop(partitions)
        self._listener.on_partitions_lost(set(partitions))

    def _drop(self, partitions: Collection[TopicPartition]) -> None:
        self.fetcher.drop(partitions)
        if self.commits is not None:
            self.commits.forget(partitions)
        self._watch(self.held)

    def _watch(self, partitions: Iterable[TopicPartition]) -> None:
        self.waiter.watch({*partitions, *self.subscription.watched})

    # ---- between records

    @property
    def due(self) -> float:
        """When `keep_up` has something to do, by `time.monotonic`; it may be called earlier."""
        due = self.subscription.due
        return due if self.commits is None else min(due, self.commits.due)

    def keep_up(self) -> None:
        """Does what is due; called before records are handed out.

        Raises:
            WakeupError: `waiter.wake` was called.
            Exception: what the subscription, a commit or the listener raises.
        """
        if self.waiter.take_woken():
            raise WakeupError("the consumer was woken")
        self.subscription.update(self)
        if self.commits is not None:
            self.commits.commit_if_due(self.fetcher.positions)

    def wait(self, until: float) -> bool:
        """Waits until there may be new records, something is due, or a time has come (False) by `time.monotonic`."""
        if time.monotonic() >= until:
            return False
        self.waiter.wait(min(until, self.due))
        self.subscription.waited()
        return True

    def next_rows(self, patience: float) -> tuple[FetchedRows, float]:
        """Waits for rows: for an iterator.

        Args:
            patience: how long, in seconds.

        Returns:
            Rows, at least one, and when to call this again, by `time.monotonic`.

        Raises:
            StopIteration: there are none, or the consumer is closed. Others: as `hand_out`, `Fetcher.next_rows`.
        """
        rows = self.hand_out(patience, self.fetcher.next_rows)
        if rows is None:
            raise StopIteration
        return rows, min(self.due, time.monotonic() + _DUE_SECONDS)

    def hand_out(self, patience: float, call: Callable[[], _Found]) -> _Found | None:
        """Waits until `call` returns what is not empty.

        Args:
            patience: how long, in seconds.
            call: asks the fetcher.

        Returns:
            What it has returned; None: it was empty, or the consumer is closed.

        Raises:
            RuntimeError: another thread is in this call; nothing was handed out.
            Exception: as `keep_up` and `call`. If a topic was deleted, the subscription is asked first what to do.
        """
        if not self._reading.acquire(blocking=False):
            raise used_by_another_thread(self._reader)
        try:
            self._reader = threading.current_thread().name
            return self._hand_out(patience, call)
        finally:
            self._reading.release()

    def _hand_out(self, patience: float, call: Callable[[], _Found]) -> _Found | None:
        until = time.monotonic() + patience
        asked = False
        while not self.is_closed:
            self.keep_up()
            try:
                records = call()
            except UnknownTopicError:
                if asked:
                    raise
                asked = True
                self.subscription.look_again()
                continue
            asked = False
            if records:
                self.waiter.note_found()
                return records
            if self.fetcher.is_finished or not self.wait(until):
                break
        return None

    def close(self, *, commit: bool) -> None:
        """Gives up all partitions, if `commit` with a commit. What an error leaves is ended too."""
        if self.is_closed:
            return
        try:
            # The listener may commit.
            if self.held:
                self.give_up(self.held, commit=commit)
        except FencedMemberError as error:
            log.warning("records may be processed again by other members, as not all was committed: %s", error)
        finally:
            self.is_closed = True
            _open.discard(self)
            try:
                self.subscription.close()
            finally:
                self.waiter.close()

    def forget(self) -> None:
        """In a forked child: the partitions, and what waits for them, are the parent's."""
        self.is_closed = True
        self.waiter.close()


# Those that are not closed.
_open: weakref.WeakSet[Holding] = weakref.WeakSet()


def _in_child() -> None:
    for holding in list(_open):
        holding.forget()
    _open.clear()


os.register_at_fork(after_in_child=_in_child)
