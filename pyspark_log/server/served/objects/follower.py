"""Follows the publish log of a store in an object store, in a thread, for a server whose handlers must not wait."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Container, Iterable

from pyspark_log.errors import PylogError
from pyspark_log.server.served.objects.pieces import Pieces
from pyspark_log.storage.fs.clock import since_boot
from pyspark_log.storage.publish_log.entries.entry import name_of
from pyspark_log.storage.publish_log.log import PublishLog
from pyspark_log.storage.publish_log.serving.documents import Documents
from pyspark_log.storage.seam import PartitionEvents
from pyspark_log.types import TopicPartition

_log = logging.getLogger(__name__)

#: How long it waits between two looks, in seconds: after one that has found something, and at most.
SHORTEST, LONGEST = 0.05, 1.0
# An entry has up to a MiB of records, which come with it then.
_FIRST_BYTES = 2 * 1024 * 1024
# Of how many objects the bytes are kept for a decision on them.
_MOST_KEPT = 16


class Follower:
    """Has the state of a store as it was at the last look.

    Attributes:
        state: that state.
        problem: why the last look has failed; "": it has not.
        looked: when the last one has begun that has not failed, in seconds since the boot.
        documents: those of the servers, as they were at that look.
    """

    def __init__(self, log: PublishLog, pieces: Pieces, run: Callable[[Callable[[], object]], object]) -> None:
        """Looks once. Raises as PublishLog.follow.

        Args:
            log: what is followed.
            pieces: keeps records that come with an entry.
            run: runs what may take longer in another thread.
        """
        self._log, self._pieces = log, pieces
        # Taking in may follow, where this process has slept through a deletion, and so take in once more.
        self._lock = threading.RLock()
        self._read: dict[str, memoryview] = {}  # what comes with entries, until they are taken in
        self._events = set[ObjectEvents]()
        self._is_over = threading.Event()
        self._catching_up, self._caught_up = threading.Lock(), 0.0
        self.looked = since_boot()
        self.state, self.problem, self.documents = log.follow(), "", Documents(log)
        self.documents.take(self.state)
        log.watch(self.keep, self._take_in, run, _FIRST_BYTES)
        self._thread = threading.Thread(target=self._run, name="pylog-follower", daemon=True)

    def start(self) -> None:
        """Begins to follow."""
        self._thread.start()

    def stop(self) -> None:
        """Ends it, after the request at hand."""
        self._is_over.set()
        if self._thread.ident is not None:
            self._thread.join()

    def events(self) -> ObjectEvents:
        """Reports partitions that have changed, from now on."""
        events = ObjectEvents()
        self._events.add(events)
        return events

    def _run(self) -> None:
        pause = SHORTEST
        while not self._is_over.wait(pause):
            began = since_boot()
            try:
                has_changed = self.look()
            except Exception as error:  # noqa: BLE001  (else clients would read an old state for good)
                if not self.problem:
                    is_ours = isinstance(error, (PylogError, OSError))
                    _log.warning("the store cannot be followed: %s", error, exc_info=None if is_ours else error)
                self.problem, pause = str(error) or type(error).__name__, LONGEST
            else:
                self.looked = began
                self.problem, pause = "", SHORTEST if has_changed else min(2 * pause, LONGEST)

    def keep(self, name: str, data: memoryview) -> None:
        """Takes the bytes of an object whose records are about to be in the log."""
        self._read[name] = data

    def look(self) -> bool:
        """Takes in what was decided since; whether there was something. Raises as PublishLog.follow."""
        before = self.state
        if self._log.follow().number != self.state.number:
            # Another thread has read it, and may not have taken it in yet.
            self._take_in()
        # Those that could not be read before.
        self.documents.take(self.state)
        return self.state is not before

    def catch_up(self) -> None:
        """Looks for those that ask at the same time, but not more often than the thread does at most. May wait.

        An error is left to the next look of the thread.
        """
        asked = time.monotonic()
        with self._catching_up:
            if self._caught_up < asked:
                time.sleep(max(self._caught_up + SHORTEST - asked, 0))
                self._caught_up = time.monotonic()
                with contextlib.suppress(PylogError, OSError):
                    self.look()

    def _take_in(self) -> None:
        """Takes in what this process has read or decided."""
        with self._lock:
            state, before = self._log.follow(math.inf), self.state
            if state.number == before.number:
                return
            # First, so that what is decided counts together with what it says of documents.
            self.documents.take(state)
            if self.state is not before:  # It has followed, and so has taken in what came later.
                return
            read, visible = dict(self._read), set[str]()
            changed = {
                key: log for key, log in state.partitions.items() if log is not before.partitions.get(key)
            }  # They never change: another one is another object.
            names = {topic.topic_id: name for name, topic in state.topics.items()}
            for key, log in changed.items():
                earlier = before.partitions.get(key)
                added = log.between(log.log_start if earlier is None else earlier.log_end, log.log_end)
                visible.update(piece.object for piece in added)
                # A damaged one is reported by the fetch that reads it.
                with contextlib.suppress(PylogError):
                    self._pieces.take(TopicPartition(names[key[0]], key[1]), added, read)
            self.state = state
            self._forget(read, visible)
            deleted = {
                (topic.topic_id, number)
                for topic in before.topics.values()
                if topic.topic_id not in names
                for number in range(topic.partitions)
            }
            for events in list(self._events):
                events.add(changed.keys() | deleted)

    def _forget(self, read: Iterable[str], visible: Container[str]) -> None:
        """Drops what was taken in, and entries up to the state; what is about to be decided is kept for that."""
        last = name_of(self.state.number)
        for name in read:
            if name in visible or (name.startswith("log/") and name <= last):
                self._read.pop(name, None)
        # What was never decided.
        for name in list(self._read)[:-_MOST_KEPT]:
            self._read.pop(name, None)


class ObjectEvents(PartitionEvents):
    """Partitions that the follower has seen change."""

    def __init__(self) -> None:
        """There are none yet."""
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock, self._changed, self._is_open = threading.Lock(), set[tuple[str, int]](), True

    def add(self, keys: Iterable[tuple[str, int]]) -> None:
        """Some have changed."""
        with self._lock:
            if self._is_open:
                self._changed.update(keys)
                os.eventfd_write(self.fd, 1)

    def changed(self) -> set[tuple[str, int]]:
        with self._lock:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self.fd)
            changed, self._changed = self._changed, set()
        return changed

    def close(self) -> None:
        with self._lock:
            self._is_open = False
            os.close(self.fd)
