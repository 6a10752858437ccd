"""A shared file system: a holder is cut off, its lock is given to another, and it continues unaware."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from ..checker.machine import InvariantError, Model, Program, Steps, Thing, Watch
from ..observers.partition import Seen, Witness, current, look, visible
from ..protocol.setup import Setup
from ..protocol.shared import LockLostError, SharedLogWriter
from ..world.log import File, Log
from ..world.server import Served, Server
from ..world.state_file import Intent, State, StateFile
from .one_partition import P, Script, Tasks, pieces

TWO_BATCHES = Setup(segment_size=2)


def client(process: int, setup: Setup, kinds: tuple[str, ...]) -> Steps:
    """Does tasks until none is left, or it finds that it was cut off."""
    access = SharedLogWriter(P, process, setup)
    while True:
        task = yield "script", "next", kinds
        if task is None:
            return
        kind, number = task
        try:
            if kind == "publish":
                decided = yield "script", "decide", kind
                yield from apply_all(access, len(decided))
            else:
                yield from append(access, ("a", number, process))
        except LockLostError:
            yield from access.give_up()
            return


def append(access: SharedLogWriter, what: tuple[Any, ...]) -> Steps:
    """Appends, and acknowledges it. LockLostError."""
    yield from access.enter()
    base = yield from access.append((what,))
    yield P + " seen", "acknowledge", base, (what,), True
    yield from access.leave()


def apply_all(access: SharedLogWriter, decided: int) -> Steps:
    """Applies what is decided. LockLostError."""
    for decision in range(decided):
        yield from access.enter()
        yield from access.apply(decision, pieces(decision, "publish"))
        yield from access.leave()


def last(setup: Setup) -> Steps:
    """A process that starts when all others are dead."""
    access = SharedLogWriter(P, 99, setup)
    decided = yield "script", "decided"
    yield from apply_all(access, len(decided))
    for number in range(2):
        yield from append(access, ("a", "last", number))


def settled(values: Mapping[str, Any]) -> None:
    """Each decision is there, once."""
    batches = visible(current(values[P].file), values[P].folder)
    there = [batch.what[:3] for batch in batches if batch.what and batch.what[0] == "d"]
    wanted = [("d", decision, number) for decision in range(len(values["script"].decided)) for number in range(2)]
    if there != wanted:
        raise InvariantError("I3", f"decided were {wanted}, applied are {there}")


def cut_off(values: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    """The holder's lock is given to another, as often as may be."""
    if values["losses"] and values[P].holder >= 0:
        yield {P: values[P]._replace(holder=-1), "losses": values["losses"] - 1}


def look_at(seen: Seen, value: Served) -> Seen:
    """The observer of a partition."""
    return look(seen, value.file, value.folder)


def model(
    clients: int = 2, tasks: int = 3, kinds: tuple[str, ...] = ("append", "publish"), losses: int = 1,
    stray: int = 0, begun: bool = False, kills: int = 0, setup: Setup = TWO_BATCHES,
) -> Model:  # fmt: skip
    """Clients that do tasks, of which some are cut off.

    Args:
        clients, tasks, kinds: how many, and what they do.
        losses: how often a lock is given to another.
        stray: where a segment is, above the end, made by a process that was suspended after its claim; 0: nowhere.
        begun: a publish was killed when it had written its intent.
        kills, setup: as in Model.
    """
    lives: dict[str, Sequence[Program | None]] = {
        f"client {process}": [partial(client, process, setup, kinds)] for process in range(clients)
    }
    folder = Log.new()
    if stray:
        folder = Log.calm(folder.with_names((stray, 1)).with_file(1, File()))
    state = State()
    if begun:
        whats = tuple(what for piece in pieces(0, "publish") for what in piece.whats)
        state = State(claimed=True, intent=Intent(0, whats, len(whats), 0, len(whats)))
    return Model(
        things={
            P: (Server, Served(StateFile.new(state), folder)),
            P + " seen": (Witness, Seen()),
            "script": (Script, Tasks(tasks, decided=("publish",) if begun else ())),
            "losses": (Thing, losses),
        },
        lives=lives,
        kills=kills,
        watches=[Watch(P + " seen", (P,), look_at)],
        steps=[("a host is cut off", cut_off)],
        alone=partial(last, setup),
        settled=settled,
    )
