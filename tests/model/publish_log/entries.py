"""Decisions, and the state of the store, which is a fold of them: one partition, one group with one committed offset.

Models pyspark_log/storage/publish_log/entries/entry.py and pyspark_log/storage/publish_log/state.py.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple, TypeAlias


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


class Batch(NamedTuple):
    """A batch of an idempotent producer, with one record."""

    producer: str
    sequence: int


#: How many records a transaction has.
PARTS = 2


class Kind(Enum):
    """What a step of a transactional producer is."""

    INIT = "init"
    BEGIN = "begin"
    STAGE = "stage"
    COMMIT = "commit"


class Step(NamedTuple):
    """A step of a transactional producer.

    Attributes:
        kind, producer, epoch: as named.
        move: the committed offset that a staged part moves to. Of an INIT: not None if what is open stays so, which
            breaks a rule.
    """

    kind: Kind
    producer: str
    epoch: int
    move: int | None = None


class Term(NamedTuple):
    """Which run of a server coordinates (0: none), and since which decision."""

    run: int = 0
    since: int = -1


class Claim(NamedTuple):
    """A run coordinates from then on, in place of another; 0: none."""

    run: int
    before: int


class Commit(NamedTuple):
    """A coordinator commits an offset, in a term."""

    term: Term
    offset: int


#: What a server decides for its clients, or of itself.
Served: TypeAlias = Batch | Step | Claim | Commit


class Epoch(NamedTuple):
    """The last epoch of a transactional producer, and whether its transaction is committed."""

    producer: str
    epoch: int = -1
    is_committed: bool = False


class Open(NamedTuple):
    """An open transaction: the decisions that have its records, and the committed offset that it moves to."""

    producer: str
    parts: tuple[int, ...] = ()
    move: int | None = None


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
        batch: which batch of a producer the records are.
        coordinator: the run that coordinates from then on; 0: none.
        step: of a transactional producer; the records are staged by it.
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
    batch: Batch | None = None
    coordinator: int | None = None
    step: Step | None = None


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
        batches: the last one of each producer.
        coordinator: which run coordinates.
        epochs, open: of transactional producers.
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
    batches: tuple[Batch, ...] = ()
    coordinator: Term = Term()
    epochs: tuple[Epoch, ...] = ()
    open: tuple[Open, ...] = ()

    def last_sequence(self, producer: str) -> int:
        return next((batch.sequence for batch in self.batches if batch.producer == producer), -1)

    def epoch(self, producer: str) -> Epoch:
        return next((epoch for epoch in self.epochs if epoch.producer == producer), Epoch(producer))

    def open_of(self, producer: str) -> Open | None:
        return next((transaction for transaction in self.open if transaction.producer == producer), None)

    def known(self, pub: str) -> Known | None:
        return next((one for one in self.publishers if one.pub == pub), None)

    def replaces(self, merged: Piece) -> bool:
        """Whether a merge would take the place of whole pieces."""
        found = [piece for piece in self.pieces if piece.end > merged.base and piece.base < merged.end]
        return bool(found) and (found[0].base, found[-1].end) == (merged.base, merged.end)


#: A new store.
EMPTY = State()


class RefusedError(Exception):
    """What a process wants cannot be decided."""


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
    return _applied_of_server(state, entry)


def _applied_of_server(state: State, entry: Entry) -> State:
    if entry.batch is not None:
        others = [batch for batch in state.batches if batch.producer != entry.batch.producer]
        state = state._replace(batches=tuple(sorted([*others, entry.batch])))
    if entry.coordinator is not None and entry.coordinator != state.coordinator.run:
        state = state._replace(coordinator=Term(entry.coordinator, entry.number) if entry.coordinator else Term())
    return state if entry.step is None else _stepped(state, entry, entry.step)


def _stepped(state: State, entry: Entry, step: Step) -> State:
    """After a step of a transactional producer. What it commits has its offsets then."""
    others = tuple(transaction for transaction in state.open if transaction.producer != step.producer)
    epochs = tuple(epoch for epoch in state.epochs if epoch.producer != step.producer)
    transaction = state.open_of(step.producer) or Open(step.producer)
    if step.kind is Kind.INIT:
        is_kept = step.move is not None and transaction in state.open
        return state._replace(
            epochs=(*epochs, Epoch(step.producer, step.epoch)), open=(*others, transaction) if is_kept else others
        )
    if step.kind is Kind.COMMIT:
        parts = enumerate(transaction.parts, state.end)
        pieces = [Piece(end, end + 1, ("log", part)) for end, part in parts]
        return state._replace(
            epochs=(*epochs, Epoch(step.producer, step.epoch, is_committed=True)), open=others,
            pieces=(*state.pieces, *pieces), end=state.end + len(pieces),
            committed=state.committed if transaction.move is None else transaction.move,
        )  # fmt: skip
    if step.kind is Kind.STAGE:
        move = transaction.move if step.move is None else step.move
        transaction = transaction._replace(parts=(*transaction.parts, entry.number), move=move)
    return state._replace(open=(*others, transaction))
