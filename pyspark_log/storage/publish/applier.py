"""Applies decisions in the partitions that lack them, and removes what was staged for them.

Any process may apply a decision: the publisher, a later publisher, or a reader that looks for new records. The decision
log's lock is not held meanwhile; each partition's lock, and the decision number in its state, ensure that nothing is
applied twice.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence

from pyspark_log.errors import PylogError, StagedOutputError, UnknownTopicError
from pyspark_log.storage.catalog.store_json import STAGING_FOLDER
from pyspark_log.storage.fs import files, side_by_side
from pyspark_log.storage.log_manager import LogManager
from pyspark_log.storage.publish.decision import Decision, TopicIdPartition
from pyspark_log.storage.publish.decision_log import DecisionLog
from pyspark_log.storage.publish.partition_applier import apply
from pyspark_log.storage.publish.staging import manifest
from pyspark_log.storage.publish.staging.staged_file import StagedRegion

log = logging.getLogger(__name__)

# How many partitions of one decision are applied in parallel, so that the file system can share its journal's commits.
_APPLY_THREADS = 4

#: What a decision adds to each partition.
Entries = Mapping[TopicIdPartition, Sequence[StagedRegion]]


def staging_folder(logs: LogManager) -> str:
    """The path of the staging folder."""
    return f"{logs.path}/{STAGING_FOLDER}"


# ---- reading


def is_applied_in(logs: LogManager, decision: Decision, place: TopicIdPartition) -> bool:
    """Whether a decision is applied in a partition; looked up without a lock."""
    try:
        if logs.describe_topic(place.topic).topic_id == place.topic_id:
            # A power loss may hide that it is applied, until the partition is recovered.
            return logs.recovered(place.topic, place.partition).state().applied >= decision.offset
    except UnknownTopicError:
        pass
    return True  # The topic that was meant is gone, so this part of the decision is void.


def is_applied(decisions: DecisionLog, decision: Decision) -> bool:
    """Whether a decision is applied in all its partitions."""
    if decision.offset not in decisions.applied:
        if not all(is_applied_in(decisions.logs, decision, place) for place in decision.places):
            return False
        decisions.applied.add(decision.offset)
    return True


def seems_applied(decisions: DecisionLog, decision: Decision) -> bool:
    """As `is_applied`, but False if a damaged partition makes it impossible to know."""
    try:
        return is_applied(decisions, decision)
    except (PylogError, OSError):
        return False


def entries_of(decisions: DecisionLog, decision: Decision) -> Entries:
    """What a decision adds to each partition; empty if it was finished meanwhile.

    Raises:
        StagedOutputError: its manifest is missing, or damaged.
    """
    if not decision.manifest:
        return {}
    try:
        return manifest.read(staging_folder(decisions.logs), decision.manifest, decision.manifest_crc)
    except FileNotFoundError as error:
        # The manifest is deleted only after a record says that the decision is done. A power loss can hide that record
        # until a process takes the lock.
        with decisions.hold():
            pass
        if decision.offset not in decisions.undone:
            return {}
        raise StagedOutputError(
            f"decision {decision.offset} of publisher {decision.publisher!r}: its manifest {error.filename} is missing"
        ) from None


# ---- applying


def apply_decision(decisions: DecisionLog, decision: Decision, timeout: float, entries: Entries | None = None) -> None:
    """Applies a decision in the partitions that lack it; in each of them, after the decisions before it.

    Args:
        decisions: the decision log.
        decision: the decision.
        timeout: how long to wait for each partition's lock, in seconds.
        entries: what it adds to each partition, if it was decided just now; None: read it from the manifest.

    Raises:
        StagedOutputError, OSError, LockTimeoutError, LogDamagedError: the first that a partition raised. It is applied
            in the other partitions. The call can be repeated.
    """
    if decision.offset in decisions.undone:
        _apply_up_to(decisions, decision.places, decision.offset, timeout, entries)
        decisions.applied.add(decision.offset)


def apply_in(decisions: DecisionLog, place: TopicIdPartition, timeout: float) -> None:
    """Applies every pending decision in one partition. Raises: as `apply_decision`."""
    decisions.follow()
    if decisions.undone:
        _apply_up_to(decisions, [place], max(decisions.undone), timeout)


def waits_in(decisions: DecisionLog, place: TopicIdPartition, applied: int) -> bool:
    """Whether a decision for a partition is pending; `applied` is the last one applied there."""
    decisions.follow()
    return any(decision.offset > applied and place in decision.places for decision in list(decisions.undone.values()))


def _apply_up_to(
    decisions: DecisionLog,
    places: Collection[TopicIdPartition],
    until: int,
    timeout: float,
    given: Entries | None = None,
) -> None:
    """Applies the decisions up to `until` in some partitions, in order within each.

    `given`: what the last of them adds to each partition; it was decided just now, so it is applied nowhere yet.
    """
    steps = [
        step
        for step in decisions.in_order()
        if step.offset <= until
        and not set(places).isdisjoint(step.places)
        and ((given is not None and step.offset == until) or not seems_applied(decisions, step))
    ]
    if not steps:
        return
    # An unreadable decision blocks only its own partitions.
    entries: dict[int, Entries | PylogError | OSError] = {} if given is None else {until: given}
    for step in steps:
        if step.offset in entries:
            continue
        try:
            entries[step.offset] = entries_of(decisions, step)
        except (PylogError, OSError) as error:
            entries[step.offset] = error

    def apply_pending_in(place: TopicIdPartition) -> PylogError | OSError | None:
        try:
            for step in steps:
                if place not in step.places:
                    continue
                if (given is not None and step.offset == until) or not is_applied_in(decisions.logs, step, place):
                    _apply_in(decisions.logs, step, place, entries[step.offset], timeout)
        except (PylogError, OSError) as error:
            return error
        return None

    for problem in side_by_side(apply_pending_in, sorted(places), _APPLY_THREADS):
        if problem is not None:
            raise problem


def _apply_in(
    logs: LogManager, step: Decision, place: TopicIdPartition, entries: Entries | PylogError | OSError, timeout: float
) -> None:
    """Applies a decision in one partition; `entries` is what it adds to all, or the error that hides it."""
    # A topic that is deleted (and perhaps recreated) at this moment makes the part void.
    with contextlib.suppress(UnknownTopicError):
        writer = logs.writer(place.topic, place.partition)
        if writer.place.topic_id != place.topic_id:
            return
        if isinstance(entries, Exception):
            raise entries
        if place in entries:
            apply(writer, step.offset, step.time, entries[place], timeout=timeout)


# ---- removing what was staged


def remove_staged(decisions: DecisionLog, decision: Decision) -> None:
    """Removes what a finished decision no longer needs. A file that remains costs space only."""
    logs, folder = decisions.logs, staging_folder(decisions.logs)
    if not decision.manifest:
        return
    paths = decisions.staged.pop(decision.offset, None)
    try:
        paths = paths or manifest.paths(manifest.read(folder, decision.manifest, decision.manifest_crc))
    except (FileNotFoundError, StagedOutputError) as error:
        log.warning("%s: the staged output of decision %d is unknown: %s", logs.path, decision.offset, error)
        paths = set()
    unlink_all(logs, [*paths - {f"{folder}/{decision.manifest}"}, f"{folder}/{decision.manifest}"])


def unlink_all(logs: LogManager, paths: Iterable[str]) -> None:
    """Removes files of staged output; best effort."""
    for path in paths:
        try:
            files.unlink(path)
        except OSError as error:
            log.warning("%s: staged output %s could not be removed: %s", logs.path, path, error)
