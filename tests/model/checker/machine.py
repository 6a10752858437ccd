"""What a model is made of: things that are shared, processes that change them, and observers.

A thing has a value that is never changed in place, and operations on it, each of which is one atomic step. A process is
a program: a generator that yields one operation at a time and is sent its result. So programs read like the protocol,
and still are small machines: what a process can do next depends only on where its generator is suspended and on its
local variables, and these are what is compared when two states are.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: A part of a program: it yields (thing, operation, arguments ...), and is sent what comes of it.
Steps = Generator[tuple[Any, ...], Any, Any]
Program = Callable[[], Steps]


class InvariantError(Exception):
    """An invariant does not hold.

    Attributes:
        invariant: its name, as I3.
    """

    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(f"{invariant}: {what}")
        self.invariant = invariant


class Thing:
    """What processes share. An operation `name` is a class method `do_name(value, *args)`.

    It gives the new value and the result; or a list of such pairs, one of which happens; an empty list means that
    the process has to wait.

    Attributes:
        reads: operations that change nothing, or nothing but the holder of a lock: being killed just before is the same
            as just after.
        syncs: operations that a power loss just after cannot undo. Of all others it can: what a power loss right
            before them leaves, one right after them can leave as well.
    """

    reads: frozenset[str] = frozenset()
    syncs: frozenset[str] = frozenset()

    @classmethod
    def crash(cls, value: Any) -> Iterable[Any]:
        """What a power loss may leave."""
        return (value,)

    @classmethod
    def calm(cls, value: Any) -> Any:
        """The same for a run in which the power does not go any more: it makes no difference what is synced."""
        return value

    @classmethod
    def hidden(cls, value: Any, name: str, args: tuple[Any, ...]) -> bool:
        """Whether only the holder of its lock can see that an operation was made. Asked of private things."""
        return True

    @classmethod
    def released(cls, value: Any, process: int) -> Any:
        """What is left when a process ends without a word."""
        return value


@dataclass(frozen=True)
class Watch:
    """An observer outside of the protocol: after each step `remembers` is made from what it was and what it sees.

    It raises InvariantError for what must never be seen.
    """

    remembers: str
    sees: tuple[str, ...]
    look: Callable[..., Any]


@dataclass
class Model:
    """What is explored.

    Attributes:
        things: the shared things, each with its first value.
        lives: the programs of each process: the first, and those that follow it after each kill or power loss. The
            last one is repeated. An empty program (None) means that it stays dead.
        kills, powers: how many there are at most in a run.
        watches: observers.
        private: things that only the holder of a lock changes, with the name of the lock and its index in there.
            Steps of the holder that cannot be seen by others need not be interleaved with theirs.
        alone: a program that must be able to finish by itself, with all others dead: right after each kill and power
            loss, and when all have ended.
        settled: called with all values when it has; raises InvariantError.
        steps: further transitions (name, function from all values to lists of changed values), as losing a lock.
        reduce: False explores every interleaving, to show that nothing is missed where True explores fewer.
        by_history: two local states are the same only if they have the same history, to show the same.
    """

    things: Mapping[str, tuple[type[Thing], Any]]
    lives: Mapping[str, Sequence[Program | None]]
    kills: int = 0
    powers: int = 0
    watches: Sequence[Watch] = ()
    private: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    alone: Program | None = None
    settled: Callable[[Mapping[str, Any]], None] | None = None
    steps: Sequence[tuple[str, Callable[[Mapping[str, Any]], Iterable[Mapping[str, Any]]]]] = ()
    reduce: bool = True
    by_history: bool = False
