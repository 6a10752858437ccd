"""Which run of a publisher may publish: one claims its id, takes over from the last one, takes back; what is refused.

The checks come before a publish is decided; the decision log's lock is held, so what they find stays true.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark_log.arguments import check_text, check_whole
from pyspark_log.config import LONG_MAX
from pyspark_log.errors import (
    InvalidConfigError,
    OutcomeUnknownError,
    PublisherFencedError,
    PublishError,
    PublishNumberError,
    PublishPendingError,
    PylogError,
    StagedOutputError,
    UnknownTopicError,
    condition_of,
)
from pyspark_log.storage.fs import files
from pyspark_log.storage.fs.clock import format_time
from pyspark_log.storage.fs.locking.timeouts import DEFAULT_TIMEOUT
from pyspark_log.storage.log.state import state_file
from pyspark_log.storage.log.state.partition_state import check_owner
from pyspark_log.storage.log_manager import LogManager
from pyspark_log.storage.publish.applier import apply_decision, is_applied, staging_folder
from pyspark_log.storage.publish.decision import NO_NUMBER, NO_ORIGIN, Decision, Origin
from pyspark_log.storage.publish.decision_log import DecisionLog
from pyspark_log.storage.publish.outcomes import failed_error, pending_error
from pyspark_log.storage.publish.prepare import discard
from pyspark_log.storage.publish.staging.staged_writer import StagedPart


def check_given(publisher: str, number: int = 0, *texts: str) -> None:
    """Refuses values that could be written to a decision but never read again. InvalidConfigError."""
    check_text("publisher", publisher)
    if type(number) is not int:
        raise InvalidConfigError(f"publisher {publisher!r}: number {number!r}: must be a whole number")
    check_whole(f"publisher {publisher!r}: number", number, low=-LONG_MAX - 1, high=LONG_MAX)
    for text in texts:
        check_text(f"publisher {publisher!r}: run, location or plan", text)


def check_fenced(wanted: Decision, last: Decision | None, claimed: bool) -> None:
    """Refuses a run that was replaced, and a checkpoint that is not the publisher's.

    Args:
        wanted: what is to be decided.
        last: what is known of the publisher; None: nothing.
        claimed: the run has claimed the publisher, so any other run that holds it is newer.

    Raises:
        PublisherFencedError: names the run that holds the publisher, and since when.
    """
    if last is None:
        if claimed:
            raise PublisherFencedError(
                f"publisher {wanted.publisher!r} is no longer known here: it was deleted, or an older copy of the "
                "store has replaced the store; begin again",
                *NO_ORIGIN,
            )
        return
    holder = last.holder
    held = f"process {holder.process} on {holder.host}, since {format_time(holder.time)}"
    if wanted.run and wanted.run != last.run and (claimed or wanted.run in last.replaced):
        raise PublisherFencedError(
            f"publisher {wanted.publisher!r}: run {wanted.run} was replaced by run {last.run} ({held}); this one "
            "must stop",
            *holder,
        )
    if wanted.location and last.location and wanted.location != last.location:
        raise PublisherFencedError(
            f"publisher {wanted.publisher!r} belongs to the checkpoint {last.location} ({held}; last number: "
            f"{_last_number(last)}); this is the checkpoint {wanted.location}: a copied checkpoint cannot be used "
            "beside the original, nor one id by two queries; start the second query with a checkpoint (and a "
            "publishId) of its own. If that checkpoint is lost, publishTakeOver gives the id to the new one",
            *holder,
        )


def _last_number(last: Decision) -> str:
    return "none yet" if last.number == NO_NUMBER else f"{last.number}, of {format_time(last.time)}"


def check_number(wanted: Decision, last: Decision | None) -> None:
    """Accepts only the next number, or the last one with the same plan. PublishNumberError, which says what to do."""
    if last is not None and last.is_revoked:
        _check_after_taking_back(wanted, last)
        return
    if last is None or last.number == NO_NUMBER:
        if wanted.number <= NO_NUMBER:
            raise PublishNumberError(f"publisher {wanted.publisher!r}: number {wanted.number}: numbers start at 0")
        return
    if wanted.number == last.number + 1:
        return
    what = f"publisher {wanted.publisher!r}: number {wanted.number}"
    when = f"process {last.process} on {last.host}, {format_time(last.time)}"
    advice = "Continue with a new checkpoint or publisher id, from offsets that you choose"
    if wanted.number != last.number:
        raise PublishNumberError(
            f"{what} after {last.number} ({when}): the last number again (a replay) or {last.number + 1} was expected. "
            f"{_of_another_run(last)}The checkpoint (or the count that the number comes from) and the store are out of "
            f"step: one of them was deleted, copied, or restored from an older copy. {advice}"
        )
    if wanted.plan and last.plan and wanted.plan != last.plan:
        raise PublishNumberError(
            f"{what} was published with other input ({when}), so this is no replay: records would be lost. "
            f"{_of_another_run(last)}The checkpoint was copied, or restored from an older copy, and the other one was "
            f"used since. {advice}"
        )


def _of_another_run(last: Decision) -> str:
    """What to do if the process that has published last may still run; "": it does not, or it is this one."""
    here = Origin.here(0)
    if last.host == here.host and (last.process == here.process or not last.may_run()):
        return ""
    return (
        "Another run of this query may be alive, as that process: then stop it, and start this one again with the "
        "same checkpoint; with a new one it would write everything twice. If none is alive: "
    )


def _check_after_taking_back(wanted: Decision, last: Decision) -> None:
    """Accepts only the number that was taken back: the one before it is not the publisher's last one.

    A run that repeats that one has an older copy of its checkpoint; with what input it was published is not known.
    """
    aside = last.set_aside
    if aside is not None and wanted.number != aside.number:
        raise PublishNumberError(
            f"publisher {wanted.publisher!r}: number {wanted.number}: {aside.number} was expected, which was decided, "
            f"set aside ({aside.origin}), and can be published again. The checkpoint (or the count that the number "
            "comes from) is older or newer than the store. Continue with a new checkpoint or publisher id, from "
            "offsets that you choose"
        )


def check_log_dirs(logs: LogManager, wanted: Decision) -> None:
    """Checks that each partition that gets records can be written to. LogDirOfflineError, OSError."""
    logs.check_log_dirs((place.topic, place.partition) for place in wanted.places)


def check_owners(logs: LogManager, wanted: Decision) -> None:
    """Checks that no partition that gets records has an owner. PartitionOwnedError."""
    for place in wanted.places:
        at = logs.place(place.topic, place.partition)
        loaded = state_file.read(at.state_path)
        if loaded is not None:
            check_owner(at, loaded.state)


def check_parts(logs: LogManager, parts: Sequence[StagedPart], manifest: str) -> None:
    """Checks that the staged output, its manifest and its topics still exist. StagedOutputError."""
    for topic, topic_id in {(part.topic, part.topic_id) for part in parts}:
        try:
            now = logs.describe_topic(topic).topic_id
        except UnknownTopicError:
            now = ""
        if now != topic_id:
            raise StagedOutputError(f"topic {topic!r} was deleted or recreated while output for it was being staged")
    needed = {manifest: 0} if manifest else {}
    for part in parts:
        if part.file:
            needed[part.file] = max(needed.get(part.file, 0), part.position + part.size)
    for name, size in needed.items():
        path = f"{staging_folder(logs)}/{name}"
        try:
            file = files.open_read(path)
        except FileNotFoundError:
            raise StagedOutputError(f"staged output {path} is missing") from None
        found = file.size()
        file.close()
        if found < size:
            raise StagedOutputError(f"staged output {path} has {found} bytes, {size} were written")


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
