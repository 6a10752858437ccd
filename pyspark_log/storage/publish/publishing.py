"""Publishes staged output: all of it appears, once, or nothing does.

Three steps. The manifest of the staged output is written. The decision is made: one synced record, before
which the publish does not exist and after which nothing can undo it. The decision is applied, partition by
partition, by whoever comes by (decided.py).

A publisher is a name with consecutive numbers (a streaming query and its batch ids). The last number again
is a replay: it was published already and its output is dropped. The next number is new. Any other number
means that the publisher and the store do not belong together any more, and is refused.
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
    PublisherFencedError,
    PublishError,
    PublishFailedError,
    PublishPendingError,
    PylogError,
    SetAsideError,
    StagedOutputError,
    UnknownTopicError,
    condition_of,
)
from pyspark_log.storage.catalog import INTERNAL_TOPICS, PUBLISH_TOPIC, STATE_FOLDER
from pyspark_log.storage.compaction import compact_if_due
from pyspark_log.storage.fs import DEFAULT_TIMEOUT, is_shared
from pyspark_log.storage.log import this_boot
from pyspark_log.storage.publish import manifest
from pyspark_log.storage.publish.applier import (
    apply_decision,
    is_applied,
    remove_staged,
    seems_applied,
)
from pyspark_log.storage.publish.checks import check_fenced, check_given, check_log_dirs, check_number, check_parts
from pyspark_log.storage.publish.decision import NO_NUMBER, Decision
from pyspark_log.storage.publish.decision_log import DecisionLog
from pyspark_log.storage.publish.prepare import Output, discard
from pyspark_log.storage.publish.staging import StagedPart
from pyspark_log.types import OffsetStep, TopicPartition

log = logging.getLogger(__name__)

# How long a passer-by waits for a partition's lock, in seconds; its holder is at work on it anyway.
_HELP_TIMEOUT = 0.05


@dataclass(frozen=True, slots=True)
class PublishResult:
    """How a publish ended.

    Attributes:
        decision: its number in the store's order of decisions.
        replayed: True: it had been published before, and what was handed in now was dropped.
        records: how many records it published (a replay: how many the first time).
    """

    decision: int
    replayed: bool
    records: int


class Participant(Protocol):
    """What takes place together with a publish, or not at all: a move of groups' committed offsets."""

    @property
    def steps(self) -> Sequence[OffsetStep]:
        """The moves, which the publish's manifest names."""

    def parts(self) -> list[StagedPart]:
        """The records that the publish adds for it. InvalidConfigError: it is none that can take place."""

    def hold(self) -> AbstractContextManager[None]:
        """Keeps what `check` looks at as it is. LockTimeoutError, soon: the lock of all decisions is held meanwhile."""

    def check(self) -> None:
        """Refuses it, if it does not start from what is there. PublishError."""


class _Stage(Enum):
    """How far a publish has come."""

    BEFORE = 1  # its decision
    DECIDING = 2
    DECIDED = 3


def _tells_that_nothing_was_added(error: Exception) -> bool:
    return isinstance(error, (PylogError, OSError)) and not isinstance(error, OutcomeUnknownError)


def _failed(what: str, error: Exception) -> PublishFailedError:
    condition = condition_of(error)
    message = f"{what} is not decided, and the same call can be made again: [{condition}] {error}"
    return PublishFailedError(message, condition, getattr(error, "retriable", False))


def _pending(publisher: str, number: int, error: Exception) -> PublishPendingError:
    condition = condition_of(error)
    message = (
        f"number {number} of publisher {publisher!r} is decided and appears as soon as it can be written, by the next "
        "process that publishes or reads, or by `pylog recover`; do not publish its records again. "
        f"In the way: [{condition}] {error}"
    )
    return PublishPendingError(message, condition, getattr(error, "retriable", False))


def publish(
    decisions: DecisionLog,
    publisher: str,
    number: int,
    parts: Sequence[StagedPart],
    *,
    participants: Sequence[Participant] = (),
    run: str = "",
    claimed: bool = False,
    location: str = "",
    plan: str = "",
    one_off: bool = False,
    sync: bool = True,
) -> PublishResult:
    """Makes staged output visible, exactly once. Returns when all of it is there, and durable unless told not to sync.

    The type of an error says what became of it. An interrupt says nothing: as after OutcomeUnknownError the same call
    again tells.

    Args:
        decisions: of the store.
        publisher: who publishes; any text.
        number: which of its publishes this is; consecutive, from any start.
        parts: what StagedWriter.finish gave, of all tasks, in the order in which it is to appear.
        participants: what takes place with it, or not at all.
        run: which run of the publisher this is. A newer run fences the ones before it; "" leaves that out.
        claimed: the run has claimed the publisher, so that any other run that has it is a newer one.
        location: the publisher's checkpoint. A publisher at another one is refused; "" leaves that out.
        plan: what tells the output that is planned under this number from any other. A replay with another plan than
            the number was published with is refused; "" leaves that out.
        one_off: the publisher has this one publish only, and is forgotten when this call succeeds (if it is killed
            before that, when the store is cleaned).
        sync: False leaves out the syncs. It is as exact as ever while the machine stays up. After a power loss it may
            be there not at all, in part, or twice, and its number be expected again; nothing else is harmed.

    Raises:
        PublishError: this call has published nothing, and nothing of it will appear. As
            PublishFailedError: something failed (the disk, a lock of the decision log, a publish of the same publisher
                that must come first); what was staged is kept, so the same call can be made again. All others are
                refusals, and what was staged is removed:
            PublishNumberError: neither the next number nor the last one, or the last one with another plan.
            PublisherFencedError: a newer run, or another checkpoint, has the publisher's id.
            OffsetConflictError: a group's position is not the one that the publish started from.
            StagedOutputError: staged output is gone, or its topic is.
            SetAsideError: an administrator has set it aside before anything of it appeared.
            PublishError itself: the output is in too many pieces.
        InvalidConfigError: the same, for arguments: a position is moved twice, or is none that can be committed, or
            is to move without syncing; or a text or number is none that a decision can hold.
        PublishPendingError: it is decided, and appears as soon as it can be written; as
            PartlySetAsideError: some of it never does, as an administrator has set it aside.
        OutcomeUnknownError: it is decided or not; the same call again tells, as a replay is answered.
    """
    check_given(publisher, number, run, location, plan)
    if participants and not sync:
        raise InvalidConfigError("a publish that moves positions of groups must be synced, lest they move without it")
    wanted = Decision(publisher, number, run=run, location=location, plan=plan, one_off=one_off)
    sync = sync or is_shared(f"{decisions.logs.path}/{STATE_FOLDER}")
    publishing = _Publish(decisions, wanted, parts, participants, claimed=claimed, sync=sync)
    try:
        return publishing.run()
    except Exception as error:
        outcome = publishing.outcome(error)
        if outcome is error:
            raise
        raise outcome from error


class _Publish:
    """One call of `publish`: it prepares, decides and applies. How far it has come tells what its error means."""

    def __init__(
        self,
        decisions: DecisionLog,
        wanted: Decision,
        pieces: Sequence[StagedPart],
        participants: Sequence[Participant],
        *,
        claimed: bool,
        sync: bool,
    ) -> None:
        """The arguments are those of `publish`; `wanted` has some of them."""
        self._decisions, self._logs = decisions, decisions.logs
        self._wanted, self._pieces, self._participants = wanted, pieces, participants
        self._claimed, self._sync = claimed, sync
        self._stage = _Stage.BEFORE
        # The number was decided before, so an error before the decision changes nothing about that.
        self._replays = False

    def run(self) -> PublishResult:
        """Publishes; any error, which `outcome` explains."""
        output = self._prepare()
        before = _active_bases(self._decisions, self._wanted)
        decision, replayed = self._decided(output)
        self._apply(decision, replayed, output)
        self._tidy(decision)
        _compact_begun(self._decisions, self._wanted, before)
        return PublishResult(decision.offset, replayed, decision.records)

    def outcome(self, error: Exception) -> Exception:
        """What the caller is to get for an error of `run`: one whose type says whether it is published."""
        publisher, number = self._wanted.publisher, self._wanted.number
        if self._stage is _Stage.DECIDED:
            if isinstance(error, (SetAsideError, PublishPendingError)):
                return error
            return _pending(publisher, number, error)
        if self._stage is _Stage.DECIDING and not _tells_that_nothing_was_added(error):
            return OutcomeUnknownError(
                f"number {number} of publisher {publisher!r} is decided or not, which the same call again "
                f"finds out: [{condition_of(error)}] {error}"
            )
        if isinstance(error, (PublishError, InvalidConfigError)):
            return error
        if self._replays:
            return _pending(publisher, number, error)
        return _failed(f"number {number} of publisher {publisher!r}", error)

    def _prepare(self) -> Output:
        """Makes ready what the decision names, and says in `_wanted` what that is."""
        self._decisions.follow()
        last = self._decisions.last.get(self._wanted.publisher)
        self._replays = _is_replay(self._wanted, last, self._claimed)
        pieces = [part for part in self._pieces if part.count]
        pieces += [part for other in self._participants for part in other.parts()]
        steps = [step for other in self._participants for step in other.steps]
        is_new = last is None or last.number != self._wanted.number  # A replay is dropped anyway.
        output = Output.make(self._logs, pieces, steps, gathers=is_new, sync=self._sync)
        self._wanted = replace(
            self._wanted, records=sum(part.count for part in self._pieces), places=output.places(),
            manifest=output.manifest, manifest_crc=output.manifest_crc,
            time=output.time, boot="" if self._sync else this_boot().hex(),
        )  # fmt: skip
        return output

    def _decided(self, output: Output) -> tuple[Decision, bool]:
        """Makes the decision, or finds the one that was made before (True), and removes what nothing names then."""
        wanted = self._wanted
        try:
            decision, replayed = self._decide(output)
        except PublishFailedError:
            # The call can be made again with what it handed in.
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
                wanted.publisher, wanted.number, decision.records, wanted.records,
            )  # fmt: skip
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
                        writer.take_over(wanted.publisher, wanted.run)
                    return last, True
                if last is None or last.done or is_applied(decisions, last):
                    check_parts(self._logs, output.parts, wanted.manifest)
                    check_log_dirs(self._logs, wanted)
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
                        # The process that a participant waits for must not hold up all other publishers, too.
                        if time.monotonic() > deadline:
                            raise
                        continue
            # The publisher's last decision is not finished. That comes first, and without the lock.
            _finish(decisions, last, wanted.number)
        for finished in done:
            remove_staged(self._decisions, finished)
        return decision, False

    def _apply(self, decision: Decision, replayed: bool, output: Output) -> None:
        """Applies the decision. SetAsideError, PartlySetAsideError, or any error: it is decided all the same."""
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
            _tell_if_aside(self._decisions, decision, replayed)
            raise
        _tell_if_aside(self._decisions, decision, replayed)
        if replayed and self._sync and decision.boot:
            _settle(self._decisions, decision)

    def _tidy(self, decision: Decision) -> None:
        """Forgets a publisher that has this one publish only."""
        if not self._wanted.one_off:
            return
        try:
            tidy(self._decisions, forget=self._wanted.publisher, sync=self._sync)
        except (PylogError, OSError) as error:
            # All of it is published; what is left over costs space until the next one tidies up.
            log.warning(
                "%s: decision %d is done, but could not be tidied up: %s", self._logs.path, decision.offset, error
            )


def _is_replay(wanted: Decision, last: Decision | None, claimed: bool) -> bool:
    """Whether what is wanted is what the publisher has decided last; False if it would be refused."""
    if last is None or wanted.number != last.number:
        return False
    try:
        check_fenced(wanted, last, claimed)
        check_number(wanted, last)
    except PublishError:
        return False
    return True


def _active_bases(decisions: DecisionLog, decision: Decision) -> dict[TopicPartition, int]:
    """Where the active segments begin of the engine's own partitions that a decision is written to."""
    found = {TopicPartition(PUBLISH_TOPIC, 0): decisions.active_base}
    for place in decision.places:
        if place.topic in INTERNAL_TOPICS:
            with contextlib.suppress(UnknownTopicError):
                state = decisions.logs.reader(place.topic, place.partition).state()
                found[TopicPartition(place.topic, place.partition)] = state.active_base
    return found


def _compact_begun(decisions: DecisionLog, decision: Decision, before: Mapping[TopicPartition, int]) -> None:
    """Whoever begins a segment of those partitions compacts the closed ones, so that their logs stay small."""
    try:
        for at, base in _active_bases(decisions, decision).items():
            if before.get(at, base) != base:
                compact_if_due(decisions.logs, at)
    except (PylogError, OSError) as error:
        # All of it is published. A call that fails would be made again, by a publisher that may be forgotten by now.
        log.warning("%s: it could not be found out whether to compact the decisions: %s", decisions.logs.path, error)


def take_back(decisions: DecisionLog, publisher: str, number: int, parts: Sequence[StagedPart], run: str) -> bool:
    """Removes staged output after a call of `publish` that failed, of a run that has claimed the publisher.

    After an OutcomeUnknownError nobody knows at first whether that call made the decision. This finds out, for good.

    Returns:
        False: it was decided under that number, and nothing is removed.

    Raises:
        PublisherFencedError: another run has the publisher by now. The number is not decided, and never will be by
            this run; what was staged is removed.
        OutcomeUnknownError: it could not be found out. Either it can be asked again, or another run has the publisher,
            and only the topics tell which of the two has decided the number (`__cause__`).
    """
    try:
        with decisions.hold():
            last = decisions.last.get(publisher)
            fenced = _refusal(Decision(publisher, number, run=run), last)
            decided = last is not None and last.number >= number
    except (PylogError, OSError) as error:
        raise OutcomeUnknownError(
            f"whether number {number} of publisher {publisher!r} is decided could not be found out now: "
            f"[{condition_of(error)}] {error}"
        ) from error
    if fenced is not None and (decided or last is None):
        raise OutcomeUnknownError(
            f"whether number {number} of publisher {publisher!r} was decided by this run cannot be told any more: "
            f"[{fenced.condition}] {fenced}"
        ) from fenced
    if decided:
        return False
    discard(decisions.logs, parts)
    if fenced is not None:
        raise fenced
    return True


def _refusal(wanted: Decision, last: Decision | None) -> PublisherFencedError | None:
    """Why a run that had claimed its publisher is fenced; None: it is not."""
    try:
        check_fenced(wanted, last, claimed=True)
    except PublisherFencedError as error:
        return error
    return None


def claim(decisions: DecisionLog, publisher: str, run: str, number: int | None = None) -> int:
    """Makes `run` the one that publishes under an id: those before it are fenced from now on.

    What they have decided is applied before this returns. A run that has the publisher already takes no lock.

    Args:
        decisions: of the store.
        publisher: the id.
        run: of the publisher.
        number: what the run is about to publish. With a number that is refused it takes the publisher from nobody.

    Returns:
        The last number that was decided; NO_NUMBER if there is none.

    Raises:
        InvalidConfigError: an id, run or number is none that a decision can hold.
        PublishNumberError: neither the next number nor the last one.
        PublisherFencedError: a newer run has the publisher, and the number of this one is given.
        PublishFailedError: it failed, and can be tried again.
        PublishPendingError: the same, as `number` (if it is given; else the publisher's last one) is decided already
            and could not be applied.
        ReadOnlyError: it is a broker's folder.
    """
    check_given(publisher, 0 if number is None else number, run)
    decisions.logs.check_writable()
    try:
        return _claim(decisions, publisher, run, number)
    except (PublishError, PublishPendingError):
        raise
    except Exception as error:
        what = f"a publish of {publisher!r}" if number is None else f"number {number} of publisher {publisher!r}"
        raise _failed(what, error) from error


def _claim(decisions: DecisionLog, publisher: str, run: str, number: int | None) -> int:
    decisions.follow()
    last = decisions.last.get(publisher)
    if last is not None and last.run == run and (last.done or is_applied(decisions, last)):
        return last.number
    with decisions.hold() as writer:
        last = decisions.last.get(publisher)
        if number is not None:
            check_fenced(Decision(publisher, number, run=run), last, claimed=False)
            check_number(Decision(publisher, number), last)
        if last is None or last.run != run:
            writer.take_over(publisher, run)
        last = decisions.last[publisher]
    _finish(decisions, last, last.number if number is None else number)
    return last.number


def _finish(decisions: DecisionLog, last: Decision, number: int) -> None:
    """Applies a publisher's last decision, before `number` is published.

    Raises:
        PublishPendingError: it could not be applied, and is that very number.
        PublishFailedError: it could not be applied, and comes before it.
    """
    try:
        apply_decision(decisions, last, DEFAULT_TIMEOUT)
    except Exception as error:
        pending = _pending(last.publisher, last.number, error)
        if number == last.number:
            raise pending from error
        raise _failed(f"number {number} of publisher {last.publisher!r}", pending) from error


def check_claim(decisions: DecisionLog, publisher: str, run: str) -> None:
    """Looks, without a lock, whether the run that has claimed a publisher still has it. PublisherFencedError."""
    decisions.follow()
    check_fenced(Decision(publisher, NO_NUMBER, run=run), decisions.last.get(publisher), claimed=True)


def last_number(decisions: DecisionLog, publisher: str) -> int | None:
    """The last number that a publisher has published; None if there is none."""
    decisions.follow()
    last = decisions.last.get(publisher)
    return None if last is None or last.number == NO_NUMBER else last.number


def help_apply(decisions: DecisionLog) -> int:
    """Applies what was decided and is not visible yet, for publishers that died in between.

    Waits for nobody for long: a partition that is locked is left to its holder. A decision that cannot be applied now
    holds up no others than those behind it in the same partitions.

    Returns:
        How many decisions were found to need it.

    Raises:
        StagedOutputError, OSError, LogDamagedError: the first that a decision gave.
    """
    decisions.follow()
    waiting = [decision for decision in decisions.in_order() if not seems_applied(decisions, decision)]
    failed: PylogError | OSError | None = None
    timeout = _HELP_TIMEOUT
    for decision in waiting:
        try:
            apply_decision(decisions, decision, timeout)
        except LockTimeoutError as error:
            log.debug("decision %d is left to others: %s", decision.offset, error)
            timeout = 0.0  # Once is enough; what is free is still taken.
        except (PylogError, OSError) as error:
            failed = failed or error
    if failed is not None:
        raise failed
    return len(waiting)


def tidy(decisions: DecisionLog, forget: str | None = None, *, sync: bool = True) -> None:
    """Records which decisions are done, and removes what was staged for them.

    The publisher `forget` is no longer remembered. Only it may say so: while it lives it may come back to ask
    whether its publish took place.
    """
    decisions.follow()
    done = [decision for decision in decisions.in_order() if seems_applied(decisions, decision)]
    with decisions.hold() as writer:
        # As they are now: another run may have taken its publisher over meanwhile.
        done = [decisions.undone[decision.offset] for decision in done if decision.offset in decisions.undone]
        writer.finish(done, forget, sync=sync)
    for decision in done:
        remove_staged(decisions, decision)


# ---- deciding


def _inheriting(wanted: Decision, last: Decision) -> Decision:
    """The next decision of a publisher: it knows the runs before it, and where its checkpoint is."""
    run = wanted.run or last.run
    before = last if run == last.run else last.taken_over(run, last.holder)
    location = wanted.location or last.location
    return replace(wanted, run=run, replaced=before.replaced, location=location, set_aside=last.set_aside)


def _settle(decisions: DecisionLog, decision: Decision) -> None:
    """Makes durable what was published without syncing."""
    with decisions.hold() as writer:
        writer.settle()
    for place in decision.places:
        with contextlib.suppress(UnknownTopicError):
            appender = decisions.logs.appender(place.topic, place.partition)
            with appender.hold():
                appender.settle()


def _tell_if_aside(decisions: DecisionLog, decision: Decision, replayed: bool) -> None:
    """A decision that was set aside is not there, or not in all partitions.

    Raises:
        SetAsideError, PartlySetAsideError: it was made just now, and nothing of it appears, or some of it.
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
        raise SetAsideError(what) if last is not None and last.is_taken_back else PartlySetAsideError(what)
    log.warning("%s: %s", decisions.logs.path, what)
