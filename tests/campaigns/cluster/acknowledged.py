"""What the members have acknowledged."""

from __future__ import annotations

import threading
import time

from tests.campaigns.cluster.topics import ALL


class Acknowledged:
    """The records that producers know to be stored, and when they came to know it. Thread-safe.

    Attributes:
        count: how many they are.
    """

    def __init__(self):
        self.count, self._lock = 0, threading.Lock()
        self._records = {at: [] for at in ALL}
        self._begun = time.monotonic()
        self._last, self._longest = dict.fromkeys(ALL, self._begun), dict.fromkeys(ALL, 0.0)

    def note(self, at, records):
        """Notes offsets and values of a partition; an offset may be None, if a member has not said it."""
        now = time.monotonic()
        with self._lock:
            self._records[at] += records
            self.count += len(records)
            self._longest[at] = max(self._longest[at], now - self._last[at])
            self._last[at] = now

    def has_each(self):
        """Whether each partition has had one."""
        with self._lock:
            return min(self._last.values()) > self._begun

    def take(self, at):
        """The offsets and values of a partition that were noted since the last call."""
        return taken(self._records[at])

    def longest(self):
        """For how long a partition had none at most since the last call, in seconds, and which one."""
        now = time.monotonic()
        with self._lock:
            found = max((max(self._longest[at], now - self._last[at]), at) for at in ALL)
            self._longest = dict.fromkeys(ALL, 0.0)
        return found


def taken(records):
    """The elements of a list, to which another thread may append meanwhile, and which it has not any more then."""
    count = len(records)
    found = records[:count]
    del records[:count]
    return found
