"""Deadlines by key, of which most are moved on before they are reached."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import TypeAlias

#: What is done when a deadline is reached; it is given the time.
Action: TypeAlias = Callable[[int], None]
Key: TypeAlias = tuple[object, object]


class Timers:
    """A heap of deadlines in ms. To move a deadline to a later time, or to cancel it, does not touch the heap: the
    entry is judged when its time has come. So a heartbeat costs the same for any number of members.
    """

    def __init__(self) -> None:
        self._deadlines: dict[Key, tuple[int, Action]] = {}
        self._heap: list[tuple[int, int, Key]] = []
        # The time of each key's entry in the heap, never later than its deadline. Other entries of it are void.
        self._queued: dict[Key, int] = {}
        self._number = 0  # keys cannot be compared; of equal times, the first queued is first

    def set(self, key: Key, deadline: int, action: Action) -> None:
        """Sets the deadline of a key, or replaces it."""
        self._deadlines[key] = deadline, action
        if key not in self._queued or deadline < self._queued[key]:
            self._queue(key, deadline)

    def cancel(self, key: Key) -> None:
        """Takes a key's deadline away, if it has one."""
        self._deadlines.pop(key, None)

    def next_deadline(self) -> int | None:
        """The earliest deadline; None: there is none."""
        while self._heap:
            time, _, key = self._heap[0]
            is_void = self._queued.get(key) != time
            if not is_void and key in self._deadlines and self._deadlines[key][0] == time:
                return time
            heapq.heappop(self._heap)
            if not is_void:
                del self._queued[key]
                if key in self._deadlines:
                    self._queue(key, self._deadlines[key][0])
        return None

    def due(self, now: int) -> Iterator[tuple[Key, Action]]:
        """Takes the deadlines up to now, earliest first. Those that are set meanwhile are among them."""
        while (deadline := self.next_deadline()) is not None and deadline <= now:
            key = heapq.heappop(self._heap)[2]
            del self._queued[key]
            yield key, self._deadlines.pop(key)[1]

    def _queue(self, key: Key, time: int) -> None:
        self._number += 1
        self._queued[key] = time
        heapq.heappush(self._heap, (time, self._number, key))
