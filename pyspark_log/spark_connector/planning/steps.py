"""How long each step of planning a micro-batch takes: for the log, as Spark's progress has the sum alone."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

log = logging.getLogger(__name__)

# Planning that takes longer is warned of, in seconds: Spark asks again and again, and no records flow meanwhile.
SLOW_SECONDS = 10.0


class Steps:
    """The steps of one planning. Each ends with a call of `done`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begins the first step; `clock` gives seconds."""
        self._clock = clock
        self._began = self._last = clock()
        self._took: list[tuple[str, float]] = []

    def done(self, step: str) -> None:
        """Ends a step."""
        now = self._clock()
        self._took.append((step, now - self._last))
        self._last = now

    def log(self, path: str) -> None:
        """Logs all steps: at debug, or as a warning if they were slow together. `path`: of the store."""
        seconds = self._last - self._began
        level = logging.WARNING if seconds > SLOW_SECONDS else logging.DEBUG
        if log.isEnabledFor(level):  # An idle query plans a hundred times a second.
            steps = ", ".join(f"{step} {took * 1000:.0f} ms" for step, took in self._took)
            log.log(level, "%s: planned a micro-batch in %.1f s: %s", path, seconds, steps)
