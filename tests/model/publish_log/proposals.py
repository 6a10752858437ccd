"""What may be decided in a state.

Models publish of pyspark_log/storage/publish_log/proposals.py, and claim of proposals.py.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..protocol.setup import Setup
from . import serving
from .entries import Entry, Known, Piece, RefusedError, Served, State


class Want(NamedTuple):
    """What a process wants to be decided; what is None is not wanted.

    Attributes:
        pub, run, number: of a publisher; number None: the run claims it; pub "": of none.
        again: the run that holds the publisher decides so once more, so that a number is taken.
        adds, records: as in Entry; the key of a staged object begins with its day.
        move, start: as in Entry.
        pieces, merged: what a merge replaces, and by what.
        horizon: as in Entry.
        floor: the floor before, and the new one.
        served: what a server decides; see serving.
    """

    pub: str = ""
    run: int = 0
    number: int | None = None
    again: bool = False
    adds: tuple[tuple[str, Any], int] | None = None
    records: tuple[str, ...] = ()
    move: tuple[int, int] | None = None
    start: int | None = None
    pieces: tuple[Piece, ...] = ()
    merged: Piece | None = None
    horizon: int | None = None
    floor: tuple[int, int] | None = None
    served: Served | None = None


def proposed(setup: Setup, state: State, want: Want, token: Any) -> Entry | None:
    """The decision that is wanted, made for a state; None: there is nothing to decide. RefusedError."""
    entry = Entry(state.number + 1, token)
    if want.served is not None:
        return serving.proposed(setup, state, want.served, entry._replace(records=want.records))
    if want.pub:
        known = _published(setup, state, want) if want.number is not None else _claimed(state, want)
        if known is None:
            return None
        entry = entry._replace(known=known)
    if want.move is not None:
        if want.move[0] != state.committed and setup.keeps("publish log: a publish checks each offset that it moves"):
            raise RefusedError
        entry = entry._replace(move=want.move)
    if want.adds is not None or want.records:
        place, count = want.adds or (("log", entry.number), len(want.records))
        _check_horizon(setup, state, place)
        entry = entry._replace(adds=(place, count), base=state.end, records=want.records)
    return (
        entry if want.start is want.merged is want.horizon is want.floor is None else _kept(setup, state, want, entry)
    )


def _kept(setup: Setup, state: State, want: Want, entry: Entry) -> Entry | None:
    """The same with what keeps the store small."""
    if want.merged is not None:
        is_there = set(want.pieces) <= set(state.pieces)
        if not is_there and setup.keeps("publish log: a merge checks that what it replaces is still there"):
            return None
        _check_horizon(setup, state, want.merged.object)
        return entry._replace(merged=want.merged)
    if want.start is not None and want.start > state.start:
        return entry._replace(start=want.start)
    if want.horizon is not None and want.horizon > state.horizon:
        return entry._replace(horizon=want.horizon)
    if want.floor is not None and want.floor[0] == state.floor:
        return entry._replace(floor=want.floor[1])
    return None


def _claimed(state: State, want: Want) -> Known | None:
    known = state.known(want.pub)
    if want.again:
        return known if known is not None and known.run == want.run else None
    if known is None:
        return Known(want.pub, want.run)
    if known.run == want.run:
        return None
    if want.run in known.replaced:
        raise RefusedError
    return known._replace(run=want.run, replaced=(*known.replaced, known.run))


def _published(setup: Setup, state: State, want: Want) -> Known | None:
    """What is known of the publisher after its publish; None: it is published already."""
    known = state.known(want.pub)
    assert want.number is not None
    if known is None:
        raise RefusedError
    if known.run != want.run and setup.keeps("publish log: a publish checks that its run holds the publisher"):
        raise RefusedError
    if known.number >= want.number and setup.keeps("publish log: a publish checks its number"):
        if known.number > want.number:
            raise RefusedError
        return None
    return known._replace(run=want.run, number=want.number)


def _check_horizon(setup: Setup, state: State, place: tuple[str, Any]) -> None:
    kind, key = place
    keeps_out = setup.keeps("publish log: no decision names an object from before the horizon")
    if kind == "data" and key[0] < state.horizon and keeps_out:
        raise RefusedError
