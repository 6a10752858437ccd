"""What time it is, in the unit of records' times; parts that act by time take it as an argument, for tests."""

from __future__ import annotations

import time
from collections.abc import Callable

#: Gives the time in ms since 1970 (UTC).
Clock = Callable[[], int]


def now_ms() -> int:
    """The machine's time in ms since 1970 (UTC)."""
    return time.time_ns() // 1_000_000
