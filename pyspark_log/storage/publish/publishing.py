"""Publishes staged output atomically and exactly once.

Three steps. The manifest of the staged output is written. The decision is made: one synced record, before
which the publish does not exist and after which it is published, until an administrator sets it aside. The
decision is applied, partition by partition, by any process (applier.py).

A publisher is a name with consecutive numbers (a streaming query and its batch ids). The last number again
is a replay: it was published already and its output is dropped. The next number is new. Any other number
means that the publisher and the store no longer match, and is refused.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol

from pyspark_log.errors import (
    InvalidConfigError,
    LockTimeoutError,
    OutcomeUnknownError,
    PartlySetAsideError,
    PublishError,
    PublishFailedError,
    PublishPendingError,
    PylogError,
    SetAsideError,
    StagedOutputError,
    UnknownTopicError,
    condition_of,
)
from pyspark_log.storage.catalog import INTERNAL_TOPICS, PUBLISH_TOPIC
from pyspark_log.storage.compaction import compact_if_due
from pyspark_log.storage.fs.locking.timeouts import DEFAULT_TIMEOUT
from pyspark_log.storage.publish.applier import apply_decision, is_applied, remove_staged
from pyspark_log.storage.publish.claims import (
    check_fenced,
    check_given,
    check_log_dirs,
    check_number,
    check_owners,
    check_parts,
    finish,
)
from pyspark_log.storage.publish.decision import UNKNOWN, Decision
from pyspark_log.storage.publish.decision_log import DecisionLog
from pyspark_log.storage.publish.outcomes import failed_error, pending_error
from pyspark_log.storage.publish.pending import tidy
from pyspark_log.storage.publish.prepare import Output
from pyspark_log.storage.publish.staging import manifest
from pyspark_log.storage.publish.staging.staged_writer import StagedPart
from pyspark_log.storage.seam import NewPublish
from pyspark_log.types import OffsetStep, TopicPartition

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PublishResult:
    """The result of a publish.

    Attributes:
        decision: its number in the store's order of decisions.
        replayed: True: it had been published before, and what was handed in now was dropped.
        records: how many records it published (a replay: how many the first time).
    """

    decision: int
    replayed: bool
    records: int


class Participant(Protocol):
    """A change made atomically with a publish: a move of groups' committed offsets."""

    @property
    def steps(self) -> Sequence[OffsetStep]:
        """The moves, which the publish's manifest names."""

    def parts(self) -> list[StagedPart]:
        """The records that the publish adds for it. InvalidConfigError: the change is not valid."""

    def hold(self) -> AbstractContextManager[None]:
        """Locks what `check` reads. LockTimeoutError, after a short wait: the decision log's lock is held meanwhile."""

    def check(self) -> None:
        """Refuses a change that does not start from the current committed offsets. PublishError."""


class _Stage(Enum):
    """How far a publish has come."""

    BEFORE = 1  # its decision
    DECIDING = 2
    DECIDED = 3


def _nothing_was_added(error: Exception) -> bool:
    return isinstance(error, (PylogError, OSError)) and not isinstance(error, OutcomeUnknownError)


def publish(decisions: DecisionLog, new: NewPublish, participants: Sequence[Participant] = ()) -> PublishResult:
    """Makes staged output visible, exactly once; seam.Publishes.publish has the errors.

    Args:
        decisions: the store's decision log.
        new: what is published. Its steps are not looked at: they are a participant.
        participants: the changes made atomically with it.
    """
    check_given(new.publisher, new.number, new.run, new.location, new.plan)
    publishing = _Publish(decisions, new, participants)
    try:
        return publishing.run()
    except Exception as error:
        outcome = publishing.outcome(error)
        if outcome is error:
            raise
        raise outcome from error


class _Publish:
    """One call of `publish`: it prepares, decides and applies. The stage it has reached gives its error's meaning."""

    def __init__(self, decisions: DecisionLog, new: NewPublish, participants: Sequence[Participant]) -> None:
        """Takes the arguments of `publish`."""
        self._decisions, self._logs = decisions, decisions.logs
        self._wanted = Decision(
            new.publisher, new.number, run=new.run, location=new.location, plan=new.plan, one_off=new.one_off,
            about=new.about or UNKNOWN,
        )  # fmt: skip
        self._pieces, self._participants, self._claimed = new.parts, participants, new.claimed
        self._stage = _Stage.BEFORE
        # The number was decided already; an error before the decision does not change that.
        self._replays = False

    def run(self) -> PublishResult:
        """Publishes. Raises any error; `outcome` maps it."""
        output = self._prepare()
        before = _active_bases(self._decisions, self._wanted)
        decision, replayed = self._decided(output)
        self._apply(decision, replayed, output)
        self._tidy(decision)
        _compact_begun(self._decisions, self._wanted, before)
        return PublishResult(decision.offset, replayed, decision.records)

    def outcome(self, error: Exception) -> Exception:
        """Maps an error of `run` to one whose type says whether the output is published."""
        publisher, number = self._wanted.publisher, self._wanted.number
        if self._stage is _Stage.DECIDED:
            if isinstance(error, (SetAsideError, PublishPendingError)):
                return error
            return pending_error(publisher, number, error)
        if self._stage is _Stage.DECIDING and not _nothing_was_added(error):
            return OutcomeUnknownError(
                f"number {number} of publisher {publisher!r} is decided or not, which the same call again "
                f"finds out: [{condition_of(error)}] {error}"
            )
        if isinstance(error, (PublishError, InvalidConfigError)):
            return error
        if self._replays:
            return pending_error(publisher, number, error)
        return failed_error(f"number {number} of publisher {publisher!r}", error)

    def _prepare(self) -> Output:
        """Prepares what the decision names, and records it in `_wanted`."""
        self._decisions.follow()
        last = self._decisions.last.get(self._wanted.publisher)
        self._replays = _is_replay(self._wanted, last, self._claimed)
        pieces = [part for part in self._pieces if part.count]
        pieces += [part for other in self._participants for part in other.parts()]
        steps = [step for other in self._participants for step in other.steps]
        is_new = last is None or last.number != self._wanted.number  # A replay is dropped anyway.
        output = Output.make(self._logs, pieces, steps, gathers=is_new)
        self._wanted = replace(
            self._wanted,
            records=sum(part.count for part in self._pieces),
            places=output.places(),
            manifest=output.manifest,
            manifest_crc=output.manifest_crc,
            time=output.time,
        )
        return output

    def _decided(self, output: Output) -> tuple[Decision, bool]:
        """Makes the decision, or finds the earlier one (True); then removes files that no decision names."""
        wanted = self._wanted
        try:
            decision, replayed = self._decide(output)
        except PublishFailedError:
            # The call can be repeated with the same output.
            output.remove_made(self._logs)
            raise
        except PublishError:
            # Refused under the lock, so certainly not decided.
            output.drop(self._decisions, wanted.publisher)
            raise
        except Exception:
            if self._stage is _Stage.BEFORE:
                output.remove_made(self._logs)
            raise
        if not replayed:
            output.remove_gathered(self._logs)
            return decision, False
        output.drop(self._decisions, wanted.publisher)
        if decision.records != wanted.records:
            log.warning(
                "%s: number %d was published before with %d records; this attempt had %d, which were dropped",
                wanted.publisher,
                wanted.number,
                decision.records,
                wanted.records,
            )
        return decision, True

    def _decide(self, output: Output) -> tuple[Decision, bool]:
        deadline = time.monotonic() + DEFAULT_TIMEOUT
        decisions, wanted = self._decisions, self._wanted
        while True:
            with decisions.hold() as writer:
                last = decisions.last.get(wanted.publisher)
                check_fenced(wanted, last, self._claimed)
                check_number(wanted, last)
                if last is not None and wanted.number == last.number:
                    self._stage = _Stage.DECIDED
                    if wanted.run and wanted.run != last.run:
                        writer.fence(wanted.publisher, wanted.run)
                    return last, True
                if last is None or last.done or is_applied(decisions, last):
                    check_parts(self._logs, output.parts, wanted.manifest)
                    check_log_dirs(self._logs, wanted)
                    check_owners(self._logs, wanted)
                    try:
                        with contextlib.ExitStack() as held:
                            for other in self._participants:
                                held.enter_context(other.hold())
                                other.check()
                            done = [other for other in decisions.in_order() if other.offset in decisions.applied]
                            self._stage = _Stage.DECIDING
                            decision = writer.decide(wanted if last is None else _inheriting(wanted, last), done)
                            self._stage = _Stage.DECIDED
                        break
                    except LockTimeoutError:
                        # The process that a participant waits for must not block all other publishers.
                        if time.monotonic() > deadline:
                            raise
                        continue
            # The publisher's last decision is not finished. That comes first, and without the lock.
            finish(decisions, last, wanted.number)
        for finished in done:
            remove_staged(self._decisions, finished)
        return decision, False

    def _apply(self, decision: Decision, replayed: bool, output: Output) -> None:
        """Applies the decision. SetAsideError, PartlySetAsideError, or any error: it stays decided."""
        entries, staged = None, self._decisions.staged
        if not replayed:
            entries = output.entries(self._logs)
            for number in staged.keys() - self._decisions.undone.keys():
                del staged[number]  # Another process was faster.
            staged[decision.offset] = manifest.paths(entries)
        try:
            apply_decision(self._decisions, decision, DEFAULT_TIMEOUT, entries)
        except StagedOutputError:
            self._decisions.follow()
            _raise_if_set_aside(self._decisions, decision, replayed)
            raise
        _raise_if_set_aside(self._decisions, decision, replayed)

    def _tidy(self, decision: Decision) -> None:
        """Forgets the publisher if it has this one publish only."""
        if not self._wanted.one_off:
            return
        try:
            tidy(self._decisions, forget=self._wanted.publisher)
        except (PylogError, OSError) as error:
            # All of it is published; leftovers cost space until the next publisher removes them.
            log.warning(
                "%s: decision %d is done, but could not be tidied up: %s", self._logs.path, decision.offset, error
            )


def _is_replay(wanted: Decision, last: Decision | None, claimed: bool) -> bool:
    """Whether `wanted` is the publisher's last decision again; False if it would be refused."""
    if last is None or wanted.number != last.number:
        return False
    try:
        check_fenced(wanted, last, claimed)
        check_number(wanted, last)
    except PublishError:
        return False
    return True


def _active_bases(decisions: DecisionLog, decision: Decision) -> dict[TopicPartition, int]:
    """The base offsets of the active segments, for the internal partitions that a decision is written to."""
    found = {TopicPartition(PUBLISH_TOPIC, 0): decisions.active_base}
    for place in decision.places:
        if place.topic in INTERNAL_TOPICS:
            with contextlib.suppress(UnknownTopicError):
                state = decisions.logs.reader(place.topic, place.partition).state()
                found[TopicPartition(place.topic, place.partition)] = state.active_base
    return found


def _compact_begun(decisions: DecisionLog, decision: Decision, before: Mapping[TopicPartition, int]) -> None:
    """Compacts those partitions of which this publish has rolled a segment, so that their logs stay small."""
    try:
        for at, base in _active_bases(decisions, decision).items():
            if before.get(at, base) != base:
                compact_if_due(decisions.logs, at)
    except (PylogError, OSError) as error:
        # All of it is published. A failed call would be repeated, by a publisher that may be forgotten by now.
        log.warning("%s: could not determine whether to compact the decisions: %s", decisions.logs.path, error)


# ---- deciding


def _inheriting(wanted: Decision, last: Decision) -> Decision:
    """The publisher's next decision, with its earlier runs and checkpoint location."""
    run = wanted.run or last.run
    before = last if run == last.run else last.fenced_by(run, last.holder)
    location = wanted.location or last.location
    return replace(
        wanted,
        run=run,
        replaced=before.replaced,
        location=location,
        set_aside=last.set_aside,
        about=wanted.about.after(last.about),
    )


def _raise_if_set_aside(decisions: DecisionLog, decision: Decision, replayed: bool) -> None:
    """Raises if a decision was set aside, so that it is not applied, or not in all partitions.

    Raises:
        SetAsideError, PartlySetAsideError: it was made just now, and none of it appears, or only some of it.
    """
    last = decisions.last.get(decision.publisher)
    aside = None if last is None else last.set_aside
    if aside is None or aside.decision != decision.offset:
        return
    where = ", ".join(f"{place.topic}-{place.partition}" for place in aside.places)
    what = (
        f"decision {aside.decision} (publisher {decision.publisher!r}, number {aside.number}) could not be applied and "
        f"was set aside ({aside.origin}); what it had for {where} does not appear"
    )
    if not replayed:
        raise SetAsideError(what) if last is not None and last.is_revoked else PartlySetAsideError(what)
    log.warning("%s: %s", decisions.logs.path, what)
