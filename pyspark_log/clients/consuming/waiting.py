"""Waits for changes of partitions without using the processor, for clients that follow a store.

Where the store reports changes (a folder that only this machine writes to), a wait sleeps until there is one. Elsewhere
it returns after a pause, which grows from 1 ms to 50 ms while nothing changes, and to more where there is much to look
at, so that looks take no more than a two-hundredth of a processor. In an object store there is one request a second,
however many looks there are (`Partitions.looking`).
"""

from __future__ import annotations

import os
import select
import time
import weakref
from collections.abc import Iterable, Mapping, Set

from pyspark_log.errors import UnknownTopicError
from pyspark_log.storage.seam import PartitionEvents
from pyspark_log.storage.store import Store
from pyspark_log.types import TopicPartition

#: For `Partitions.looking`: where each look is a request, a program that waits looks no more often, in seconds.
LOOK_SECONDS = 1.0
# The pauses between looks where the store reports no changes, in seconds; and how much longer than a look.
_LEAST_PAUSE, _MOST_PAUSE, _PAUSE_BY_LOOK = 0.001, 0.05, 200
# A pause is as long as this part of the time in which nothing has changed.
_PAUSE_BY_IDLE = 0.1
# After reports of other partitions only, it pauses before it looks at the next ones, so that they cost little even if
# those are written all the time; in seconds.
_LEAST_REST, _MOST_REST = 0.00025, 0.005
# The longest that poll(2) can wait, in ms.
_LONGEST = 2**31 - 1


class Waiter:
    """Waits until one of some partitions may have changed. For one thread; only `wake` is for any.

    A caller watches partitions, then in turn looks how those are that `take_changed` names, and waits. No change after
    the call of `watch` is missed.
    """

    def __init__(self, store: Store) -> None:
        """Watches nothing yet."""
        self._partitions = store.partitions
        self._events = self._partitions.events()
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_reader, False)
        os.set_blocking(self._wake_writer, False)
        self._end = weakref.finalize(self, _close, self._events, self._wake_reader, self._wake_writer)
        self._any, self._woken = select.poll(), select.poll()
        for polled in (self._any, self._woken):
            polled.register(self._wake_reader, select.POLLIN)
        if self._events is not None:
            self._any.register(self._events.fd, select.POLLIN)
        self._watched: Mapping[tuple[str, int], TopicPartition] = {}
        self._changed: set[TopicPartition] | None = set()
        self._is_woken = False
        self._rest = 0.0
        self._idle_since, self._look_began = time.monotonic(), time.thread_time()

    @property
    def reports(self) -> bool:
        """Whether the store reports changes; if not, any partition may have changed at any time."""
        return self._events is not None

    def watch(self, partitions: Iterable[TopicPartition]) -> None:
        """Waits for these from now on; those that were not watched before count as changed.

        To be called again if a topic is recreated. A topic that does not exist is not watched.
        """
        if self._events is None:
            return
        by_topic = dict[str, list[TopicPartition]]()
        for at in partitions:
            by_topic.setdefault(at.topic, []).append(at)
        watched = dict[tuple[str, int], TopicPartition]()
        for topic, places in by_topic.items():
            try:
                topic_id = self._partitions.recorded_ids([topic])[1].get(topic)
            except UnknownTopicError:
                continue
            if topic_id is not None:
                watched |= {(topic_id, at.partition): at for at in places}
        if self._changed is not None:
            self._changed |= {at for name, at in watched.items() if name not in self._watched}
        self._watched = watched

    def take_changed(self) -> Set[TopicPartition] | None:
        """The watched partitions that may have changed since the last call, without waiting; None: all may have."""
        if self._events is None:
            self._look_began = time.thread_time()
            return None
        self._gather()
        changed, self._changed = self._changed, set()
        return changed

    def note_found(self) -> None:
        """A look has found something: pauses between looks are short again."""
        self._idle_since = time.monotonic()

    def wait(self, until: float) -> None:
        """Returns when a watched partition may have changed, or was reported before and not taken; when `wake` was
        called; or at a time.

        Args:
            until: by `time.monotonic`; infinite: there is no such time.
        """
        if self._events is None:
            now = time.monotonic()
            idle, look = now - self._idle_since, time.thread_time() - self._look_began
            pause = max(min(max(idle * _PAUSE_BY_IDLE, _LEAST_PAUSE), _MOST_PAUSE), look * _PAUSE_BY_LOOK)
            self._sleep(self._woken, min(until, now + pause))
            return
        while not self._is_woken and self._changed is not None and not self._changed and time.monotonic() < until:
            self._sleep(self._any, until)
            if self._is_woken:
                return
            self._gather()
            if self._changed is not None and not self._changed:
                self._rest = min(max(2 * self._rest, _LEAST_REST), _MOST_REST)
                self._sleep(self._woken, min(until, time.monotonic() + self._rest))
                self._gather()
        self._rest = 0.0

    def _gather(self) -> None:
        """Notes what the store has reported."""
        assert self._events is not None
        if not self._end.alive:
            return
        changed = self._events.changed()
        if changed is None:
            self._changed = None
        elif self._changed is not None:
            watched = self._watched
            self._changed |= {watched[name] for name in changed if name in watched}

    def _sleep(self, poll: select.poll, until: float) -> None:
        """Waits for what `poll` has, or until a time."""
        ms_left = (until - time.monotonic()) * 1000
        # Rounded up, so that it does not return a bit too early, again and again.
        if any(fd == self._wake_reader for fd, _ in poll.poll(max(0, int(min(ms_left, _LONGEST - 1)) + 1))):
            self._is_woken = True

    # ---- from other threads

    def wake(self) -> None:
        """Ends the wait of another thread, or the next one; also from a handler of a signal."""
        if not self._end.alive:
            return
        try:
            os.write(self._wake_writer, b"\0")
        except BlockingIOError:
            return  # It is full of them.

    def take_woken(self) -> bool:
        """Whether `wake` was called since the last call. Not once it has ended: its pipe may be another file then."""
        if not self._end.alive:
            return False
        try:
            while os.read(self._wake_reader, 4096):
                self._is_woken = True
        except BlockingIOError:
            pass
        is_woken, self._is_woken = self._is_woken, False
        return is_woken

    def close(self) -> None:
        """Ends it. In a forked child this leaves the parent's as it is."""
        self._end()


def _close(events: PartitionEvents | None, *pipe: int) -> None:
    if events is not None:
        events.close()
    for fd in pipe:
        os.close(fd)
