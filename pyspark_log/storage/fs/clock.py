"""The current time, in the unit of records' times, and how long syncs and waits for locks have taken in this process.

Components take the time as an argument, for tests. The spans are for programs that report them.
"""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_left
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

#: Returns the time in ms since 1970 (UTC).
Clock = Callable[[], int]
#: The upper bounds of the spans that are counted, in seconds; a last one has what takes longer.
BOUNDS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip

_SINCE_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now_ms() -> int:
    """The machine's time in ms since 1970 (UTC)."""
    return time.time_ns() // 1_000_000


def since_boot() -> float:
    """Seconds of a clock that nothing sets, and that counts while the machine is suspended, where there is one."""
    return time.clock_gettime_ns(_SINCE_BOOT) / 1_000_000_000


class StoreClock:
    """The clock of one store, shared by all its components; without a reference to the store, which would be a cycle.

    Attributes:
        read: returns the time in ms since 1970 (UTC). A test may replace it.
    """

    def __init__(self) -> None:
        """Uses the machine's clock."""
        self.read: Clock = now_ms

    def __call__(self) -> int:
        """The time in ms since 1970 (UTC)."""
        return self.read()


def format_time(ms: int) -> str:
    """Formats a time in ms since 1970 for messages: 2013-06-01T12:00:00.000Z; the number, if no calendar has it."""
    try:
        # From ms by whole numbers, since a float loses some.
        point = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    except OverflowError:
        return f"{ms} ms"
    return point.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Spans:
    """How long things took that happened one after the other: a histogram. For one thread.

    Attributes:
        counts: how many took up to each of the bounds, and more than the one before; and how many took longer.
        total: the sum, in seconds.
    """

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        """One took that long."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds

    def copy(self) -> Spans:
        """What was counted so far."""
        found = Spans()
        found.counts, found.total = list(self.counts), self.total
        return found


class SharedSpans(Spans):
    """The same for several threads."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        super().__init__()
        self.reset_lock()

    def reset_lock(self) -> None:
        """Makes its lock free in a forked child, where the thread that had it does not run."""
        self._lock = threading.Lock()

    def add(self, seconds: float) -> None:
        """One took that long."""
        with self._lock:
            super().add(seconds)

    def copy(self) -> Spans:
        """What was counted so far."""
        with self._lock:
            return super().copy()


#: The syncs of files, and the waits for locks that another process had.
SYNCS, LOCK_WAITS = SharedSpans(), SharedSpans()


def _in_child() -> None:
    for one in (SYNCS, LOCK_WAITS):
        one.reset_lock()


os.register_at_fork(after_in_child=_in_child)
