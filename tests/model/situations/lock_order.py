"""Locks: no circle of processes that wait for each other, and no waiter that has its turn is overtaken.

The programs here only take and release locks, in the orders in which the engine nests them: the decision log's before
those of groups' partitions (a publish that moves committed offsets), that of topics before those of partitions
(deleting a topic, creating a partition's state), a partition's before that of the checkpoints (a roll). Every state is
checked: some process can always continue, so none of them waits for ever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ..checker.machine import InvariantError, Model, Program, Steps, Thing
from ..protocol.setup import PLAIN, Setup
from ..world.locks import Locks

DECISIONS, TOPICS, O, P, CHECKPOINTS = range(5)  # noqa: E741

# Which locks each kind of work nests, the outer one first. Two of a kind are taken one after another, without nesting.
NESTED: Mapping[str, tuple[tuple[int, ...], ...]] = {
    "decide": ((DECISIONS, O, CHECKPOINTS),),
    "make a state file while deciding": ((DECISIONS, TOPICS),),
    "look what is applied after a power loss": ((DECISIONS, P, CHECKPOINTS),),
    "commit offsets": ((O, CHECKPOINTS),),
    "apply": ((O, CHECKPOINTS), (P, CHECKPOINTS)),
    "delete a topic": ((TOPICS, P),),
    "clean": ((P, CHECKPOINTS), (O, CHECKPOINTS), (DECISIONS, CHECKPOINTS)),
}
# What a careless change could add: a read of the decision log under a partition's lock.
CARELESS = ((O, DECISIONS),)


def work(process: int, kind: str, setup: Setup) -> Steps:
    """Takes the locks of a kind of work, and lets them go from the inside."""
    chains = NESTED[kind]
    if kind == "apply" and not setup.keeps("no process waits for the decision log under a partition's lock"):
        chains = CARELESS
    for chain in range(len(chains)):
        for number in range(len(chains[chain])):
            yield "locks", "acquire", chains[chain][number], process
        for number in range(len(chains[chain]) - 1, -1, -1):
            yield "locks", "release", chains[chain][number], process


class Turns(Thing):
    """Which process waited, and how often others got the lock meanwhile, since the waiter has its turn."""

    reads = frozenset({"acquire_turn", "release_turn", "acquire", "release"})

    @classmethod
    def do_acquire_turn(cls, value: tuple[int, int, int], process: int) -> Any:
        """The lock for whose turn it is; any process that waits for it may get it."""
        turn, holder, _ = value
        return [((process, holder, 0), None)] if turn < 0 else []

    @classmethod
    def do_acquire(cls, value: tuple[int, int, int], process: int) -> Any:
        turn, holder, overtaken = value
        if holder >= 0:
            return []
        if turn not in (-1, process):
            overtaken += 1
            if overtaken > 1:
                raise InvariantError("I15", f"{turn} has its turn, and was overtaken {overtaken} times")
        return [((turn, process, overtaken), None)]

    @classmethod
    def do_release_turn(cls, value: tuple[int, int, int], process: int) -> Any:
        return ((-1, value[1], 0) if value[0] == process else value), None

    @classmethod
    def do_release(cls, value: tuple[int, int, int], process: int) -> Any:
        return ((value[0], -1, value[2]) if value[1] == process else value), None

    @classmethod
    def released(cls, value: tuple[int, int, int], process: int) -> Any:
        return (-1 if value[0] == process else value[0], -1 if value[1] == process else value[1], value[2])


def again_and_again(process: int, setup: Setup) -> Steps:
    """A process that takes the lock without a pause."""
    for _time in range(3):
        # A process that does not ask for its turn takes the lock whenever it is free.
        if process == 0 or setup.keeps("every waiter takes its turn"):
            yield "turns", "acquire_turn", process
        yield "turns", "acquire", process
        yield "turns", "release_turn", process
        yield "turns", "release", process


def model(
    processes: int = 3, kinds: Sequence[str] = tuple(NESTED), turns: bool = False, kills: int = 1, setup: Setup = PLAIN
) -> Model:
    """Processes at each kind of work; with `turns`, processes that all want one lock without a pause."""
    lives: dict[str, Sequence[Program | None]]
    if turns:
        lives = {f"process {process}": [partial(again_and_again, process, setup), None] for process in range(processes)}
    else:
        lives = {kind: [partial(work, process, kind, setup), None] for process, kind in enumerate(kinds)}
    return Model(things={"locks": (Locks, (-1,) * 5), "turns": (Turns, (-1, -1, 0))}, lives=lives, kills=kills)
