"""What a store was like in the last minutes: how fast topics grew, and how far groups were from the end."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterable, Mapping
from itertools import pairwise
from math import inf, isnan, nan
from typing import NamedTuple

from pyspark_log.monitoring import Snapshot, Snapshots
from pyspark_log.ui.bounds import MOST_HISTORIES, SAMPLES

# How often the store is looked at, in seconds.
_PERIOD = 5.0
# Over how many samples a rate of "now" is.
_NOW = 12

#: Pairs of a time (s) and a number.
Points = list[tuple[float, float]]


class Trend(NamedTuple):
    """How a lag changes: records that are written and read in a second; None: it is not known yet."""

    written: float | None
    read: float | None


class _Ring:
    """The last numbers of something, each in the place of its sample."""

    __slots__ = ("values",)

    def __init__(self) -> None:
        self.values = array("d", [nan]) * SAMPLES


class History:
    """The samples of the last minutes, as many as there is room for. Pages ask for it in any thread."""

    def __init__(self, snapshots: Snapshots) -> None:
        """`snapshots`: give the store as it is."""
        self._snapshots = snapshots
        self._lock, self._end = threading.Lock(), threading.Event()
        self._times, self._count, self._last = _Ring(), 0, -inf
        self._ends, self._sizes = dict[str, _Ring](), dict[str, _Ring]()
        self._lags, self._committed = dict[str, _Ring](), dict[str, _Ring]()

    def start(self) -> None:
        """Takes samples from now on. The thread does not keep the process from ending."""
        threading.Thread(target=self._run, name="history", daemon=True).start()

    def close(self) -> None:
        """Takes no more."""
        self._end.set()

    def _run(self) -> None:
        pause = 0.0
        while not self._end.wait(pause):
            self.note(self._snapshots.current())
            pause = _PERIOD

    def note(self, snapshot: Snapshot) -> None:
        """Takes a sample. One that comes too early, or is of a store that could not be read, is none."""
        # Where the clock was set back, the time between is below 0.
        if snapshot.problem or 0 <= snapshot.time - self._last < 1000 * _PERIOD:
            return
        lags, committed = dict[str, float](), dict[str, float]()
        for group, _, offset, left in snapshot.positions():
            lags[group] = lags.get(group, 0) + (left or 0)
            committed[group] = committed.get(group, 0) + max(offset, 0)
        with self._lock:
            self._last = snapshot.time
            at = self._count % SAMPLES
            self._times.values[at] = snapshot.time / 1000
            _note(self._ends, at, {name: topic.ends for name, topic in snapshot.topics.items()})
            _note(self._sizes, at, {name: topic.size for name, topic in snapshot.topics.items()})
            _note(self._lags, at, lags)
            _note(self._committed, at, committed)
            self._count += 1

    # ---- what pages ask for

    def written(self, topic: str) -> Points:
        """The records that were written to a topic, in a second."""
        return _rates(self._points(self._ends, [topic]))

    def bytes_written(self, topic: str) -> Points:
        """The same in bytes. What retention deletes meanwhile is not seen."""
        return _rates(self._points(self._sizes, [topic]))

    def all_written(self, topics: Iterable[str]) -> Points:
        """The records that were written to some topics, in a second."""
        return _rates(self._points(self._ends, topics))

    def all_bytes_written(self, topics: Iterable[str]) -> Points:
        """The same in bytes."""
        return _rates(self._points(self._sizes, topics))

    def lag(self, groups: Iterable[str]) -> Points:
        """How many records groups were from the end, together."""
        return self._points(self._lags, groups)

    def read(self, group: str) -> Points:
        """The records that a group has read, in a second."""
        return _rates(self._points(self._committed, [group]))

    def trend(self, group: str) -> Trend:
        """How fast a group reads, and how fast is written what it reads, over the last minute."""
        read = _now(self._points(self._committed, [group]))
        grown = _now(self._points(self._lags, [group]))
        return Trend(None if read is None or grown is None else read + grown, read)

    def _points(self, rings: Mapping[str, _Ring], names: Iterable[str]) -> Points:
        """The sums of some rings at each sample."""
        with self._lock:
            chosen = [rings[name].values for name in names if name in rings]
            places = [number % SAMPLES for number in range(max(0, self._count - SAMPLES), self._count)]
            found = Points()
            for at in places:
                numbers = [values[at] for values in chosen if not isnan(values[at])]
                if numbers:
                    found.append((self._times.values[at], sum(numbers)))
            return found


def latest(points: Points) -> float | None:
    """The mean of the last minute; None: nothing is known."""
    recent = [number for _, number in points[-_NOW:]]
    return sum(recent) / len(recent) if recent else None


def _note(rings: dict[str, _Ring], at: int, numbers: Mapping[str, float]) -> None:
    for name in rings.keys() - numbers.keys():
        del rings[name]
    for name, number in numbers.items():
        ring = rings.get(name)
        if ring is None and len(rings) < MOST_HISTORIES:
            ring = rings[name] = _Ring()
        if ring is not None:
            ring.values[at] = number


def _rates(points: Points) -> Points:
    return [
        (time, max(0.0, number - before) / (time - earlier))
        for (earlier, before), (time, number) in pairwise(points)
        if time > earlier
    ]


def _now(points: Points) -> float | None:
    recent = points[-_NOW - 1 :]
    if len(recent) < 2 or recent[-1][0] <= recent[0][0]:
        return None
    return (recent[-1][1] - recent[0][1]) / (recent[-1][0] - recent[0][0])
