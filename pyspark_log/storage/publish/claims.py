"""Which run of a publisher may publish under its id: claiming, checking and taking over, and what a run takes back."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark_log.errors import (
    OutcomeUnknownError,
    PublisherFencedError,
    PublishError,
    PublishPendingError,
    PylogError,
    condition_of,
)
from pyspark_log.storage.fs.locking.timeouts import DEFAULT_TIMEOUT
from pyspark_log.storage.publish.applier import apply_decision, is_applied
from pyspark_log.storage.publish.checks import check_fenced, check_given, check_number
from pyspark_log.storage.publish.decision import NO_NUMBER, Decision
from pyspark_log.storage.publish.decision_log import DecisionLog
from pyspark_log.storage.publish.outcomes import failed_error, pending_error
from pyspark_log.storage.publish.prepare import discard
from pyspark_log.storage.publish.staging.plan import StagedPart


def claim(
    decisions: DecisionLog,
    publisher: str,
    run: str,
    number: int | None = None,
    *,
    location: str = "",
    take_over: bool = False,
) -> int:
    """Gives the id to `run`: it alone publishes under it, and earlier runs are fenced.

    What they have decided is applied before this returns. A run that already holds the publisher takes no lock.

    Args:
        decisions: the store's decision log.
        publisher: the id.
        run: the publisher's run.
        number: what the run is about to publish. With a number that is refused, no run is fenced.
        location: the run's checkpoint; "": no check.
        take_over: whether a publisher that belongs to another checkpoint becomes that of this one: its runs are fenced,
            and its numbers may start from any. Otherwise that is refused.

    Returns:
        The last number that was decided; NO_NUMBER if there is none.

    Raises:
        InvalidConfigError: a decision cannot hold the id, run or number.
        PublishNumberError: neither the next number nor the last one.
        PublisherFencedError: a newer run or another checkpoint holds the publisher, and `number` is given.
        PublishFailedError: it failed, and can be tried again.
        PublishPendingError: the same, as `number` (if it is given; else the publisher's last one) is decided already
            and could not be applied.
        ReadOnlyError: it is a broker's folder.
    """
    check_given(publisher, 0 if number is None else number, run, location)
    decisions.logs.check_writable()
    try:
        if take_over:
            _take_over(decisions, publisher, run, location)
        return _claim(decisions, publisher, run, number, location)
    except (PublishError, PublishPendingError):
        raise
    except Exception as error:
        what = f"a publish of {publisher!r}" if number is None else f"number {number} of publisher {publisher!r}"
        raise failed_error(what, error) from error


def _claim(decisions: DecisionLog, publisher: str, run: str, number: int | None, location: str) -> int:
    decisions.follow()
    last = decisions.last.get(publisher)
    if last is not None and last.run == run and (last.done or is_applied(decisions, last)):
        return last.number
    with decisions.hold() as writer:
        last = decisions.last.get(publisher)
        if number is not None:
            check_fenced(Decision(publisher, number, run=run, location=location), last, claimed=False)
            check_number(Decision(publisher, number), last)
        if last is None or last.run != run:
            writer.fence(publisher, run, location)
        last = decisions.last[publisher]
    finish(decisions, last, last.number if number is None else number)
    return last.number


def _take_over(decisions: DecisionLog, publisher: str, run: str, location: str) -> None:
    """Gives a publisher of another checkpoint to a run at this one; what it has decided is applied before."""
    while True:
        decisions.follow()
        last = decisions.last.get(publisher)
        if last is None or last.location in ("", location) or run in last.replaced:
            return
        apply_decision(decisions, last, DEFAULT_TIMEOUT)
        with decisions.hold() as writer:
            if decisions.last.get(publisher) == last:
                writer.take_over(last, run, location)
                return


def finish(decisions: DecisionLog, last: Decision, number: int) -> None:
    """Applies a publisher's last decision, before `number` is published.

    Raises:
        PublishPendingError: it could not be applied, and is that very number.
        PublishFailedError: it could not be applied, and comes before it.
    """
    try:
        apply_decision(decisions, last, DEFAULT_TIMEOUT)
    except Exception as error:
        pending = pending_error(last.publisher, last.number, error)
        if number == last.number:
            raise pending from error
        raise failed_error(f"number {number} of publisher {last.publisher!r}", pending) from error


def check_claim(decisions: DecisionLog, publisher: str, run: str) -> None:
    """Checks, without a lock, that the run that has claimed a publisher still holds it. PublisherFencedError."""
    decisions.follow()
    check_fenced(Decision(publisher, NO_NUMBER, run=run), decisions.last.get(publisher), claimed=True)


def revoke(decisions: DecisionLog, publisher: str, number: int, parts: Sequence[StagedPart], run: str) -> bool:
    """Removes staged output after a failed call of `publish`, of a run that has claimed the publisher.

    After an OutcomeUnknownError it is unknown whether that call made the decision. This settles it.

    Returns:
        False: it was decided under that number, and nothing is removed.

    Raises:
        PublisherFencedError: another run holds the publisher by now. The number is not decided, and never will be by
            this run; what was staged is removed.
        OutcomeUnknownError: it is still unknown. Either the call can be repeated, or another run holds the publisher,
            and only the topics show which of the two has decided the number (`__cause__`).
    """
    try:
        with decisions.hold():
            last = decisions.last.get(publisher)
            fenced = _refusal(Decision(publisher, number, run=run), last)
            decided = last is not None and last.number >= number
    except (PylogError, OSError) as error:
        raise OutcomeUnknownError(
            f"whether number {number} of publisher {publisher!r} is decided could not be determined now: "
            f"[{condition_of(error)}] {error}"
        ) from error
    if fenced is not None and (decided or last is None):
        raise OutcomeUnknownError(
            f"whether number {number} of publisher {publisher!r} was decided by this run can no longer be determined: "
            f"[{fenced.condition}] {fenced}"
        ) from fenced
    if decided:
        return False
    discard(decisions.logs, parts)
    if fenced is not None:
        raise fenced
    return True


def _refusal(wanted: Decision, last: Decision | None) -> PublisherFencedError | None:
    """The error if a run that had claimed its publisher is fenced; None: it is not."""
    try:
        check_fenced(wanted, last, claimed=True)
    except PublisherFencedError as error:
        return error
    return None


def last_number(decisions: DecisionLog, publisher: str) -> int | None:
    """The last number that a publisher has published; None if there is none."""
    decisions.follow()
    last = decisions.last.get(publisher)
    return None if last is None or last.number == NO_NUMBER else last.number
