"""What time it is, in the unit of records' times; parts that act by time take it as an argument, for tests."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

#: Gives the time in ms since 1970 (UTC).
Clock = Callable[[], int]


def now_ms() -> int:
    """The machine's time in ms since 1970 (UTC)."""
    return time.time_ns() // 1_000_000


class StoreClock:
    """The clock of one store, which all its parts have; not bound to the store, so that no circle keeps its files open.

    Attributes:
        read: gives the time in ms since 1970 (UTC). A test may set another one.
    """

    def __init__(self) -> None:
        """The machine's."""
        self.read: Clock = now_ms

    def __call__(self) -> int:
        """The time in ms since 1970 (UTC)."""
        return self.read()


def shown(ms: int) -> str:
    """A time in ms since 1970 as messages show it: 2013-06-01T12:00:00.000Z; its number, where no calendar has it."""
    try:
        # From ms by whole numbers, since a float loses some.
        point = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=ms)
    except OverflowError:
        return f"{ms} ms"
    return point.isoformat(timespec="milliseconds").replace("+00:00", "Z")
