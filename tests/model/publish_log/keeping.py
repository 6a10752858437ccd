"""Processes that keep the store small: they delete records, merge, and delete what nothing needs.

Models clean of pyspark_log/storage/publish_log/maintenance/cleaning.py, and merging.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..checker.machine import Steps
from .entries import Piece, RefusedError
from .process import LAST, Process, UnknownError
from .proposals import Want

ERRORS = (RefusedError, UnknownError)


def deleter(process: Process, start: int) -> Steps:
    """Deletes the records before an offset."""
    try:
        yield from process.decide(Want(start=start))
    except ERRORS:
        return


def merger(process: Process) -> Steps:
    """Merges the first two pieces."""
    try:
        yield from process.follow()
        pieces = process.state.pieces[:2]
        if len(pieces) < 2:
            return
        records: tuple[str, ...] = ()
        for number in range(2):
            kind, key = pieces[number].object
            found = yield kind, "get", key
            if found is None:
                return
            records += found.records if kind == "log" else found
        today = yield "clock", "get"
        yield "data", "put", (today, process.name), records
        merged = Piece(pieces[0].base, pieces[1].end, ("data", (today, process.name)))
        yield from process.decide(Want(pieces=pieces, merged=merged))
    except ERRORS:
        return


def cleaner(process: Process, passes: Sequence[Sequence[str]]) -> Steps:
    """Some passes, each with some of these parts in this order; what is not due is left out.

    "horizon": sets the horizon; "floor": sets a floor; "delete": deletes what earlier lists name; "list": lists what
    nothing needs any more. Any process may write a checkpoint; here it is the cleaner, and it is old enough at once.
    """
    try:
        for number in range(len(passes)):
            yield from _clean(process, passes[number])
    except ERRORS:
        return


def _clean(process: Process, parts: Sequence[str]) -> Steps:
    setup = process.setup
    began = yield "clock", "get"
    yield from process.follow()
    if "horizon" in parts:
        # As the horizon need not be right by any clock, the cleaner's is ahead.
        yield from process.decide(Want(horizon=began + 1))
    if "floor" in parts:
        yield from _raise_floor(process)
    if setup.keeps("publish log: the floor is written before a decision is deleted"):
        yield from _write_floor(process)
    if "delete" in parts:
        yield from _delete_listed(process, began)
    if "list" in parts:
        yield from _list(process, began)
    if not setup.keeps("publish log: the floor is written before a decision is deleted"):
        yield from _write_floor(process)


def _list(process: Process, began: int) -> Steps:
    yield from process.follow()
    now = yield "clock", "get"
    if not process.setup.keeps("publish log: the time of a list is read after the state"):
        now = began
    unused = yield from _unused(process)
    if unused:
        yield "unused", "put", (now, process.name), unused


def _raise_floor(process: Process) -> Steps:
    state = process.state
    if state.number > state.floor:
        if process.setup.keeps("publish log: there is a checkpoint at the floor"):
            yield "checkpoint", "put", state.number, state
            yield "checkpoint", "put", LAST, state.number
        if process.setup.keeps("publish log: the last floor is written before the next is decided"):
            yield from _write_floor(process)
        yield from process.decide(Want(floor=(state.floor, state.number)))


def _write_floor(process: Process) -> Steps:
    if process.state.floors:
        yield "floor", "put", process.state.floors, process.state.floor


def _delete_listed(process: Process, today: int) -> Steps:
    listed = yield "unused", "list"
    for at in range(len(listed)):
        if listed[at][0] >= today and process.setup.keeps("publish log: what is listed is deleted a day later"):
            continue
        names = yield "unused", "get", listed[at]
        for number in range(len(names or ())):
            kind, key = names[number]
            yield kind, "delete", key
        yield "unused", "delete", listed[at]


def _unused(process: Process) -> Steps:
    """The names of the objects that nothing needs, and never will."""
    state, setup = process.state, process.setup
    used = frozenset(piece.object for piece in state.pieces)
    if not setup.keeps("publish log: what a piece names stays"):
        used = frozenset()
    horizon = state.horizon
    if not setup.keeps("publish log: staged objects stay until the horizon"):
        horizon = 1_000
    floor = state.floor
    if not setup.keeps("publish log: decisions after the floor stay"):
        floor = state.number
    data = yield "data", "list"
    found = [("data", key) for key in data if key[0] < horizon]
    log = yield "log", "list"
    found += [("log", key) for key in log if key <= floor]
    checkpoints = yield "checkpoint", "list"
    last = state.floor if setup.keeps("publish log: the floor's checkpoint stays") else state.number
    found += [("checkpoint", key) for key in checkpoints if LAST < key < last]
    return tuple(name for name in found if name not in used)
