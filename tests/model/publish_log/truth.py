"""What must hold: invariants over the decisions that count, the objects, and what processes have reported.

A decision counts if it was the first one of its number. One that takes the place of a deleted one is void.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from ..checker.machine import InvariantError, Thing, Watch
from .entries import EMPTY, PARTS, Entry, Kind, State, Step, applied
from .objects import Held


class Facts(NamedTuple):
    """What is known outside of the protocol.

    Attributes:
        entries: the decisions that count.
        records: what the partition was given, by offset.
        refused: records of which an error has reported that they are not published.
    """

    entries: tuple[Entry, ...] = ()
    records: tuple[str, ...] = ()
    refused: frozenset[str] = frozenset()


@lru_cache(100_000)
def state_after(entries: tuple[Entry, ...]) -> State:
    """The fold of decisions."""
    return applied(state_after(entries[:-1]), entries[-1]) if entries else EMPTY


class Truth(Thing):
    """What processes report is compared with the facts."""

    reads = frozenset({"count", "published", "appended", "followed", "show"})

    @classmethod
    def do_count(cls, value: Facts) -> Any:
        """How many decisions count by now: not a part of any program, but for the comparison later."""
        return value, len(value.entries)

    @classmethod
    def do_published(cls, value: Facts, pub: str, number: int) -> Any:
        known = state_after(value.entries).known(pub)
        if known is None or known.number < number:
            raise InvariantError("P1", f"number {number} of {pub} was acknowledged, and is not in the log")
        return value, None

    @classmethod
    def do_appended(cls, value: Facts, records: tuple[str, ...]) -> Any:
        if not set(records) <= set(value.records):
            raise InvariantError("P1", f"{records} were acknowledged, and are not in the log")
        return value, None

    @classmethod
    def do_refused(cls, value: Facts, records: tuple[str, ...]) -> Any:
        new = value._replace(refused=value.refused | set(records))
        _check_refused(new)
        return new, None

    @classmethod
    def do_followed(cls, value: Facts, state: State, count: int) -> Any:
        """A process has followed, and began when so many decisions counted."""
        if state.number < count - 1:
            raise InvariantError("P5", f"decision {count - 1} was not found: {state}")
        if state != state_after(value.entries[: state.number + 1]):
            raise InvariantError("P5", f"{state} is no state of the store")
        return value, None

    @classmethod
    def do_show(cls, value: Facts, base: int, records: tuple[str, ...]) -> Any:
        """A reader has found records at an offset."""
        if value.records[base : base + len(records)] != records:
            raise InvariantError("P5", f"{records} were found at {base}, where others are")
        return value, None


def watch() -> Watch:
    """The observer of the log and all records."""
    return Watch("truth", ("log", "data"), _look)


def _look(facts: Facts, log: Held, data: Held) -> Facts:
    count = len(facts.entries)
    found = log.get(count)
    if found is not None:
        facts = _with(facts, found, data)
    if log.objects and log.objects[-1][0] >= len(facts.entries):
        raise InvariantError("P2", f"{log.objects[-1]} does not follow the other decisions")
    for piece in state_after(facts.entries).pieces:
        kind, key = piece.object
        if kind == "log":
            is_there = log.get(key) == facts.entries[key]
        else:
            is_there = data.get(key) == facts.records[piece.base : piece.end]
        if not is_there:
            raise InvariantError("P6", f"the object of {piece} is not there as it was")
    return facts


def _with(facts: Facts, entry: Entry, data: Held) -> Facts:
    """With one more decision that counts."""
    state = state_after(facts.entries)
    _check_known(state, entry)
    if entry.move is not None and entry.move[0] != state.committed:
        raise InvariantError("P3", f"{entry} moves from {entry.move[0]}, and {state.committed} is committed")
    records = facts.records
    if entry.adds is not None:
        (kind, key), _ = entry.adds
        new = entry.records if kind == "log" else data.get(key)
        if new is None:
            raise InvariantError("P6", f"{entry} names an object that is not there")
        if entry.base != state.end:
            raise InvariantError("P2", f"{entry} gives records offsets from {entry.base} on, not {state.end}")
        if set(new) & set(records):
            raise InvariantError("P1", f"{entry} publishes once more")
        records += new
    merged = entry.merged
    if merged is not None and not (
        state.replaces(merged) and data.get(merged.object[1]) == records[merged.base : merged.end]
    ):
        raise InvariantError("P2", f"{entry} replaces other records than those that are there")
    if entry.move is not None and entry.move[1] <= entry.move[0]:
        raise InvariantError("P10", f"{entry} moves the committed offset back")
    if entry.batch is not None and entry.batch.sequence != state.last_sequence(entry.batch.producer) + 1:
        raise InvariantError("P9", f"{entry} follows {state.batches}")
    if entry.step is not None and entry.step.kind is Kind.COMMIT:
        records += _committed(facts, state, entry.step)
    new_facts = Facts((*facts.entries, entry), records, facts.refused)
    _check_refused(new_facts)
    return new_facts


def _committed(facts: Facts, state: State, step: Step) -> tuple[str, ...]:
    """The records of a transaction, once it is committed; they are those of one instance, whole."""
    transaction = state.open_of(step.producer)
    assert transaction is not None
    records = tuple(record for part in transaction.parts for record in facts.entries[part].records)
    instance = records[0][:-1] if records else ""
    if records != tuple(f"{instance}{number}" for number in range(PARTS)) or transaction.move is None:
        raise InvariantError("P11", f"{step} commits {records}, and a move to {transaction.move}")
    if set(records) & set(facts.records):
        raise InvariantError("P1", f"{step} publishes once more")
    if transaction.move != state.committed + 1:
        raise InvariantError("P3", f"{step} moves to {transaction.move}, and {state.committed} is committed")
    return records


def _check_known(state: State, entry: Entry) -> None:
    if entry.known is None:
        return
    before = state.known(entry.known.pub)
    if before is not None and before.run != entry.known.run and before.run not in entry.known.replaced:
        raise InvariantError("P4", f"{entry} is of a run that was replaced by {before}")
    if before is not None and entry.known.run in before.replaced:
        raise InvariantError("P4", f"{entry} is of a run that was replaced by {before}")
    number = -1 if before is None else before.number
    if entry.known.number not in (number, number + 1) or (entry.adds is not None and entry.known.number == number):
        raise InvariantError("P1", f"{entry} follows number {number}")


def _check_refused(facts: Facts) -> None:
    if facts.refused & set(facts.records):
        raise InvariantError("P7", f"{facts.refused & set(facts.records)} were refused, and are published")
