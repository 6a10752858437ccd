"""Decisions, and the state of the store, which is a fold of them: one partition, one group with one committed offset.

Models pyspark_log/storage/publish_log/entry.py and state.py.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Piece(NamedTuple):
    """Records of the partition.

    Attributes:
        base, end: the offsets that they have: [base, end).
        object: which object has them: its kind and its key.
    """

    base: int
    end: int
    object: tuple[str, Any]


class Known(NamedTuple):
    """What is known of a publisher: its newest run, those before, and the last number."""

    pub: str
    run: int
    replaced: tuple[int, ...] = ()
    number: int = -1


class Entry(NamedTuple):
    """A decision; what is None does not change.

    Attributes:
        number, token: as in the code.
        known: the publisher from then on.
        adds: the object of new records, and how many they are; ("log", number): they are in the decision itself.
        base: the offset of the first of them.
        records: those that are in the decision itself.
        move: the committed offset before and after.
        start: the first offset that is kept.
        merged: the object in which the records of some offsets are from then on, as a piece.
        horizon, floor: as in the code.
    """

    number: int
    token: Any
    known: Known | None = None
    adds: tuple[tuple[str, Any], int] | None = None
    base: int = 0
    records: tuple[str, ...] = ()
    move: tuple[int, int] | None = None
    start: int | None = None
    merged: Piece | None = None
    horizon: int | None = None
    floor: int | None = None


class State(NamedTuple):
    """The store after a decision.

    Attributes:
        number: of the decision; -1: there is none.
        start, end: of the partition.
        pieces: where its records are.
        publishers: what is known of them, by name.
        committed: the committed offset.
        horizon: no staged object of an earlier day is named any more.
        floor, floors: the last one, and how many there were.
    """

    number: int = -1
    start: int = 0
    end: int = 0
    pieces: tuple[Piece, ...] = ()
    publishers: tuple[Known, ...] = ()
    committed: int = 0
    horizon: int = 0
    floor: int = -1
    floors: int = 0

    def known(self, pub: str) -> Known | None:
        return next((one for one in self.publishers if one.pub == pub), None)

    def replaces(self, merged: Piece) -> bool:
        """Whether a merge would take the place of whole pieces."""
        found = [piece for piece in self.pieces if piece.end > merged.base and piece.base < merged.end]
        return bool(found) and (found[0].base, found[-1].end) == (merged.base, merged.end)


#: A new store.
EMPTY = State()


class DamagedError(Exception):
    """The log makes no sense, or a checkpoint that should be there is missing. An error for the caller."""


def applied(state: State, entry: Entry) -> State:
    """The state after one more decision. DamagedError: it does not follow."""
    state = state._replace(number=entry.number)
    if entry.known is not None:
        others = [one for one in state.publishers if one.pub != entry.known.pub]
        state = state._replace(publishers=tuple(sorted([*others, entry.known])))
    if entry.adds is not None:
        if entry.base != state.end:
            raise DamagedError
        place, count = entry.adds
        piece = Piece(entry.base, entry.base + count, place)
        state = state._replace(pieces=(*state.pieces, piece), end=piece.end)
    if entry.move is not None:
        state = state._replace(committed=entry.move[1])
    if entry.start is not None:
        left = tuple(piece for piece in state.pieces if piece.end > entry.start)
        state = state._replace(start=entry.start, pieces=left)
    if entry.merged is not None:
        merged = entry.merged
        if not state.replaces(merged):
            raise DamagedError
        others = [piece for piece in state.pieces if piece.base < merged.base or piece.end > merged.end]
        state = state._replace(pieces=tuple(sorted([*others, merged])))
    if entry.horizon is not None:
        state = state._replace(horizon=entry.horizon)
    if entry.floor is not None:
        state = state._replace(floor=entry.floor, floors=state.floors + 1)
    return state
