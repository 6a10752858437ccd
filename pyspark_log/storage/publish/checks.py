"""Checks before a publish is decided; the decision log's lock is held, so what they find stays true."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark_log.arguments import check_text, check_whole
from pyspark_log.config import LONG_MAX
from pyspark_log.errors import (
    InvalidConfigError,
    PublisherFencedError,
    PublishNumberError,
    StagedOutputError,
    UnknownTopicError,
)
from pyspark_log.storage.fs import files
from pyspark_log.storage.fs.clock import format_time
from pyspark_log.storage.log.owner import check_owner
from pyspark_log.storage.log.state import state_file
from pyspark_log.storage.log_manager import LogManager
from pyspark_log.storage.publish.applier import staging_folder
from pyspark_log.storage.publish.decision import NO_NUMBER, NO_ORIGIN, Decision, Origin
from pyspark_log.storage.publish.staging.plan import StagedPart


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
