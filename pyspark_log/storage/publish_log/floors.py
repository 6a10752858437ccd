"""Floors: up to which number entries of the log may be deleted.

`floor/K` holds the K-th one. It is written after it was decided, and before the first entry up to it is deleted. So a
process that has slept through a deletion finds a floor that its state does not count:
docs/internals/publish-log.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from pyspark_log.errors import LogDamagedError
from pyspark_log.storage.fs.clock import since_boot
from pyspark_log.storage.objects import Objects

# An entry is deleted days after it was made. A process that knew the newest state within this time (ms) need not look.
_AWAKE = 10 * 60 * 1000


class Moment(NamedTuple):
    """A time, by two clocks (ms): one may be set, the other may stop while a virtual machine is paused."""

    clock: int
    since_boot: int

    @classmethod
    def now(cls, clock: Callable[[], int]) -> Moment:
        """The present one; `clock` gives the time in ms."""
        return cls(clock(), int(1000 * since_boot()))

    def is_long_ago(self, now: Moment) -> bool:
        """Whether entries that were made since may be deleted by now."""
        return abs(now.clock - self.clock) > _AWAKE or now.since_boot - self.since_boot > _AWAKE


def name_of(count: int) -> str:
    """The name of a floor; the first is 1."""
    return f"floor/{count:020}"


def write(objects: Objects, count: int, number: int) -> None:
    """Writes a floor that is decided. ObjectStoreError."""
    objects.put(name_of(count), b"%d" % number)


class Floor(NamedTuple):
    """A floor: which one it is, from 1 on, and up to which number entries may be deleted."""

    place: int
    number: int


def last_after(objects: Objects, count: int) -> Floor | None:
    """The last floor after the first `count`; None: there is none. ObjectStoreError, LogDamagedError."""
    floor = None
    while (found := objects.get(name_of(count + 1))) is not None:
        text = bytes(found.data)
        if not re.fullmatch(rb"\d{1,19}", text):
            raise LogDamagedError(f"{objects.address}/{name_of(count + 1)} is no number: {text[:40]!r}")
        count += 1
        floor = Floor(count, int(text))
    return floor
