"""Publishes: claims, decides, and tidies up.

Models pyspark_log/storage/publish/publishing.py and claims.py, and pyspark_log/storage/maintenance/janitor.py;
docs/internals/protocol.md, "the steps of a publish".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..checker.machine import Steps
from .decided import GivenUpError, Helper
from .decision_log import UNDECIDED, D, Record, taken_over
from .held_log import SyncError
from .setup import Setup


class NotPublishedError(Exception):
    """A publish was refused, or something failed before its decision: that call has published nothing."""


class RefusedError(NotPublishedError):
    """A publish is refused."""


class PendingError(Exception):
    """Something failed after the decision of a publish: it is published and will appear."""


class UnknownError(Exception):
    """Something failed while a publish was decided: it is published or not."""


#: How a publish can end that does not succeed.
OUTCOMES = (NotPublishedError, PendingError, UnknownError)

BEFORE, DECIDING, DECIDED = range(3)


class Publisher(Helper):
    """One process's access to a store: it decides, applies and helps.

    Attributes:
        stage: how far its publish has come.
    """

    def __init__(self, process: int, places: Sequence[str], setup: Setup, *, patient: bool = True) -> None:
        super().__init__(process, places, setup, patient=patient)
        self.stage = BEFORE

    def frozen(self) -> Any:
        return *super().frozen(), self.stage

    # ---- what is refused

    def _check_run(self, wanted: Record, last: Record, claimed: bool) -> None:
        """Refuses a run that was replaced, and a checkpoint that the publisher does not belong to. RefusedError."""
        fenced = wanted.run and (wanted.run in last.replaced or (claimed and wanted.run != last.run))
        if fenced and self.keeps("a run that was replaced decides nothing"):
            raise RefusedError(f"run {wanted.run} was replaced by {last.run}")
        elsewhere = wanted.location and last.location and wanted.location != last.location
        if elsewhere and self.keeps("another checkpoint decides nothing"):
            raise RefusedError(f"{wanted.pub} belongs to {last.location}")

    def _check_number(self, number: int, last: Record) -> None:
        """Takes only the last number and the next one. RefusedError."""
        unexpected = last.number >= 0 and number not in (last.number, last.number + 1)
        if unexpected and self.keeps("only the last number or the next one is taken"):
            raise RefusedError(f"number {number} after {last.number}")

    def _check_plan(self, wanted: Record, last: Record) -> None:
        """Takes the last number only for the same plan. RefusedError."""
        other = wanted.number == last.number and wanted.content.plan != last.content.plan
        if other and self.keeps("a replay with another plan is refused"):
            raise RefusedError(f"number {wanted.number} was published with other input")

    def _check_staged(self, wanted: Record) -> Steps:
        """What was staged is there. RefusedError."""
        names = self.names_of(wanted)
        if self.keeps("a publisher that decides looks for its manifest") and not (yield "staging", "has", names[-1]):
            raise RefusedError("the manifest is gone")
        if self.setup.files and self.keeps("a publisher that decides looks for its file"):
            there = yield "staging", "has", names[0]
            if not there:
                raise RefusedError("what was staged is gone")

    def before_deciding(self, wanted: Record) -> Steps:
        """What else must hold for a decision. RefusedError."""
        yield from ()

    def after_deciding(self) -> Steps:
        """Undoes what that has taken."""
        yield from ()

    # ---- publishing

    def claim(self, pub: str, run: str, number: int) -> Steps:
        """Lets `run` alone publish; earlier runs are fenced. RefusedError, SyncError, GivenUpError."""
        log = self.writers[D]
        yield from log.enter()
        try:
            yield from self.follow()
            last = self.known.of(pub) or Record(pub, -1, decision=UNDECIDED, done=True)
            self._check_run(Record(pub, number, run=run), last, False)
            self._check_number(number, last)
            if last.run != run:
                yield from self._append((taken_over(last, run),))
            last = self.known.of(pub)
        except (RefusedError, SyncError):
            yield from log.leave()
            raise
        yield from log.leave()
        yield from self.apply(last)

    def publish(self, wanted: Record, *, one_off: bool = False, claimed: bool = False) -> Steps:
        """Publishes, and promises that it is done, or what became of it.

        Args:
            wanted: what.
            one_off: its publisher is forgotten then.
            claimed: its run has claimed the publisher before.

        Raises:
            NotPublishedError, PendingError, UnknownError: what the publisher learns, in this type.
        """
        self.stage = BEFORE
        try:
            yield from self._publish(wanted, one_off, claimed)
        except (RefusedError, SyncError, GivenUpError) as error:
            outcome = self._outcome(error)
            yield "promises", "tell", outcome, wanted
            self.stage = BEFORE
            if isinstance(error, RefusedError):
                raise
            raise {"not": NotPublishedError, "pending": PendingError, "unknown": UnknownError}[outcome] from error
        self.stage = BEFORE

    def _outcome(self, error: Exception) -> str:
        """What an error means for the publish."""
        if self.stage == DECIDED:
            return "pending" if self.keeps("an error after the decision says that it is published") else "not"
        if self.stage == DECIDING and isinstance(error, SyncError):
            return "unknown" if self.keeps("an error of the decision's sync leaves it open") else "not"
        return "not" if self.keeps("an error before the decision says that nothing is published") else "pending"

    def _publish(self, wanted: Record, one_off: bool, claimed: bool) -> Steps:
        """Publishes. RefusedError, SyncError, GivenUpError."""
        names = self.names_of(wanted)
        for number in range(len(names)):
            yield "staging", "make", names[number]
            if self.keeps("the staging folder is synced before the decision"):
                yield "staging", "sync"
        try:
            decision, replayed = yield from self._decide(wanted, claimed)
        except RefusedError:
            last = self.known.of(wanted.pub)
            # A repeated call hands in the very files that the first may have decided.
            decided = last is not None and not last.done and last.content == wanted.content
            if not decided or not self.keeps("a refused publish leaves what is decided"):
                yield from self._remove((wanted,))
            raise
        if replayed and decision.content != wanted.content:
            yield from self._remove((wanted,))
        yield from self.apply(decision)
        yield "promises", "make", decision, wanted
        if one_off:
            yield from self.tidy(wanted.pub)
            yield "promises", "forget", wanted.pub

    def _decide(self, wanted: Record, claimed: bool) -> Steps:
        """Makes the decision, or finds that it was made before; True for the latter. RefusedError, SyncError."""
        log = self.writers[D]
        while True:
            yield from log.enter()
            try:
                yield from self.follow()
                last = self.known.of(wanted.pub)
                if last is not None:
                    self._check_run(wanted, last, claimed)
                    self._check_number(wanted.number, last)
                    self._check_plan(wanted, last)
                done: tuple[Record, ...] = ()
                if self._is_replay(wanted, last):
                    self.stage = DECIDED
                    if wanted.run != last.run and wanted.number == last.number:
                        yield from self._append((taken_over(last, wanted.run),))
                    found = last, True
                elif last is not None and not (yield from self._is_finished(last)):
                    found = None
                else:
                    decision, done = yield from self._decide_now(wanted, last)
                    found = decision, False
            except (RefusedError, SyncError):
                yield from log.leave()
                raise
            yield from log.leave()
            if found is not None:
                yield from self._remove(done)
                return found
            # That comes first, and without the lock.
            yield from self.apply(last)

    def _is_replay(self, wanted: Record, last: Record | None) -> bool:
        if last is None or wanted.number > last.number:
            return False
        return wanted.number < last.number or self.keeps("the last number again is a replay")

    def _is_finished(self, last: Record) -> Steps:
        if last.done or not self.keeps("the last decision is finished before the next is made"):
            return True
        return (yield from self.is_applied(last))

    def _decide_now(self, wanted: Record, last: Record | None) -> Steps:
        """Makes a decision; gives it, and those that are recorded as done with it. RefusedError, SyncError."""
        if last is not None:
            inherited = last if wanted.run == last.run else taken_over(last, wanted.run)
            wanted = wanted._replace(replaced=inherited.replaced)
        yield from self._check_staged(wanted)
        undone = dict(self.known.undone)
        done = tuple(undone[number] for number in sorted(undone) if number in self.applied)
        others = tuple(record._replace(done=True) for record in done if record.pub != wanted.pub)
        try:
            yield from self.before_deciding(wanted)
            self.stage = DECIDING
            base = yield from self._append((*others, wanted))
            self.stage = DECIDED
        except (RefusedError, SyncError):
            yield from self.after_deciding()
            raise
        yield from self.after_deciding()
        return wanted._replace(decision=base + len(others)), done

    def _append(self, records: Sequence[Record]) -> Steps:
        """Adds records in one batch, durably, and reads them. SyncError."""
        log = self.writers[D]
        sync = self.keeps("a decision is synced before the end moves")
        base = yield from log.append((tuple(records),), sync=sync, counts=(len(records),))
        yield from self.follow()
        return base

    # ---- afterwards

    def tidy(self, forget: str = "") -> Steps:
        """Records which decisions are done, removes what was staged for them, and forgets a publisher. SyncError."""
        yield from self.follow()
        undone = dict(self.known.undone)
        done: tuple[Record, ...] = ()
        for number in sorted(undone):
            if (yield from self.is_applied(undone[number])):
                done = (*done, undone[number])
        log = self.writers[D]
        yield from log.enter()
        try:
            yield from self.follow()
            undone = dict(self.known.undone)
            # Another run may have taken its publisher over meanwhile.
            fresh = self.keeps("what is done is recorded as it is known under the lock")
            done = tuple(undone[record.decision] if fresh else record for record in done if record.decision in undone)
            records = tuple(
                record._replace(forget=True) if record.pub == forget else record._replace(done=True) for record in done
            )
            last = self.known.of(forget)
            # Another process was faster with the record that it is done.
            if last is not None and last.done and self.keeps("a publisher is forgotten though another was faster"):
                records = (*records, last._replace(forget=True))
            if records:
                yield from self._append(records)
        except SyncError:
            yield from log.leave()
            raise
        yield from log.leave()
        yield from self._remove(done)

    def _remove(self, records: Sequence[Record]) -> Steps:
        """Removes what was staged."""
        for number in range(len(records)):
            names = self.names_of(records[number])
            for name in range(len(names)):
                yield "staging", "unlink", names[name]

    def sweep(self) -> Steps:
        """The janitor: removes what seems to be old and is not named by a decision. SyncError."""
        yield from self.follow()
        if self.known.undone:
            yield from self.tidy()
        log = self.writers[D]
        locked = self.keeps("the janitor holds the lock of decisions")
        if locked:
            yield from log.enter()
        yield from self.follow()
        named = frozenset(name for _, record in self.known.undone for name in self.names_of(record))
        names = yield "staging", "names"
        spare = self.keeps("the janitor spares what a decision names")
        names = tuple(name for name in names if not spare or name not in named)
        for number in range(len(names)):
            old = yield "chance", "choose", (True, False)
            if old:
                yield "staging", "unlink", names[number]
        if locked:
            yield from log.leave()
