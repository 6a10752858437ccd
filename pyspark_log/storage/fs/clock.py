"""The current time, in the unit of records' times; components take it as an argument, for tests."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

#: Returns the time in ms since 1970 (UTC).
Clock = Callable[[], int]

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
