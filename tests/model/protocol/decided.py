"""Applies what was decided, wherever it is not yet.

Models pyspark_log/storage/publish/applier.py, DecisionLog.follow, and help_apply of pending.py;
docs/internals/protocol.md,
"the steps of a publish", 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..checker.machine import Steps
from .decision_log import D, Known, Record, known, names_of, pieces
from .held_log import SyncError
from .setup import Setup
from .writer import LogWriter


class GivenUpError(Exception):
    """A step was given up and can be tried again: a file is missing, or a lock is not to be had."""


class Helper:
    """One process's access to a store: it applies what is decided.

    It keeps what it knows of the decision log, and which decisions it found to be applied.
    """

    def __init__(self, process: int, places: Sequence[str], setup: Setup, *, patient: bool = True) -> None:
        """`patient`: it waits for the locks of partitions."""
        self.process, self.setup, self.patient = process, setup, patient
        self.keeps = setup.keeps
        self.writers = {name: LogWriter(name, lock, process, setup) for lock, name in enumerate((D, *places))}
        self.known = Known()
        self.applied: frozenset[int] = frozenset()

    def frozen(self) -> Any:
        at = tuple(writer.frozen() for writer in self.writers.values() if writer.loaded or writer.file)
        return self.process, self.known, self.applied, at

    # ---- reading

    def follow(self) -> Steps:
        """Reads what was decided, up to the end; no lock is needed, but once after a power loss. SyncError."""
        state = yield D + " state", "look"
        if not state.booted and self.keeps("after a restart the log of decisions is recovered before it is read"):
            yield from self.writers[D].enter()
            yield from self.writers[D].leave()
            state = yield D + " state", "look"
        batches = yield D + " log", "readable", state
        if not self.keeps("no process acts on a decision beyond the end"):
            batches = yield D + " log", "written"
        self.known = known(batches)
        self.applied = frozenset(number for number in self.applied if number in dict(self.known.undone))

    def is_applied_in(self, record: Record, place: str) -> Steps:
        """Whether a partition has what a decision gives it; looked up without a lock."""
        state = yield place + " state", "look"
        return state.dead or state.applied >= record.decision

    def is_applied(self, record: Record) -> Steps:
        """Whether all of its partitions have it."""
        if record.decision in self.applied:
            return True
        for number in range(len(record.places)):
            if not (yield from self.is_applied_in(record, record.places[number])):
                return False
        self.applied |= {record.decision}
        return True

    def names_of(self, record: Record) -> tuple[Any, ...]:
        """What is staged for a decision."""
        return names_of(record, self.setup.files)

    # ---- applying

    def apply(self, record: Record) -> Steps:
        """Applies a decision where it is not yet; in each partition after those before it. GivenUpError, SyncError."""
        undone = dict(self.known.undone)
        if record.decision not in undone:
            return
        steps: tuple[Record, ...] = ()
        for number in sorted(undone):
            earlier = undone[number]
            ordered = self.keeps("earlier decisions are applied first") or earlier.pub == record.pub
            if number > record.decision or not set(earlier.places) & set(record.places) or not ordered:
                continue
            if (yield from self.is_applied(earlier)):
                continue
            if (yield from self._has_manifest(earlier)):
                steps = (*steps, earlier)
        order = yield "chance", "order", record.places
        for number in range(len(order)):
            yield from self._apply_up_to(order[number], steps)
        self.applied |= {record.decision}

    def _has_manifest(self, record: Record) -> Steps:
        """Whether a decision's files are there; they may be gone if it was finished meanwhile. GivenUpError."""
        if (yield "staging", "has", ("manifest", record.content)):
            return True
        log = self.writers[D]
        yield from log.enter()
        yield from self.follow()
        yield from log.leave()
        if record.decision in dict(self.known.undone):
            raise GivenUpError(f"the manifest of {record} is missing")
        return False

    def _apply_up_to(self, place: str, steps: Sequence[Record]) -> Steps:
        for number in range(len(steps)):
            record = steps[number]
            if place not in record.places or (yield from self.is_applied_in(record, place)):
                continue
            writer = self.writers[place]
            if not (yield from self._enter(writer)):
                continue
            try:
                yield from self._apply_in(writer, record)
            except (SyncError, GivenUpError):
                yield from writer.leave()
                raise
            yield from writer.leave()

    def _enter(self, writer: LogWriter) -> Steps:
        """Takes a partition's lock; False if it is dead. GivenUpError."""
        if self.patient:
            return (yield from writer.enter())
        if not (yield "locks", "try", writer.lock, self.process):
            raise GivenUpError("it is locked")
        return (yield from writer.entered())

    def _apply_in(self, writer: LogWriter, record: Record) -> Steps:
        if writer.state.applied < record.decision:
            there = yield "staging", "has", self.names_of(record)[0]
            if not there:
                raise GivenUpError(f"what {record} staged is missing")
        yield from writer.apply(record.decision, pieces(record))

    def help(self) -> Steps:
        """Applies what is decided and not visible yet; waits for no process. SyncError."""
        yield from self.follow()
        undone = dict(self.known.undone)
        for number in sorted(undone):
            if (yield from self.is_applied(undone[number])):
                continue
            try:
                yield from self.apply(undone[number])
            except GivenUpError:
                return
