"""Explores every run of a model: all interleavings, kills and power losses, each state once, the nearest first.

What may happen in a state: any process makes its next step; any process is killed (and its next life begins); the
power fails, which ends all processes, and of what was not synced any part stays. A process that is stopped for a
while, or comes back when others think it dead, is a process whose steps come late, so it needs nothing of its own.

Three reductions keep the number of states small, and lose no violation. While a process holds a lock, a step that no
other process can see is not interleaved with other steps. No process is killed before a step that changes nothing. And
the power is not lost before a step that a power loss right after it can undo: the later outcomes include all of these.
"""

from __future__ import annotations

import gc
import itertools
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .machine import InvariantError, Model, Thing
from .programs import ENDED, READ, SYNC, WRITE, Operation, Programs, Values

# More steps than it takes one alone to finish everything.
_ALONE_STEPS = 10_000

State = tuple[int, ...]


@dataclass
class Result:
    """What an exploration covered, and what it found.

    Attributes:
        states, transitions, kills, powers: how many there were; the last two: transitions by a kill or a power loss.
        alone: in how many states one alone was let finish everything.
        seconds: of a processor.
        complete: there are no others.
        invariant: the violated one, as I3; "" if none is.
        what: how it is violated.
        trace: how the exploration came there.
    """

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
    def fault(self) -> str:
        """What is wrong with an exploration that should cover all and find nothing; "" if nothing is."""
        if self.invariant:
            return self.what
        if not self.complete:
            return f"cut short at {self.states} states"
        if self.states <= 1 or not self.transitions:
            return "nothing was explored"
        return ""


class Explorer:
    """Explores one model.

    A state is a row of numbers: the value of each thing, the local state of each process, in which life each is, and
    how many kills and power losses may still come.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.result = Result()
        self._names = list(model.things)
        self._kinds = [kind for kind, _ in model.things.values()]
        self._where = {name: number for number, name in enumerate(self._names)}
        self._values = [Values() for _ in self._names]
        self._results = Values()
        self._operations: dict[tuple[Any, ...], Operation] = {}
        self._programs = Programs(self._operation, self._results, model.by_history)
        self._processes = list(model.lives)
        self._first_local = len(self._names)
        self._first_life = self._first_local + len(self._processes)
        self._kills_left = self._first_life + len(self._processes)
        self._powers_left = self._kills_left + 1
        self._watching: list[list[Any]] = [[] for _ in self._names]
        for watch in model.watches:
            sees = tuple(self._where[name] for name in watch.sees)
            for thing in sees:
                self._watching[thing].append((self._where[watch.remembers], sees, watch.look, {}))
        self._crashes: list[dict[int, tuple[int, ...]]] = [{} for _ in self._names]
        self._released: list[dict[tuple[int, int], int]] = [{} for _ in self._names]
        self._holding = [
            number for number, kind in enumerate(self._kinds) if kind.released.__func__ is not Thing.released.__func__
        ]
        self._private = {self._where[name]: (self._where[lock], index) for name, (lock, index) in model.private.items()}
        self._settled: set[State] = set()

    def values_of(self, thing: str) -> frozenset[Any]:
        """All values that a thing had in any state that was visited."""
        return frozenset(self._values[self._where[thing]].all)

    # ---- all of it

    def explore(self, limit: int) -> Result:
        """Visits all states, and stops at the first violation.

        Args:
            limit: the most states; if there are more the result is not complete.
        """
        result, began = self.result, time.process_time()
        parents: dict[State, State | None] = {}
        # There is no garbage in circles here, and the search for it among millions of states takes half of the time.
        collecting = gc.isenabled()
        gc.disable()
        try:
            result.complete = self._visit_all(parents, limit)
        finally:
            if collecting:
                gc.enable()
        result.states = len(parents)
        result.seconds = time.process_time() - began
        return result

    def _visit_all(self, parents: dict[State, State | None], limit: int) -> bool:
        """Whether there are no more; `parents` gets all states, each with the one from which it was reached."""
        state: State = ()
        try:
            state = self._start()
            parents[state] = None
            level = [state]
            while level and len(parents) <= limit:
                deeper = []
                for state in level:
                    for new in self._visit(state):
                        if new not in parents:
                            parents[new] = state
                            deeper.append(new)
                level = deeper
        except InvariantError as error:
            self.result.invariant, self.result.what = error.invariant, str(error)
            self.result.trace = self._trace(parents, state)
            return False
        return not level

    def _visit(self, state: State) -> Iterable[State]:
        """The states after one; and all that must hold there for one alone."""
        alone = self.model.alone is not None
        if alone and not any(state[self._first_local : self._first_life]):
            self._finish_alone(state)
        for label, new in self._successors(state):
            self.result.transitions += 1
            if label[0] == "kill" or label[0] == "power":
                self.result.kills += label[0] == "kill"
                self.result.powers += label[0] == "power"
                if alone:
                    self._finish_alone(new)
            yield new

    def _start(self) -> State:
        """The first state."""
        firsts = (first for _, first in self.model.things.values())
        state = [values.number(first) for values, first in zip(self._values, firsts, strict=True)]
        first_lives = enumerate(lives[0] for lives in self.model.lives.values())
        state += [self._programs.first((process, 0), life) for process, life in first_lives]
        state += [0] * len(self._processes)
        state += [self.model.kills, self.model.powers]
        for thing in range(len(self._names)):
            self._look(state, thing)
        return tuple(state)

    # ---- what may happen in a state

    def _successors(self, state: State) -> list[tuple[Any, State]]:
        """All next states, each with what leads there."""
        found, only, undoable = self._steps(state)
        if state[self._kills_left]:
            found += self._kills(state, range(len(self._processes)) if only is None else (only,))
        if state[self._powers_left] and not (undoable and self.model.reduce):
            found += self._power_losses(state)
        for name, step in self.model.steps:
            for change in step(self._named(state)):
                new = list(state)
                for thing, value in change.items():
                    number = self._where[thing]
                    new[number] = self._values[number].number(value)
                    self._look(new, number)
                found.append(((name,), tuple(new)))
        return found

    def _steps(self, state: State) -> tuple[list[tuple[Any, State]], int | None, bool]:
        """The next steps of processes; whose alone count (None: all); whether a power loss can undo one."""
        found: list[tuple[Any, State]] = []
        undoable, waiting = False, False
        calm = not state[self._powers_left]
        for process in range(len(self._processes)):
            operation = self._programs.pending[state[self._first_local + process]]
            if operation is None:
                continue
            outcomes = self._outcomes(operation, state[operation.thing], calm)
            if not outcomes:
                waiting = True
                continue
            undoable = undoable or operation.kind is not SYNC
            steps = self._steps_of(state, process, operation, outcomes)
            alone = self.model.reduce and (calm or operation.kind is not SYNC)
            if alone and self._is_private(operation, state, process):
                return steps, process, undoable
            found += steps
        if waiting and not found:
            waits = [name for process, name in enumerate(self._processes) if state[self._first_local + process]]
            raise InvariantError("I15", "no process can continue: " + ", ".join(waits))
        return found, None, undoable

    def _steps_of(
        self, state: State, process: int, operation: Operation, outcomes: Iterable[tuple[int, int]]
    ) -> list[tuple[Any, State]]:
        local = self._first_local + process
        found = []
        for value, result in outcomes:
            new = list(state)
            new[local] = self._programs.after(state[local], result)
            if value != state[operation.thing]:
                new[operation.thing] = value
                self._look(new, operation.thing)
            found.append(((process, operation), tuple(new)))
        return found

    def _kills(self, state: State, whose: Iterable[int]) -> list[tuple[Any, State]]:
        found = []
        for process in whose:
            operation = self._programs.pending[state[self._first_local + process]]
            if operation is not None and (operation.kind is not READ or not self.model.reduce):
                new = list(state)
                new[self._kills_left] -= 1
                self._release(new, process)
                self._begin_next_life(new, process)
                found.append((("kill", process), tuple(new)))
        return found

    def _power_losses(self, state: State) -> list[tuple[Any, State]]:
        choices = []
        for number, crashes in enumerate(self._crashes):
            left = crashes.get(state[number])
            if left is None:
                values = self._values[number]
                after: Iterable[Any] = self._kinds[number].crash(values.all[state[number]])
                if state[self._powers_left] == 1:
                    after = map(self._kinds[number].calm, after)
                left = crashes[state[number]] = tuple(dict.fromkeys(values.number(value) for value in after))
            choices.append(left)
        found = []
        for chosen in itertools.product(*choices):
            new = [*chosen, *state[self._first_local :]]
            new[self._powers_left] -= 1
            for process in range(len(self._processes)):
                self._release(new, process)
                self._begin_next_life(new, process)
            for thing in range(len(self._names)):
                self._look(new, thing)
            found.append((("power",), tuple(new)))
        return found

    # ---- parts of a step

    def _operation(self, request: tuple[Any, ...]) -> Operation:
        found = self._operations.get(request)
        if found is None:
            thing, name, *args = request
            kind = self._kinds[self._where[thing]]
            effect = READ if name in kind.reads else SYNC if name in kind.syncs else WRITE
            found = Operation(self._where[thing], name, tuple(args), getattr(kind, "do_" + name), effect)
            self._operations[request] = found
        return found

    def _outcomes(self, operation: Operation, value: int, calm: bool) -> tuple[tuple[int, int], ...]:
        """What may come of an operation: the numbers of the new value and of the result."""
        memo = operation.calm if calm else operation.memo
        found = memo.get(value)
        if found is None:
            values, kind = self._values[operation.thing], self._kinds[operation.thing]
            given = operation.do(values.all[value], *operation.args)
            found = memo[value] = tuple(
                (values.number(kind.calm(new) if calm else new), self._results.number(result))
                for new, result in (given if isinstance(given, list) else [given])
            )
        return found

    def _is_private(self, operation: Operation, state: State, process: int) -> bool:
        guard = self._private.get(operation.thing)
        if guard is None or self._values[guard[0]].all[state[guard[0]]][guard[1]] != process:
            return False
        value = state[operation.thing]
        hidden = operation.hidden.get(value)
        if hidden is None:
            kind = self._kinds[operation.thing]
            hidden = kind.hidden(self._values[operation.thing].all[value], operation.name, operation.args)
            operation.hidden[value] = hidden
        return hidden

    def _look(self, state: list[int], thing: int) -> None:
        """Has the observers of a thing that has changed check it."""
        for remembers, sees, look, memo in self._watching[thing]:
            key = (state[remembers], *[state[number] for number in sees])
            found = memo.get(key)
            if found is None:
                values = self._values[remembers]
                seen = [self._values[number].all[state[number]] for number in sees]
                found = memo[key] = values.number(look(values.all[state[remembers]], *seen))
            state[remembers] = found

    def _release(self, state: list[int], process: int) -> None:
        for number in self._holding:
            key = (state[number], process)
            found = self._released[number].get(key)
            if found is None:
                values = self._values[number]
                found = values.number(self._kinds[number].released(values.all[state[number]], process))
                self._released[number][key] = found
            state[number] = found

    def _begin_next_life(self, state: list[int], process: int) -> None:
        lives = self.model.lives[self._processes[process]]
        life = state[self._first_life + process] = min(state[self._first_life + process] + 1, len(lives) - 1)
        state[self._first_local + process] = self._programs.first((process, life), lives[life])

    # ---- one alone

    def _finish_alone(self, state: State) -> None:
        """All processes are dead; a new one then finishes everything."""
        left = list(state[: self._first_local])
        for process in range(len(self._processes)):
            self._release(left, process)
        local = self._programs.first("alone", self.model.alone)
        path: list[State] = []
        while (key := (*left, local)) not in self._settled:
            path.append(key)
            if local == ENDED:
                if self.model.settled is not None:
                    self.model.settled(self._named(left))
                break
            operation = self._programs.pending[local]
            assert operation is not None
            outcomes = self._outcomes(operation, left[operation.thing], True)
            if not outcomes:
                raise InvariantError("I15", f"one alone has to wait for {self._names[operation.thing]}")
            value, result = outcomes[0]
            local = self._programs.after(local, result)
            if value != left[operation.thing]:
                left[operation.thing] = value
                self._look(left, operation.thing)
            if len(path) > _ALONE_STEPS:
                raise InvariantError("I15", "one alone does not come to an end")
        self._settled.update(path)
        self.result.alone += 1

    # ---- reporting

    def _trace(self, parents: Mapping[State, State | None], state: State) -> list[str]:
        """How the exploration came to a state, and the steps that were open there."""
        chain = [state] if state else []
        while chain and (before := parents[chain[-1]]) is not None:
            chain.append(before)
        chain.reverse()
        lines = []
        for before, now in itertools.pairwise(chain):
            label = next(label for label, new in self._successors(before) if new == now)
            lines.append(self._line(label, before, now))
        opened = [
            f"{self._processes[process]}: {self._told(operation)}"
            for process in range(len(self._processes))
            if state and (operation := self._programs.pending[state[self._first_local + process]]) is not None
        ]
        return [*lines, "then one of: " + "; ".join(opened) if opened else "then all have ended"]

    def _line(self, label: tuple[Any, ...], before: State, now: State) -> str:
        if label[0] == "kill":
            return f"{self._processes[label[1]]} is killed"
        changes = "; ".join(
            f"{name} = {self._values[number].all[now[number]]}"
            for number, name in enumerate(self._names)
            if now[number] != before[number]
        )
        if label[0] == "power":
            return f"the power goes and leaves {changes or 'everything'}"
        if isinstance(label[0], str):
            return f"{label[0]}: {changes}"
        return f"{self._processes[label[0]]}: {self._told(label[1])}" + (f" -> {changes}" if changes else "")

    def _told(self, operation: Operation) -> str:
        return f"{self._names[operation.thing]}.{operation.name}({', '.join(map(str, operation.args))})"

    def _named(self, state: Sequence[int]) -> dict[str, Any]:
        """The values of all things, by name."""
        return {name: self._values[number].all[state[number]] for number, name in enumerate(self._names)}
