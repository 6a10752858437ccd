"""What must never be seen of publishes: invariants over the decision log and all partitions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..checker.machine import InvariantError, Thing, Watch
from ..protocol.decision_log import DECIDES, Content, D, Known, Record, known, names_of
from ..world.log import Batch, Folder
from ..world.staging import staged
from ..world.state_file import Slots
from .partition import current, visible, watch


class Promise(NamedTuple):
    """What was acknowledged to a publisher is there; or is forgotten; or, with an outcome, is as an error reported."""

    pub: str
    number: int = -1
    decision: int = -1
    places: tuple[str, ...] = ()
    outcome: str = ""
    content: Content | None = None

    @property
    def is_forgotten(self) -> bool:
        return self.decision < 0 and not self.outcome


class Promises(Thing):
    """All promises that were made."""

    @classmethod
    def do_make(cls, value: frozenset[Promise], record: Record, wanted: Record) -> Any:
        """What `wanted` asks for is there, by the decision `record`."""
        if record.content.plan != wanted.content.plan:
            raise InvariantError("I8", f"{wanted} was dropped for a replay of {record}, which has other records")
        return value | {Promise(record.pub, record.number, record.decision, record.places)}, None

    @classmethod
    def do_tell(cls, value: frozenset[Promise], outcome: str, wanted: Record) -> Any:
        """An error has reported that what `wanted` asks for is published and pending, or not published, or unknown.

        It concerns its own call. What an earlier one has reported of the same output remains true.
        """
        if any(told.outcome and told.content == wanted.content for told in value):
            return value, None
        return value | {Promise(wanted.pub, wanted.number, outcome=outcome, content=wanted.content)}, None

    @classmethod
    def do_forget(cls, value: frozenset[Promise], pub: str) -> Any:
        """A publisher got the answer that it is forgotten."""
        return value | {Promise(pub)}, None


def watches(places: Sequence[str], files: bool = False, compacted: bool = False) -> list[Watch]:
    """The observers of a store's publishes; `files`: as in Setup; `compacted`: decisions may go."""
    names = [f"{name} {what}" for name in places for what in ("state", "log")]
    look = Watch("nothing", ("staging", "promises", D + " state", D + " log", *names), Look(tuple(places), files))
    log = [] if compacted else [watch(D, unique=False)]
    return [look, *log, *[watch(name) for name in places]]


class Look:
    """Checks I3, I4, I5, I7, I8, I9 and I17 over all partitions."""

    def __init__(self, places: tuple[str, ...], files: bool) -> None:
        self.places, self.files = places, files

    def __call__(self, nothing: None, *seen: Any) -> None:
        self.check(frozenset(), *seen)

    def check(
        self, void: frozenset[str], staging: Any, promises: Any, file: Slots, folder: Folder, *partitions: Any
    ) -> None:
        """Checks it; partitions that are `void` need not have anything."""
        state, batches = current(file), visible(current(file), folder)
        states = {
            place: current(partitions[2 * number]) for number, place in enumerate(self.places) if place not in void
        }
        # What a power loss hides in a partition comes back as soon as a process takes its lock.
        recovered = {place: state.applied for place, state in states.items() if state.booted}
        decided = decisions(batches)
        _check_promises(promises, recovered)
        _check_told(promises, decided, known(batches), state.booted)
        _check_numbers(decided)
        _check_runs(batches)
        if state.booted:
            _check_finished(decided, recovered)
            applied = {place: state.applied for place, state in states.items()}
            self._check_staged([record for _, record in known(batches).undone], applied, staged(staging))
        durable = _durable(folder)
        for number, place in enumerate(self.places):
            _check_traces(place, _traces(partitions[2 * number], partitions[2 * number + 1]), durable)

    def _check_staged(self, undone: Sequence[Record], applied: Mapping[str, int], names: Collection[Any]) -> None:
        for record in undone:
            needed = any(applied.get(place, record.decision) < record.decision for place in record.places)
            if needed and not set(names_of(record, self.files)).issubset(names):
                raise InvariantError("I9", f"{record} is not applied, and what it staged is gone")


def decisions(batches: Iterable[Batch]) -> list[Record]:
    """The records that decide, in their order, each with its number."""
    return [
        record._replace(decision=batch.base + number)
        for batch in batches
        for number, record in enumerate(batch.what or ())
        if record is not None and record.decision == DECIDES
    ]


def _check_promises(promises: Iterable[Promise], applied: Mapping[str, int]) -> None:
    for promise in promises:
        for place in promise.places:
            if applied.get(place, promise.decision) < promise.decision:
                raise InvariantError("I7", f"{promise} was told, and {place} is at {applied[place]}")


def _check_told(promises: Collection[Promise], decided: Iterable[Record], now: Known, booted: bool) -> None:
    """What errors have reported is true. After a power loss a decision may be hidden until its log is recovered."""
    there = {record.content for record in decided}
    for told in promises:
        if told.outcome == "not" and told.content in there:
            raise InvariantError("I17", f"{told} was told not to be published, and is decided")
        last = now.of(told.pub)
        if told.outcome == "pending" and booted and (last is None or last.number < told.number):
            raise InvariantError("I17", f"{told} was told to be published, and is not decided")


def _check_numbers(decided: Iterable[Record]) -> None:
    numbers: dict[str, int] = {}
    for record in decided:
        before = numbers.get(record.pub)
        if before is not None and record.number != before + 1:
            raise InvariantError("I5", f"{record.pub} decided {record.number} after {before}")
        numbers[record.pub] = record.number


def _check_runs(batches: Iterable[Batch]) -> None:
    runs: dict[str, list[str]] = {}
    locations: dict[str, str] = {}
    for record in (record for batch in batches for record in batch.what or () if record is not None):
        location = locations[record.pub] = locations.get(record.pub, "") or record.location
        if record.location not in ("", location):
            raise InvariantError("I8", f"{record.location} wrote, and {record.pub} is of {location}")
        had = runs.setdefault(record.pub, [])
        if record.run in had[:-1]:
            raise InvariantError("I8", f"run {record.run} of {record.pub} wrote after it was replaced: {had}")
        if record.run and record.run not in had:
            had.append(record.run)


def _check_finished(decided: Sequence[Record], applied: Mapping[str, int]) -> None:
    for record in decided:
        later = [other for other in decided if other.pub == record.pub and other.number > record.number]
        missing = [place for place in record.places if applied.get(place, record.decision) < record.decision]
        if later and missing:
            raise InvariantError("I5", f"{later[0]} was decided before {record} was applied in {missing}")


def _check_traces(place: str, traces: Iterable[tuple[int, Any]], durable: Mapping[int, Record | None]) -> None:
    for decision, content in traces:
        record = durable.get(decision)
        other = record is not None and content not in (None, record.content)
        if decision not in durable or other:
            raise InvariantError("I4", f"{place} has a trace of decision {decision}, which is not on the disk")


def _durable(folder: Folder) -> dict[int, Record | None]:
    """The records of decisions that are on the disk; None for a decision that was compacted away."""
    found: dict[int, Record | None] = {}
    for _, file in folder.files:
        for batch in file.synced:
            if batch is not None and batch.what is not None:
                for number, record in enumerate(batch.what):
                    found[batch.base + number] = record
    return found


def _traces(file: Slots, folder: Folder) -> Iterable[tuple[int, Any]]:
    """Decisions that a partition bears a trace of, with their content where it is known."""
    for slot in file.slots:
        for state in (slot.synced, *slot.pending):
            if state is not None and state.intent is not None:
                yield state.intent.decision, None
    for batch in visible(current(file), folder):
        if batch.what is not None and batch.what[0] == "d":
            yield batch.what[1], batch.what[4]
