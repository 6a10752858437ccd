"""How much a client has used of late, and how long it has to wait after too much: the arithmetic of Kafka's quotas.

A rate is over samples of a second each, as Kafka's `Rate` is with its defaults (`quota.window.num`,
`quota.window.size.seconds`). Times are in milliseconds of any clock that does not go back.
"""

from __future__ import annotations

import math

#: Samples of a rate, and the length of each (ms).
SAMPLES, WINDOW_MS = 11, 1000
_FULL_WINDOWS = SAMPLES - 1
_MEMORY_MS = SAMPLES * WINDOW_MS
# The field of a response that says it has 32 bits.
_LONGEST_MS = 2**31 - 1

#: What can be used at once before a rate is too high is this, times a quota.
BURST_S = _FULL_WINDOWS * WINDOW_MS / 1000


class _Sample:
    __slots__ = ("last", "start", "total")

    def __init__(self, now: int) -> None:
        self.reset(now)

    def reset(self, now: int) -> None:
        self.start = self.last = now
        self.total = 0.0


class Rate:
    """Amounts a second over the last samples."""

    __slots__ = ("_current", "_samples")

    def __init__(self) -> None:
        """Nothing yet."""
        self._samples: list[_Sample] = []
        self._current = 0

    def add(self, amount: float, now: int) -> None:
        """Counts an amount; a negative one takes an earlier one back."""
        samples = self._samples
        if not samples:
            samples.append(_Sample(now))
        sample = samples[self._current]
        if now - sample.start >= WINDOW_MS:
            # One more than are measured: the oldest one counts until all of it is too old.
            self._current = (self._current + 1) % (SAMPLES + 1)
            if self._current == len(samples):
                samples.append(_Sample(now))
            sample = samples[self._current]
            sample.reset(now)
        sample.total += amount
        sample.last = now

    def total(self, now: int) -> float:
        """The amounts that still count."""
        total = 0.0
        for sample in self._samples:
            if now - sample.last >= _MEMORY_MS:
                sample.reset(now)
            total += sample.total
        return total

    def measure(self, now: int) -> tuple[float, int]:
        """The amount a second, and the time over which it was measured (ms)."""
        total = self.total(now)
        window = now - min((sample.start for sample in self._samples), default=now)
        # A rate that has only begun is measured as if it had been zero before.
        window += max(0, _FULL_WINDOWS - window // WINDOW_MS) * WINDOW_MS
        return total / (window / 1000), window

    def excess_ms(self, bound: float, now: int) -> int:
        """How long it takes until the rate is down to a bound, if nothing more is used; 0: it is not above it."""
        rate, window = self.measure(now)
        return 0 if rate <= bound else _rounded((rate - bound) / bound * window)

    def is_over(self, now: int) -> bool:
        """Whether nothing counts any more."""
        return all(now - sample.last >= _MEMORY_MS for sample in self._samples)


class TokenBucket:
    """Permits that come at a rate, and of which those of eleven seconds can be saved up."""

    __slots__ = ("_bound", "_last", "_tokens")

    def __init__(self, now: int) -> None:
        """Full."""
        self._tokens, self._bound, self._last = math.inf, math.inf, now

    def take(self, count: float, bound: float, now: int, *, strict: bool) -> int:
        """Takes permits, also more than there are; the next ones have to wait then.

        Args:
            count: how many.
            bound: how many come a second.
            now: the time (ms).
            strict: whether none are taken if there are too few already.

        Returns:
            How long it takes until there are none too few (ms). If `strict`, it is from before, and unless it is 0
            none were taken.
        """
        self._bound = bound
        self._tokens, self._last = self._tokens_at(now), now
        if strict and self._tokens < 0:
            return max(self._wait_ms(), 1)
        self._tokens -= count
        return 0 if strict or self._tokens >= 0 else self._wait_ms()

    def is_full(self, now: int) -> bool:
        """Whether a new one is the same."""
        return self._tokens_at(now) >= self._most

    @property
    def _most(self) -> float:
        return SAMPLES * WINDOW_MS / 1000 * self._bound

    def _tokens_at(self, now: int) -> float:
        return min(self._most, self._tokens + self._bound * (now - self._last) / 1000)

    def _wait_ms(self) -> int:
        return _rounded(-self._tokens / self._bound * 1000)


def _rounded(milliseconds: float) -> int:
    """As Java rounds."""
    return min(math.floor(milliseconds + 0.5), _LONGEST_MS)
