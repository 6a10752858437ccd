"""Publishes staged output: all of it appears, once, or nothing does.

Three steps. The manifest of the staged output is written. The decision is made: one synced record, before
which the publish does not exist and after which nothing can undo it. The decision is applied, partition by
partition, by whoever comes by: the publisher, the next publisher, or a reader that looks for new records.

A publisher is a name with consecutive numbers (a streaming query and its batch ids). The last number again
is a replay: it was published already and its output is dropped. The next number is new. Any other number
means that the publisher and the store do not belong together any more, and is refused.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from pyspark_log.storage import files, manifest
from pyspark_log.storage.apply import Region, apply
from pyspark_log.storage.decision_log import Decision, DecisionLog, Place
from pyspark_log.storage.errors import (
    LockTimeoutError,
    PublisherFencedError,
    PublishError,
    PublishNumberError,
    PylogError,
    StagedOutputError,
    UnknownTopicError,
)
from pyspark_log.storage.locks import DEFAULT_TIMEOUT
from pyspark_log.storage.staging import StagedPart
from pyspark_log.storage.store import STAGING_FOLDER, Store

log = logging.getLogger(__name__)

# Partitions of one decision that are applied side by side, so that the file system can share its journal's commits.
_APPLY_THREADS = 4
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


def publish(
    store: Store,
    publisher: str,
    number: int,
    parts: Sequence[StagedPart],
    *,
    run: str = "",
    location: str = "",
    one_off: bool = False,
) -> PublishResult:
    """Makes staged output visible, exactly once. Returns when all of it is there, and durable.

    Args:
        store: where.
        publisher: who publishes; any text.
        number: which of its publishes this is; consecutive, from any start.
        parts: what StagedWriter.finish gave, of all tasks, in the order in which it is to appear.
        run: which run of the publisher this is. A newer run fences the ones before it; "" leaves that out.
        location: the publisher's checkpoint. A publisher at another one is refused; "" leaves that out.
        one_off: the publisher has this one publish only, and is forgotten when this call succeeds.

    Raises:
        PublishNumberError: neither the next number nor the last one.
        PublisherFencedError: a newer run, or another checkpoint, has the publisher's id.
        StagedOutputError: staged output is gone, or its topic is.
        OSError: before the decision: nothing was published; after it, it is published and
            becomes visible as soon as anybody can apply it. Calling again tells which: a replay is answered.
        OutcomeUnknownError: the decision may or may not hold; calling again tells.
    """
    decisions = DecisionLog.of(store)
    parts = [part for part in parts if part.count]
    name, crc = manifest.write(_staging(store), parts) if parts else ("", 0)
    places = dict.fromkeys(Place(part.topic, part.topic_id, part.partition) for part in parts)
    wanted = Decision(
        publisher, number, run=run, location=location, records=sum(part.count for part in parts),
        places=tuple(places), manifest=name, manifest_crc=crc,
    )  # fmt: skip
    try:
        decision, replayed = _decide(store, decisions, wanted, parts)
    except PublishError:
        # Refused under the lock, so certainly not decided.
        _drop(store, decisions, wanted, parts)
        raise
    if replayed:
        _drop(store, decisions, wanted, parts)
        if decision.records != wanted.records:
            log.warning(
                "%s: number %d was published before with %d records; this attempt had %d, which were dropped",
                publisher, number, decision.records, wanted.records,
            )  # fmt: skip
    _apply(store, decisions, decision, DEFAULT_TIMEOUT)
    if one_off:
        try:
            tidy(store, forget=publisher)
        except (PylogError, OSError) as error:
            # All of it is published; what is left over costs space until the next one tidies up.
            log.warning("%s: decision %d is done, but could not be tidied up: %s", store.path, decision.offset, error)
    return PublishResult(decision.offset, replayed, decision.records)


def last_number(store: Store, publisher: str) -> int | None:
    """The last number that a publisher has published; None if the store does not know it."""
    decisions = DecisionLog.of(store)
    decisions.follow(store)
    last = decisions.last.get(publisher)
    return None if last is None else last.number


def help_apply(store: Store) -> int:
    """Applies what was decided and is not visible yet, for publishers that died in between.

    Waits for nobody for long: a partition that is locked is left to its holder.

    Returns:
        How many decisions were found to need it.
    """
    decisions = DecisionLog.of(store)
    decisions.follow(store)
    waiting = [d for _, d in sorted(decisions.undone.items()) if not _is_applied(store, decisions, d)]
    for decision in waiting:
        try:
            _apply(store, decisions, decision, _HELP_TIMEOUT)
        except LockTimeoutError as error:
            log.debug("decision %d is left to others: %s", decision.offset, error)
            break
    return len(waiting)


def tidy(store: Store, forget: str = "") -> None:
    """Records which decisions are done, and removes what was staged for them.

    The publisher `forget` is no longer remembered. Only it may say so: while it lives it may come back to ask
    whether its publish took place.
    """
    decisions = DecisionLog.of(store)
    decisions.follow(store)
    done = _applied(store, decisions)
    with decisions.hold(store) as writer:
        done = [decision for decision in done if decision.offset in decisions.undone]
        writer.finish(done, forget)
    for decision in done:
        _remove(store, decision)


# ---- deciding


def _decide(
    store: Store, decisions: DecisionLog, wanted: Decision, parts: Sequence[StagedPart]
) -> tuple[Decision, bool]:
    """Makes the decision, or finds the one that was made before; True for the latter."""
    while True:
        with decisions.hold(store) as writer:
            last = decisions.last.get(wanted.publisher)
            if last is not None:
                _check_fenced(wanted, last)
                _check_number(wanted, last)
                if wanted.number == last.number:
                    if wanted.run and wanted.run != last.run:
                        writer.take_over(last, wanted.run)
                    return last, True
            if last is None or last.done or _is_applied(store, decisions, last):
                _check_parts(store, parts)
                done = [other for other in decisions.undone.values() if other.offset in decisions.applied]
                decision = writer.decide(wanted if last is None else _inheriting(wanted, last), done)
                break
        # The publisher's last decision is not finished. That comes first, and without the lock.
        _apply(store, decisions, last, DEFAULT_TIMEOUT)
    for finished in done:
        _remove(store, finished)
    return decision, False


def _inheriting(wanted: Decision, last: Decision) -> Decision:
    """The next decision of a publisher: it knows the runs before it, and where its checkpoint is."""
    run = wanted.run or last.run
    before = last if run == last.run else last.taken_over(run)
    return replace(wanted, run=run, replaced=before.replaced, location=wanted.location or last.location)


def _check_fenced(wanted: Decision, last: Decision) -> None:
    since = f"since number {last.number} (process {last.process} on {last.host})"
    if wanted.run and wanted.run in last.replaced:
        raise PublisherFencedError(
            f"publisher {wanted.publisher!r}: run {wanted.run} was replaced by run {last.run} {since}; "
            "this one must stop"
        )
    if wanted.location and last.location and wanted.location != last.location:
        raise PublisherFencedError(
            f"publisher {wanted.publisher!r} belongs to the checkpoint {last.location} {since}, not to "
            f"{wanted.location}: a copied checkpoint cannot be used beside the original; start the second query "
            "with a new checkpoint"
        )


def _check_number(wanted: Decision, last: Decision) -> None:
    if wanted.number not in (last.number, last.number + 1):
        raise PublishNumberError(
            f"publisher {wanted.publisher!r}: number {wanted.number} after {last.number}: the last number again (a "
            f"replay) or {last.number + 1} was expected. The checkpoint (or the count that the number comes from) and "
            "the store are not of one time: one of them was deleted, or restored from an older copy. Go on with "
            "a new checkpoint or publisher id, from offsets that you choose"
        )


def _check_parts(store: Store, parts: Sequence[StagedPart]) -> None:
    for topic, topic_id in {(part.topic, part.topic_id) for part in parts}:
        try:
            now = store.describe_topic(topic).topic_id
        except UnknownTopicError:
            now = ""
        if now != topic_id:
            raise StagedOutputError(f"topic {topic!r} was deleted (or made anew) while output for it was being staged")
    needed: dict[str, int] = {}
    for part in parts:
        if part.file:
            needed[part.file] = max(needed.get(part.file, 0), part.position + part.size)
    for name, size in needed.items():
        path = f"{store.path}/{STAGING_FOLDER}/{name}"
        try:
            file = files.open_read(path)
        except FileNotFoundError:
            raise StagedOutputError(f"staged output {path} is missing") from None
        found = file.size()
        file.close()
        if found < size:
            raise StagedOutputError(f"staged output {path} has {found} bytes, {size} were written")


# ---- applying


def _staging(store: Store) -> str:
    return f"{store.path}/{STAGING_FOLDER}"


def _entries(store: Store, decisions: DecisionLog, decision: Decision) -> Mapping[Place, Sequence[Region]]:
    """What a decision gives to which partition; nothing any more if it was finished meanwhile."""
    if not decision.manifest:
        return {}
    try:
        return manifest.read(_staging(store), decision.manifest, decision.manifest_crc)
    except FileNotFoundError as error:
        # It goes only after a record says that it is done with. A power loss can hide that record, until somebody
        # takes the lock.
        with decisions.hold(store):
            pass
        if decision.offset not in decisions.undone:
            return {}
        raise StagedOutputError(
            f"decision {decision.offset} of publisher {decision.publisher!r}: its manifest {error.filename} is missing"
        ) from None


def _is_applied_in(store: Store, decision: Decision, place: Place) -> bool:
    """Whether a partition has what a decision gives to it; looked up without a lock."""
    try:
        if store.describe_topic(place.topic).topic_id == place.topic_id:
            return store.reader(place.topic, place.partition).state().applied >= decision.offset
    except UnknownTopicError:
        pass
    return True  # The topic that was meant is gone, so this part of the decision is void.


def _is_applied(store: Store, decisions: DecisionLog, decision: Decision) -> bool:
    if decision.offset not in decisions.applied:
        if not all(_is_applied_in(store, decision, place) for place in decision.places):
            return False
        decisions.applied.add(decision.offset)
    return True


def _applied(store: Store, decisions: DecisionLog) -> list[Decision]:
    """The decisions that are applied everywhere but not recorded as done."""
    return [decision for decision in list(decisions.undone.values()) if _is_applied(store, decisions, decision)]


def _apply(store: Store, decisions: DecisionLog, decision: Decision, timeout: float) -> None:
    """Applies a decision wherever it is not yet; in each partition after the decisions before it."""
    if decision.offset not in decisions.undone:
        return
    waiting: dict[Place, list[tuple[Decision, Sequence[Region]]]] = {place: [] for place in decision.places}
    for _, earlier in sorted(decisions.undone.items()):
        if earlier.offset > decision.offset or not waiting.keys() & set(earlier.places):
            continue
        if not _is_applied(store, decisions, earlier):
            for place, regions in _entries(store, decisions, earlier).items():
                if place in waiting:
                    waiting[place].append((earlier, regions))

    def bring_up(place: Place) -> None:
        for step, regions in waiting[place]:
            if not _is_applied_in(store, step, place):
                # A topic that is deleted (and perhaps made anew) at this moment makes the part void.
                with contextlib.suppress(UnknownTopicError):
                    appender = store.appender(place.topic, place.partition)
                    if appender.place.topic_id == place.topic_id:
                        apply(appender, step.offset, step.time, regions, timeout=timeout)

    touched = sorted(waiting)
    if len(touched) > 1:
        with ThreadPoolExecutor(min(_APPLY_THREADS, len(touched))) as pool:
            list(pool.map(bring_up, touched))
    else:
        for place in touched:
            bring_up(place)
    decisions.applied.add(decision.offset)


# ---- removing what was staged


def _remove(store: Store, decision: Decision) -> None:
    """Removes what a finished decision no longer needs. What stays behind costs space only."""
    if decision.manifest:
        try:
            _unlink(store, manifest.paths(manifest.read(_staging(store), decision.manifest, decision.manifest_crc)))
        except (FileNotFoundError, StagedOutputError) as error:
            log.warning("%s: what decision %d had staged is not known: %s", store.path, decision.offset, error)
        _unlink(store, {f"{_staging(store)}/{decision.manifest}"})


def _drop(store: Store, decisions: DecisionLog, wanted: Decision, parts: Sequence[StagedPart]) -> None:
    """Removes output that will not be published.

    But not what the publisher's last decision names: a call that is made again after an error hands in the
    very files that the first call may have decided.
    """
    names = {part.file for part in parts if part.file} | ({wanted.manifest} if wanted.manifest else set())
    paths = {f"{_staging(store)}/{name}" for name in names}
    last = decisions.last.get(wanted.publisher)
    if last is not None and not last.done:
        paths -= manifest.paths(_entries(store, decisions, last))
    _unlink(store, paths)


def _unlink(store: Store, paths: set[str]) -> None:
    for path in paths:
        try:
            files.unlink(path)
        except OSError as error:
            log.warning("%s: staged output %s could not be removed: %s", store.path, path, error)
