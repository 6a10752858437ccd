"""How long each step of planning a micro-batch takes: for the log, as Spark's progress has the sum alone."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable

log = logging.getLogger(__name__)

# Planning that takes longer is warned of, in seconds, as no records flow meanwhile; not for each micro-batch.
SLOW_SECONDS = 1.0
PAUSE_SECONDS = 60.0


class Steps:
    """The steps of a planning. It begins with a call of `begin`, and each step ends with one of `done`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds."""
        self._clock = clock
        self._next_warning = -math.inf

    def begin(self) -> None:
        """Begins the first step of the next planning."""
        self._began = self._last = self._clock()
        self._took: list[tuple[str, float]] = []

    def done(self, step: str) -> None:
        """Ends a step."""
        now = self._clock()
        self._took.append((step, now - self._last))
        self._last = now

    def log(self, path: str) -> None:
        """Logs all steps: at debug, or as a warning if they were slow together. `path`: of the store."""
        seconds, level = self._last - self._began, logging.DEBUG
        if seconds > SLOW_SECONDS and self._last >= self._next_warning:
            level, self._next_warning = logging.WARNING, self._last + PAUSE_SECONDS
        if log.isEnabledFor(level):  # An idle query plans a hundred times a second.
            steps = ", ".join(f"{step} {took * 1000:.0f} ms" for step, took in self._took)
            log.log(level, "%s: planned a micro-batch in %.1f s: %s", path, seconds, steps)
