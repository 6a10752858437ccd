"""Processes that read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..checker.machine import InvariantError, Steps
from .process import Process
from .truth import state_after


def reader(process: Process, follows: bool = True) -> Steps:
    """Follows, and reads all records; or reads by what it knows, as a task of a job that was planned long ago."""
    if follows:
        count = yield "truth", "count"
        yield from process.follow()
        yield "truth", "followed", process.state, count
    yield from read(process)


def read(process: Process) -> Steps:
    """Reads all records of the state; False: an object is missing, or has others, or may have."""
    state = process.state
    for number in range(len(state.pieces)):
        piece = state.pieces[number]
        kind, key = piece.object
        found = yield kind, "get", key
        if found is None:
            return False
        records = found.records if kind == "log" else found
        if len(records) != piece.end - piece.base:
            return False
        is_in_log = kind == "log"
        if not process.setup.keeps("publish log: a reader that has slept looks for a floor after a decision's records"):
            is_in_log = False
        if is_in_log and (yield from process.floor_after(state)) is not None:
            return False
        yield "truth", "show", piece.base, records
    return True


def last(process: Process) -> Steps:
    """A new process that is alone, and must find all that counts."""
    yield from process.follow()
    yield "end", "put", 0, process.state
    is_whole = yield from read(process)
    if not is_whole:
        raise InvariantError("P8", "a new process cannot read all records")


def settled(values: Mapping[str, Any]) -> None:
    """The last process has found all that counts."""
    if values["end"].get(0) != state_after(values["truth"].entries):
        raise InvariantError("P8", f"a new process finds another state: {values['end'].get(0)}")
