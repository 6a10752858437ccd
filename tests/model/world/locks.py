"""Locks, as pyspark_log/storage/fs/locking/locks.py has them; and what is left to chance."""

from __future__ import annotations

from typing import Any

from ..checker.machine import Thing


class Locks(Thing):
    """Locks, each held by a process or free (-1)."""

    reads = frozenset({"acquire", "try", "release"})

    @classmethod
    def do_acquire(cls, holders: tuple[int, ...], lock: int, process: int) -> Any:
        return [(_with(holders, lock, process), None)] if holders[lock] < 0 else []

    @classmethod
    def do_try(cls, holders: tuple[int, ...], lock: int, process: int) -> Any:
        """Takes it if it is free; gives whether it was."""
        return (_with(holders, lock, process), True) if holders[lock] < 0 else (holders, False)

    @classmethod
    def do_release(cls, holders: tuple[int, ...], lock: int, process: int) -> Any:
        return (_with(holders, lock, -1) if holders[lock] == process else holders), None

    @classmethod
    def released(cls, holders: tuple[int, ...], process: int) -> Any:
        return tuple(-1 if holder == process else holder for holder in holders)


def _with(holders: tuple[int, ...], lock: int, process: int) -> tuple[int, ...]:
    return (*holders[:lock], process, *holders[lock + 1 :])


class Chance(Thing):
    """What is left open."""

    reads = frozenset({"order", "choose"})

    @classmethod
    def do_order(cls, value: None, places: tuple[str, ...]) -> Any:
        """The order in which threads come to partitions."""
        return [(value, places), (value, places[::-1])] if len(places) > 1 else (value, places)

    @classmethod
    def do_choose(cls, value: None, among: tuple[Any, ...]) -> Any:
        return [(value, one) for one in among]
