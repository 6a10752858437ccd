"""Explores every run of a small model: all interleavings, kills and power losses, each state once.

A model is a set of shared things (files, locks, what an outside observer remembers) and of processes. A thing has a
value that is never changed in place and operations on it, each of which is one atomic step. A process is a program: a
generator that yields one operation at a time and is sent its result. So programs read like the protocol, and still
are small machines: what a process can do next depends on nothing but where its generator stands and on its local
variables, and these are what is compared when two states are.

What may happen in a state: any process makes its next step; any process is killed (and its next life begins); the
power goes, which ends all processes, and of what was not synced any part stays. A process that is stopped for a
while, or comes back when others think it dead, is a process whose steps come late, so it needs nothing of its own.
"""

from __future__ import annotations

import gc
import itertools
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Program = Callable[[], Generator[tuple[Any, ...], Any, None]]

READ, WRITE, SYNC = "read", "write", "sync"


class Violation(Exception):
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
        reads: operations that change nothing, or nothing but who holds a lock: being killed just before is the same
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
        """Whether nobody but the holder of its lock can tell that an operation was made. Asked of private things."""
        return True

    @classmethod
    def released(cls, value: Any, who: int) -> Any:
        """What is left when a process ends without a word."""
        return value


@dataclass(frozen=True)
class Watch:
    """An observer outside of the protocol: after each step `remembers` is made from what it was and what it sees.

    It raises Violation for what must never be seen.
    """

    remembers: str
    sees: tuple[str, ...]
    look: Callable[..., Any]


@dataclass
class Model:
    """What is explored.

    Attributes:
        things: the shared things, each with its first value.
        lives: the programs of each process: the first, and those it goes on with after each kill or power loss. The
            last one is repeated. An empty program (None) means that it stays dead.
        kills, powers: how many there are at most in a run.
        watches: observers.
        private: things that only the holder of a lock changes, with the name of the lock and its index in there.
            Steps of the holder that cannot be seen by others need not be interleaved with theirs.
        alone: a program that must be able to finish by itself, with all others dead: right after each kill and power
            loss, and when all have ended.
        alone_everywhere: from every other state, too.
        settled: called with all values when it has; raises Violation.
        steps: further transitions (name, function from all values to lists of changed values), as losing a lock.
        reduce: False explores every interleaving, for comparison.
        by_history: two local states are the same only if they have the same history, for comparison.
    """

    things: Mapping[str, tuple[type[Thing], Any]]
    lives: Mapping[str, Sequence[Program | None]]
    kills: int = 0
    powers: int = 0
    watches: Sequence[Watch] = ()
    private: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    alone: Program | None = None
    alone_everywhere: bool = False
    settled: Callable[[Mapping[str, Any]], None] | None = None
    steps: Sequence[tuple[str, Callable[[Mapping[str, Any]], Iterable[Mapping[str, Any]]]]] = ()
    reduce: bool = True
    by_history: bool = False


@dataclass
class Result:
    """What an exploration covered, and what it found."""

    states: int = 0
    transitions: int = 0
    kills: int = 0
    powers: int = 0
    alone: int = 0
    seconds: float = 0.0
    complete: bool = False
    invariant: str = ""
    what: str = ""
    trace: list[str] = field(default_factory=list)

    @property
    def steps(self) -> int:
        """How long the counterexample is."""
        return len(self.trace)


class _Op:
    __slots__ = ("args", "calm", "do", "hidden", "kind", "memo", "name", "thing")

    def __init__(self, thing: int, name: str, args: tuple[Any, ...], do: Callable[..., Any], kind: str) -> None:
        self.thing, self.name, self.args, self.do, self.kind = thing, name, args, do, kind
        self.memo: dict[int, tuple[tuple[int, int], ...]] = {}
        self.calm: dict[int, tuple[tuple[int, int], ...]] = {}
        self.hidden: dict[int, bool] = {}


class _Values:
    """Values by small numbers, so that states are compared fast."""

    def __init__(self) -> None:
        self.all: list[Any] = []
        self._numbers: dict[Any, int] = {}

    def number(self, value: Any) -> int:
        # True and 1 are equal, and not the same.
        key = (value.__class__, value)
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.all)
            self.all.append(value)
        return found


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(value.items())
    if isinstance(value, list):
        return tuple(value)
    return value.frozen() if hasattr(value, "frozen") and not isinstance(value, type) else value


def _stand(generator: Any) -> tuple[Any, ...]:
    """Where a generator stands: each frame's place in its code, and its variables."""
    frames = []
    while generator is not None:
        frame = generator.gi_frame
        variables = tuple((name, _frozen(value)) for name, value in sorted(frame.f_locals.items()))
        frames.append((id(frame.f_code), frame.f_lasti, variables))
        generator = generator.gi_yieldfrom
    return tuple(frames)


_ENDED = 0


class _Locals:
    """The local states of all processes, found as they are reached.

    A generator cannot be copied, so each local state keeps the results that lead to it, and is reached anew with them.
    """

    def __init__(self, model: Model, ops: Callable[[tuple[Any, ...]], _Op], results: _Values) -> None:
        self._model, self._ops, self._results = model, ops, results
        self._numbers: dict[Any, int] = {None: _ENDED}
        self._histories: list[Any] = [None]
        self.pending: list[_Op | None] = [None]
        self._next: dict[tuple[int, int], int] = {}
        self._firsts: dict[Any, int] = {}

    def first(self, key: Any, program: Program | None) -> int:
        found = self._firsts.get(key)
        if found is None:
            found = self._firsts[key] = _ENDED if program is None else self._enter(key, program, ())
        return found

    def after(self, local: int, result: int) -> int:
        found = self._next.get((local, result))
        if found is None:
            key, program, history = self._histories[local]
            found = self._next[local, result] = self._enter(key, program, (*history, result))
        return found

    def _enter(self, key: Any, program: Program, history: tuple[int, ...]) -> int:
        generator = program()
        values = self._results.all
        try:
            op = next(generator)
            for result in history:
                op = generator.send(values[result])
        except StopIteration:
            return _ENDED
        stand = (key, history) if self._model.by_history else (key, _stand(generator))
        found = self._numbers.get(stand)
        if found is None:
            found = self._numbers[stand] = len(self.pending)
            self._histories.append((key, program, history))
            self.pending.append(self._ops(op))
        return found

    def life(self, local: int) -> Any:
        return self._histories[local][0] if local else None


class Explorer:
    """Explores one model."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.names = list(model.things)
        self._kinds = [kind for kind, _ in model.things.values()]
        self._where = {name: number for number, name in enumerate(self.names)}
        self._values = [_Values() for _ in self.names]
        self._results = _Values()
        self._op_table: dict[tuple[Any, ...], _Op] = {}
        self._locals = _Locals(model, self._op, self._results)
        self._who = list(model.lives)
        self._first_local = len(self.names)
        self._budget = self._first_local + 2 * len(self._who)
        self._watches = [
            (self._where[w.remembers], tuple(self._where[name] for name in w.sees), w.look, {}) for w in model.watches
        ]
        self._watching = [
            [w for w in self._watches if number in w[1]] for number in range(len(self.names))
        ]
        self._crashes: list[dict[int, tuple[int, ...]]] = [{} for _ in self.names]
        self._released: list[dict[tuple[int, int], int]] = [{} for _ in self.names]
        self._holding = [
            number for number, kind in enumerate(self._kinds) if kind.released.__func__ is not Thing.released.__func__
        ]
        self._private = {
            self._where[name]: (self._where[lock], index) for name, (lock, index) in model.private.items()
        }
        self._settled: set[tuple[int, ...]] = set()
        self.result = Result()

    # ---- parts of a step

    def _op(self, request: tuple[Any, ...]) -> _Op:
        found = self._op_table.get(request)
        if found is None:
            thing, name, *args = request
            kind = self._kinds[self._where[thing]]
            effect = READ if name in kind.reads else SYNC if name in kind.syncs else WRITE
            found = _Op(self._where[thing], name, tuple(args), getattr(kind, "do_" + name), effect)
            self._op_table[request] = found
        return found

    def _outcomes(self, op: _Op, value: int, calm: bool) -> tuple[tuple[int, int], ...]:
        """What may come of an operation: the numbers of the new value and of the result."""
        memo = op.calm if calm else op.memo
        found = memo.get(value)
        if found is None:
            values, kind = self._values[op.thing], self._kinds[op.thing]
            given = op.do(values.all[value], *op.args)
            found = memo[value] = tuple(
                (values.number(kind.calm(new) if calm else new), self._results.number(result))
                for new, result in (given if isinstance(given, list) else [given])
            )
        return found

    def _look(self, state: list[int], thing: int) -> None:
        """Has the observers of a thing that has changed look at it."""
        for remembers, sees, look, memo in self._watching[thing]:
            key = (state[remembers], *[state[number] for number in sees])
            found = memo.get(key)
            if found is None:
                values = self._values[remembers]
                seen = [self._values[number].all[state[number]] for number in sees]
                found = memo[key] = values.number(look(values.all[state[remembers]], *seen))
            state[remembers] = found

    def _release(self, state: list[int], who: int) -> None:
        for number in self._holding:
            key = (state[number], who)
            found = self._released[number].get(key)
            if found is None:
                values = self._values[number]
                found = values.number(self._kinds[number].released(values.all[state[number]], who))
                self._released[number][key] = found
            state[number] = found

    def _next_life(self, state: list[int], who: int) -> None:
        lives = self.model.lives[self._who[who]]
        at = self._first_local + len(self._who) + who
        life = state[at] = min(state[at] + 1, len(lives) - 1)
        state[self._first_local + who] = self._locals.first((who, life), lives[life])

    def start(self) -> tuple[int, ...]:
        """The first state."""
        state = [values.number(first) for values, (_, first) in zip(self._values, self.model.things.values(), strict=True)]
        state += [self._locals.first((who, 0), lives[0]) for who, lives in enumerate(self.model.lives.values())]
        state += [0] * len(self._who)
        state += [self.model.kills, self.model.powers]
        for thing in range(len(self.names)):
            self._look(state, thing)
        return tuple(state)

    # ---- what may happen

    def successors(self, state: tuple[int, ...]) -> list[tuple[Any, tuple[int, ...]]]:
        """All next states, each with what leads there."""
        found: list[tuple[Any, tuple[int, ...]]] = []
        first, pending, after = self._first_local, self._locals.pending, self._locals.after
        moved, undoable, waiting, only = False, False, False, None
        calm = not state[self._budget + 1]
        for who in range(len(self._who)):
            op = pending[state[first + who]]
            if op is None:
                continue
            outcomes = self._outcomes(op, state[op.thing], calm)
            if not outcomes:
                waiting = True
                continue
            moved = True
            if op.kind is not SYNC:
                undoable = True
            start = len(found)
            for value, result in outcomes:
                new = list(state)
                new[first + who] = after(state[first + who], result)
                if value != state[op.thing]:
                    new[op.thing] = value
                    self._look(new, op.thing)
                found.append(((who, op), tuple(new)))
            if self.model.reduce and (calm or op.kind is not SYNC) and self._is_private(op, state, who):
                only = (who, found[start:])
                break
        if waiting and not moved:
            raise Violation("I15", "nobody can go on: " + ", ".join(
                self._who[who] for who in range(len(self._who)) if state[first + who]
            ))
        if only is not None:
            found = only[1]
        if state[self._budget]:
            for who in range(len(self._who)) if only is None else (only[0],):
                op = pending[state[first + who]]
                if op is not None and (op.kind is not READ or not self.model.reduce):
                    new = list(state)
                    new[self._budget] -= 1
                    self._release(new, who)
                    self._next_life(new, who)
                    self.result.kills += 1
                    found.append((("kill", who), tuple(new)))
        if state[self._budget + 1] and not (undoable and self.model.reduce):
            found += self._power(state)
        for name, step in self.model.steps:
            for change in step(self.named(state)):
                new = list(state)
                for thing, value in change.items():
                    number = self._where[thing]
                    new[number] = self._values[number].number(value)
                    self._look(new, number)
                found.append(((name,), tuple(new)))
        return found

    def _is_private(self, op: _Op, state: tuple[int, ...], who: int) -> bool:
        guard = self._private.get(op.thing)
        if guard is None or self._values[guard[0]].all[state[guard[0]]][guard[1]] != who:
            return False
        value = state[op.thing]
        hidden = op.hidden.get(value)
        if hidden is None:
            kind = self._kinds[op.thing]
            hidden = op.hidden[value] = kind.hidden(self._values[op.thing].all[value], op.name, op.args)
        return hidden

    def _power(self, state: tuple[int, ...]) -> list[tuple[Any, tuple[int, ...]]]:
        choices = []
        for number, crashes in enumerate(self._crashes):
            left = crashes.get(state[number])
            if left is None:
                values = self._values[number]
                after: Iterable[Any] = self._kinds[number].crash(values.all[state[number]])
                if state[self._budget + 1] == 1:
                    after = map(self._kinds[number].calm, after)
                left = crashes[state[number]] = tuple(dict.fromkeys(values.number(value) for value in after))
            choices.append(left)
        found = []
        for left in itertools.product(*choices):
            new = [*left, *state[self._first_local :]]
            new[self._budget + 1] -= 1
            for who in range(len(self._who)):
                self._release(new, who)
                self._next_life(new, who)
            for thing in range(len(self.names)):
                self._look(new, thing)
            self.result.powers += 1
            found.append((("power",), tuple(new)))
        return found

    # ---- one alone

    def _finish(self, state: tuple[int, ...]) -> None:
        """All processes are dead; one that comes then finishes everything."""
        assert self.model.alone is not None
        left = list(state[: self._first_local])
        for who in range(len(self._who)):
            self._release(left, who)
        local = self._locals.first("alone", self.model.alone)
        path = []
        while True:
            key = (*left, local)
            if key in self._settled:
                break
            path.append(key)
            op = self._locals.pending[local]
            if op is None:
                if self.model.settled is not None:
                    self.model.settled(self.named(left))
                break
            outcomes = self._outcomes(op, left[op.thing], True)
            if not outcomes:
                raise Violation("I15", f"one alone has to wait for {self.names[op.thing]}")
            value, result = outcomes[0]
            local = self._locals.after(local, result)
            if value != left[op.thing]:
                left[op.thing] = value
                self._look(left, op.thing)
            if len(path) > 10_000:
                raise Violation("I15", "one alone does not come to an end")
        self._settled.update(path)
        self.result.alone += 1

    # ---- all of it

    def explore(self, limit: int) -> Result:
        """Visits all states, the nearest first, and stops at the first violation.

        Args:
            limit: at most so many states; if there are more the result is not complete.
        """
        result, began = self.result, time.monotonic()
        state: tuple[int, ...] = ()
        parents: dict[tuple[int, ...], tuple[int, ...] | None] = {}
        alone = self.model.alone is not None
        # There is no garbage in circles here, and looking for it among millions of states takes half of the time.
        collecting = gc.isenabled()
        gc.disable()
        try:
            state = self.start()
            parents[state] = None
            level = [state]
            while level and len(parents) <= limit:
                deeper = []
                for state in level:
                    if alone and (self.model.alone_everywhere or self._all_ended(state)):
                        self._finish(state)
                    for label, new in self.successors(state):
                        result.transitions += 1
                        if alone and (label[0] == "kill" or label[0] == "power"):
                            self._finish(new)
                        if new not in parents:
                            parents[new] = state
                            deeper.append(new)
                level = deeper
            result.complete = not level
        except Violation as violation:
            result.invariant, result.what = violation.invariant, str(violation)
            result.trace = self._trace(parents, state)
        finally:
            if collecting:
                gc.enable()
        result.states = len(parents)
        result.seconds = time.monotonic() - began
        return result

    def _all_ended(self, state: tuple[int, ...]) -> bool:
        return not any(state[self._first_local : self._first_local + len(self._who)])

    def _trace(self, parents: Mapping[Any, Any], state: tuple[int, ...]) -> list[str]:
        """How the exploration came to a state, and the steps that were open there."""
        chain = [state]
        while chain and parents.get(chain[-1]) is not None:
            chain.append(parents[chain[-1]])
        chain.reverse()
        lines = []
        for before, now in itertools.pairwise(chain):
            label = next(label for label, new in self.successors(before) if new == now)
            lines.append(self._text(label, before, now))
        opened = [
            f"{self._who[who]}: {self._op_text(op)}"
            for who in range(len(self._who))
            if state and (op := self._locals.pending[state[self._first_local + who]]) is not None
        ]
        return [*lines, "then one of: " + "; ".join(opened) if opened else "then all have ended"]

    def _text(self, label: tuple[Any, ...], before: tuple[int, ...], now: tuple[int, ...]) -> str:
        if label[0] == "kill":
            return f"{self._who[label[1]]} is killed"
        changes = "; ".join(
            f"{name} = {self._values[number].all[now[number]]}"
            for number, name in enumerate(self.names)
            if now[number] != before[number]
        )
        if label[0] == "power":
            return f"the power goes and leaves {changes or 'everything'}"
        if isinstance(label[0], str):
            return f"{label[0]}: {changes}"
        return f"{self._who[label[0]]}: {self._op_text(label[1])}" + (f" -> {changes}" if changes else "")

    def _op_text(self, op: _Op) -> str:
        return f"{self.names[op.thing]}.{op.name}({', '.join(map(str, op.args))})"

    def named(self, state: Sequence[int]) -> dict[str, Any]:
        """The values of all things, by name."""
        return {name: self._values[number].all[state[number]] for number, name in enumerate(self.names)}


def explore(model: Model, limit: int = 50_000_000) -> Result:
    """Explores a model; see Explorer.explore."""
    return Explorer(model).explore(limit)
