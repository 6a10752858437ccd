"""Waits for new records of partitions, whichever process appends them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from pyspark_log.server.network import Loop, Timer, Wait
from pyspark_log.server.served import AsLeft, LogView
from pyspark_log.storage.seam import PartitionEvents

_log = logging.getLogger(__name__)

# How often all partitions that are waited for are looked at where the OS does not report changes, in seconds.
_POLL = 0.02
# How long a log that was looked at is taken as it was, at most (s), and of how many partitions that is. Not all that
# becomes of a partition is reported: that the store's folder is replaced by a copy.
_KEPT, _MOST_KEPT = 0.5, 10_000
# The most bytes of records that are in memory with them.
_MOST_KEPT_BYTES = 8 * 1024 * 1024
# After events that nothing waits for have come so often, they are not read any more until something does.
_MOST_IDLE = 100


class PartitionKey(NamedTuple):
    """A partition, by the id of its topic as the store has it."""

    topic_id: str
    partition: int


class Seen(NamedTuple):
    """A partition's log as it is, for one that has read it up to `start`; what it has not read is at hand."""

    start: int
    log: LogView


class Appends:
    """Wakes what waits for records. All calls come from the loop's thread."""

    def __init__(self, loop: Loop, events: PartitionEvents | None) -> None:
        """`events`: of the store; None: there are none, and partitions are looked at every 20 ms while any waits."""
        self._loop, self._events = loop, events
        self._waiting: dict[PartitionKey, dict[Waiting, None]] = {}
        self._poll: Timer | None = None
        self._is_reading = False
        self._kept = dict[PartitionKey, tuple[float, LogView]]()
        self._room = _MOST_KEPT_BYTES
        self._idle = 0  # how often events came since something has begun to wait

    @property
    def reports(self) -> bool:
        """Whether changes are noted also while nothing waits for them."""
        return self._events is not None

    def close(self) -> None:
        """Stops; nothing is woken any more."""
        if self._events is not None:
            if self._is_reading:
                self._loop.remove_reader(self._events.fd)
            self._events.close()
        if self._poll is not None:
            self._poll.cancel()

    def waiting(self, keys: Collection[PartitionKey]) -> Waiting:
        """Begins to wait for changes of partitions. Call it before they are looked at; end it with `close`."""
        waiting = Waiting(self)
        for key in keys:
            waiting.begin(key)
        return waiting

    async def until(self, keys: Collection[PartitionKey], is_done: Callable[[], bool], deadline: float) -> None:
        """Waits until something holds of partitions, which is looked at again when they change; or until a time.

        Args:
            keys: the partitions.
            is_done: whether it holds.
            deadline: that time, by the loop's clock, in seconds.
        """
        # From before the first look, so that no change comes in between.
        waiting = self.waiting(keys)
        try:
            while not is_done() and (seconds := deadline - self._loop.time()) > 0:
                await waiting.change(seconds)
        finally:
            waiting.close()

    def note(self, key: PartitionKey, waiting: Waiting) -> None:
        """Wakes it when the partition changes."""
        self._waiting.setdefault(key, {})[waiting] = None
        self._listen()

    def forget(self, key: PartitionKey, waiting: Waiting) -> None:
        """Does so no more."""
        waits = self._waiting.get(key)
        if waits is not None:
            waits.pop(waiting, None)
            if not waits:
                del self._waiting[key]

    def changed(self, key: PartitionKey) -> None:
        """Wakes what waits for a partition: this server knows of the change before the system reports it, or alone."""
        self._wake(key)

    def written(self, topic_id: str, partition: int) -> None:
        """Drops what the system has reported of a partition until now: it was this server, which calls `appended` next.

        To be called before anyone else can change the partition.
        """
        key = PartitionKey(topic_id, partition)
        if self._is_reading and key in self._waiting:
            try:
                self._changed(but=key)
            except OSError as error:
                # The batch is there all the same, and the loop reads again.
                _log.warning("the changes of partitions cannot be read: %s", error)

    def appended(self, key: PartitionKey, base_offset: int, size: int, as_left: AsLeft | None) -> int:
        """Wakes requests that wait for a batch that was appended; they, and those that come soon, read no file for it.

        `base_offset`, `size`: the batch's, in bytes. Returns how many are woken.
        """
        log = as_left() if key in self._waiting and as_left is not None else None
        woken = self._wake(key, None if log is None else Seen(base_offset, log))
        if log is not None:
            self.keep(key, log, size)
        return woken

    def look(self) -> None:
        """Notes the changes that the system has reported until now, for what waits."""
        if self._is_reading:
            self._changed()

    def refresh_kept(self) -> None:
        """Drops what was kept of logs that have changed until now."""
        if self._kept:
            self.look()

    def keep(self, key: PartitionKey, log: LogView, size: int = 0) -> None:
        """Keeps a log as it was just looked at, with `size` bytes of records, until a change of it is reported."""
        self._room -= size
        if len(self._kept) == _MOST_KEPT or self._room < 0:
            self._kept.clear()
            self._room = _MOST_KEPT_BYTES - size
        self._kept[key] = self._loop.time(), log

    def kept(self, key: PartitionKey) -> LogView | None:
        """A partition's log as it was kept; None: it was not, or it had changed before the last `refresh_kept`."""
        noted = self._kept.get(key) if self._is_reading else None
        return None if noted is None or self._loop.time() - noted[0] > _KEPT else noted[1]

    def call_later(self, seconds: float, action: Callable[[None], object], argument: None) -> Timer:
        """As the loop's."""
        return self._loop.call_later(seconds, action, argument)

    def _listen(self) -> None:
        if self._events is None:
            if self._poll is None:
                self._poll = self._loop.call_later(_POLL, self._look_at_all)
            return
        self._idle = 0
        if not self._is_reading:
            self._is_reading = True
            self._loop.add_reader(self._events.fd, self._changed)

    def _changed(self, but: PartitionKey | None = None) -> None:
        assert self._events is not None
        changed = self._events.changed()
        if not self._waiting:
            # Events that nothing waits for are left in the system's queue, which drops them when it is full. But a
            # consumer that has just got records waits again soon.
            self._idle += 1
            if self._idle == _MOST_IDLE:
                self._is_reading = False
                self._loop.remove_reader(self._events.fd)
        if changed is None:
            self._kept.clear()
        for key in list(self._waiting) if changed is None else changed:
            if key != but:
                self._wake(PartitionKey(*key))

    def _look_at_all(self) -> None:
        self._poll = None
        for key in list(self._waiting):
            self._wake(key)
        if self._waiting:
            self._listen()

    def _wake(self, key: PartitionKey, seen: Seen | None = None) -> int:
        self._kept.pop(key, None)
        woken = 0
        for waiting in list(self._waiting.get(key, ())):
            woken += waiting.note(key, seen)
        return woken


class Waiting:
    """One that waits for several partitions."""

    def __init__(self, appends: Appends) -> None:
        """For none yet."""
        self._appends, self._keys = appends, set[PartitionKey]()
        self._changed = dict[PartitionKey, Seen | None]()
        self._wait: Wait[None] | None = None

    def begin(self, key: PartitionKey) -> None:
        """Waits for another partition, too. Call it before that is looked at."""
        self._keys.add(key)
        self._appends.note(key, self)

    def end(self, key: PartitionKey) -> None:
        """Waits for one no more."""
        self._keys.discard(key)
        self._changed.pop(key, None)
        self._appends.forget(key, self)

    def take(self) -> Mapping[PartitionKey, Seen | None]:
        """The partitions that may have changed since the last call, of this or of `change`, each once.

        With the log of one that has changed once, if that is at hand.
        """
        changed, self._changed = self._changed, {}
        return changed

    def note(self, key: PartitionKey, seen: Seen | None) -> bool:
        """A partition may have changed; whether that is waited for now."""
        self._changed[key] = None if key in self._changed else seen
        if self._wait is None:
            return False
        self._wait.finish(None)
        return True

    async def change(self, seconds: float) -> Mapping[PartitionKey, Seen | None]:
        """As `take`; waits up to `seconds` for the first."""
        if not self._changed:
            self._wait = Wait()
            timer = self._appends.call_later(seconds, self._wait.finish, None)
            try:
                await self._wait
            finally:
                self._wait = None
                timer.cancel()
        return self.take()

    def close(self) -> None:
        """Ends the wait."""
        for key in self._keys:
            self._appends.forget(key, self)
