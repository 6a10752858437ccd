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


def shown(ms: int) -> str:
    """A time in ms since 1970 as messages show it: 2013-06-01T12:00:00.000Z; its number, where no calendar has it."""
    try:
        # From ms by whole numbers, since a float loses some.
        point = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=ms)
    except OverflowError:
        return f"{ms} ms"
    return point.isoformat(timespec="milliseconds").replace("+00:00", "Z")
