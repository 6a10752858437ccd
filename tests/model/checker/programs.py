"""How far processes have got: operations, values and local states as small numbers, so that states compare fast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .machine import Program, Steps

READ, WRITE, SYNC = "read", "write", "sync"

# How many generators are kept suspended where they are; any others are run again from their beginning.
_KEPT = 100_000


class Operation:
    """An operation with its arguments, and what is known of it: by the number of a thing's value, what it leads to."""

    __slots__ = ("args", "calm", "do", "hidden", "kind", "memo", "name", "thing")

    def __init__(self, thing: int, name: str, args: tuple[Any, ...], do: Callable[..., Any], kind: str) -> None:
        self.thing, self.name, self.args, self.do, self.kind = thing, name, args, do, kind
        self.memo: dict[int, tuple[tuple[int, int], ...]] = {}
        self.calm: dict[int, tuple[tuple[int, int], ...]] = {}
        self.hidden: dict[int, bool] = {}


class Values:
    """Values by number."""

    def __init__(self) -> None:
        self.all: list[Any] = []
        self._numbers: dict[Any, int] = {}

    def number(self, value: Any) -> int:
        """The number of a value."""
        # True and 1 are equal, and not the same.
        key = (value.__class__, value)
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.all)
            self.all.append(value)
        return found


#: The local state of a process that has ended.
ENDED = 0


class Programs:
    """The local states of all processes, found as they are reached.

    A generator cannot be copied. The first way that leads on from a local state takes the generator suspended there;
    for any other, one is run again from its beginning, with the results that have led there.
    """

    def __init__(self, operation: Callable[[tuple[Any, ...]], Operation], results: Values, by_history: bool) -> None:
        self._operation, self._results, self._by_history = operation, results, by_history
        self._numbers: dict[Any, int] = {None: ENDED}
        self._histories: list[Any] = [None]
        self._standing: dict[int, Steps] = {}
        self._next: dict[tuple[int, int], int] = {}
        self._firsts: dict[Any, int] = {}
        #: What each local state is about to do; None if it has ended.
        self.pending: list[Operation | None] = [None]

    def first(self, key: Any, program: Program | None) -> int:
        """The local state in which a program begins; `key` distinguishes it from others."""
        found = self._firsts.get(key)
        if found is None:
            found = self._firsts[key] = ENDED if program is None else self._enter(key, program, (), program(), None)
        return found

    def after(self, local: int, result: int) -> int:
        """The local state after one, when its operation had a result."""
        found = self._next.get((local, result))
        if found is None:
            key, program, history = self._histories[local]
            generator = self._standing.pop(local, None)
            if generator is None:
                generator = program()
                given = [None, *(self._results.all[number] for number in history)]
                for value in given:
                    generator.send(value)
            value = self._results.all[result]
            found = self._next[local, result] = self._enter(key, program, (*history, result), generator, value)
        return found

    def _enter(self, key: Any, program: Program, history: tuple[int, ...], generator: Steps, value: Any) -> int:
        try:
            request = generator.send(value)
        except StopIteration:
            return ENDED
        stand = (key, history) if self._by_history else (key, _stand(generator))
        found = self._numbers.get(stand)
        if found is None:
            found = self._numbers[stand] = len(self.pending)
            self._histories.append((key, program, history))
            self.pending.append(self._operation(request))
            if len(self._standing) < _KEPT:
                self._standing[found] = generator
        return found


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(value.items())
    if isinstance(value, list):
        return tuple(value)
    return value.frozen() if hasattr(value, "frozen") and not isinstance(value, type) else value


def _stand(generator: Any) -> tuple[Any, ...]:
    """Where a generator is suspended: each frame's place in its code, and its variables."""
    frames = []
    while generator is not None:
        frame = generator.gi_frame
        variables = tuple((name, _frozen(value)) for name, value in sorted(frame.f_locals.items()))
        frames.append((id(frame.f_code), frame.f_lasti, variables))
        generator = generator.gi_yieldfrom
    return tuple(frames)
