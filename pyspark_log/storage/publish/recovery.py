"""Lists, applies and sets aside decisions that are not applied everywhere.

Publishers, replays and readers apply pending decisions as they run (pending.py). This is for when none of them does: no
process runs, or an error blocks it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark_log.errors import InvalidConfigError, PylogError, StagedOutputError, UnknownTopicError
from pyspark_log.storage.catalog.store_json import CUT_FOLDER
from pyspark_log.storage.fs import files
from pyspark_log.storage.fs.locking.timeouts import DEFAULT_TIMEOUT
from pyspark_log.storage.log_manager import LogManager
from pyspark_log.storage.publish.applier import apply_decision, is_applied_in, seems_applied, staging_folder
from pyspark_log.storage.publish.decision import Decision, Origin, TopicIdPartition
from pyspark_log.storage.publish.decision_log import DecisionLog
from pyspark_log.storage.publish.pending import tidy
from pyspark_log.storage.publish.staging import manifest
from pyspark_log.storage.publish.staging.staged_file import StagedRegion, region_fault

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A decision that is not applied everywhere.

    Attributes:
        decision: the decision.
        places: the partitions in which it is not applied.
        size: how many bytes are staged for these; -1: unknown.
        problem: why it cannot be applied; "" if no obstacle is known.
    """

    decision: Decision
    places: tuple[TopicIdPartition, ...]
    size: int
    problem: str


@dataclass(frozen=True, slots=True)
class SetAsideResult:
    """The result of setting a decision aside.

    Attributes:
        places: the partitions in which it was not applied, and never will be.
        is_revoked: it was applied in no partition, so its publisher may publish the same number again.
        folder: where the staged output is kept.
    """

    places: tuple[TopicIdPartition, ...]
    is_revoked: bool
    folder: str


def waiting(decisions: DecisionLog) -> list[Waiting]:
    """The decisions that are not applied everywhere, in their order. Reads all that is staged for them; takes no lock.

    Raises:
        CorruptRecordError, LogDamagedError: the decision log is damaged.
    """
    decisions.follow()
    return [_inspect(decisions.logs, one) for one in decisions.in_order() if not seems_applied(decisions, one)]


def _inspect(logs: LogManager, decision: Decision) -> Waiting:
    places, damage = list[TopicIdPartition](), ""
    for place in decision.places:
        try:
            if not is_applied_in(logs, decision, place):
                places.append(place)
        except (PylogError, OSError) as error:
            places.append(place)
            damage = damage or str(error)
    return _with_staged_output(logs, Waiting(decision, tuple(places), -1, damage))


def _with_staged_output(logs: LogManager, found: Waiting) -> Waiting:
    """The same, with the size of its staged output and the problem with it."""
    decision = found.decision
    try:
        entries = manifest.read(staging_folder(logs), decision.manifest, decision.manifest_crc)
    except FileNotFoundError as error:
        begun = files.exists(f"{_aside_folder(logs, decision.offset)}/{decision.manifest}")
        what = "it is half set aside: --set-aside it again" if begun else f"its manifest {error.filename} is missing"
        return replace(found, problem=what)
    except (PylogError, OSError) as error:
        return replace(found, problem=f"its manifest cannot be read: {error}")
    regions = [region for place in found.places for region in entries.get(place, ())]
    found = replace(found, size=sum(region.size for region in regions))
    for region in regions:
        fault = region_fault(region)
        if fault:
            return replace(found, problem=f"{region.path}, byte {region.position}: {fault}")
    return found


def recover(decisions: DecisionLog) -> list[Waiting]:
    """Applies all pending decisions, and removes what was staged for them.

    Returns:
        The pending decisions, in order; those that could not be applied have a problem.

    Raises:
        CorruptRecordError, LogDamagedError, LockTimeoutError, OSError: the decision log cannot be read, or written.
    """
    decisions.logs.check_writable()
    found = []
    for one in waiting(decisions):
        try:
            apply_decision(decisions, one.decision, DEFAULT_TIMEOUT)
            found.append(replace(one, problem=""))
        except (PylogError, OSError) as error:
            found.append(replace(one, problem=str(error)))
    if decisions.undone:
        tidy(decisions)
    return found


def set_aside(decisions: DecisionLog, number: int) -> SetAsideResult:
    """Gives up a decision that cannot be applied, where it is not applied, so that later decisions can be applied.

    A record of it is kept with its publisher. If it is applied in no partition, it is as if it had never been made:
    its publisher may publish the same number again (a streaming query does when it is restarted). Otherwise a replay
    is answered as published, and what the other partitions lack is lost; the staged output is kept.

    Args:
        decisions: the decision log.
        number: the decision's number.

    Raises:
        InvalidConfigError: there is no such decision, or it is applied everywhere; nothing was changed.
        LockTimeoutError, OSError, PylogError: it could not be completed. The decision is not applied meanwhile; call
            again.
    """
    logs = decisions.logs
    with decisions.hold():
        decision = decisions.undone.get(number)
    if decision is None or seems_applied(decisions, decision):
        raise InvalidConfigError(f"{logs.path}: decision {number} is applied everywhere, or there is none")
    folder = _aside_folder(logs, number)
    # First, so that no process starts to apply it any more, not even a process that has already read it.
    _move_staged(logs, decision, folder)
    # A process that applies it in a partition holds its lock, so what is found now stays true.
    has = [_has(logs, decision, place) for place in decision.places]
    lacking = tuple(place for place, had in zip(decision.places, has, strict=True) if had is False)
    is_revoked = True not in has
    with decisions.hold() as writer:
        decision = decisions.undone.get(number)
        if decision is None:
            raise InvalidConfigError(f"{logs.path}: decision {number} was finished, or set aside, by another process")
        writer.set_aside(decision, lacking, Origin.here(logs.clock()), is_revoked)
    log.warning(
        "%s: decision %d (publisher %s, number %d) was set aside; its staged output is in %s",
        logs.path,
        number,
        decision.publisher,
        decision.number,
        folder,
    )
    return SetAsideResult(lacking, is_revoked, folder)


def _aside_folder(logs: LogManager, number: int) -> str:
    return f"{logs.path}/{CUT_FOLDER}/decision-{number}"


def _has(logs: LogManager, decision: Decision, place: TopicIdPartition) -> bool | None:
    """Whether a decision is applied in a partition; None if its topic is deleted, so that the part is void."""
    try:
        writer = logs.writer(place.topic, place.partition)
        if writer.place.topic_id != place.topic_id:
            return None
        with writer.hold() as held:
            return held.state.applied >= decision.offset
    except UnknownTopicError:
        return None


def _move_staged(logs: LogManager, decision: Decision, folder: str) -> None:
    """Moves a decision's manifest, and the files that it names, to another folder; also if a part was moved already."""
    staging = staging_folder(logs)
    for path in (os.path.dirname(folder), folder):
        files.make_folder(path)
    _move(f"{staging}/{decision.manifest}", folder)
    try:
        entries: Mapping[TopicIdPartition, Sequence[StagedRegion]]
        entries = manifest.read(folder, decision.manifest, decision.manifest_crc)
    except (FileNotFoundError, StagedOutputError) as error:
        log.warning("%s: the files that decision %d needs are unknown: %s", logs.path, decision.offset, error)
        entries = {}
    for path in manifest.paths(entries):
        _move(f"{staging}/{os.path.basename(path)}", folder)
    files.sync_folder(folder)
    files.sync_folder(staging)


def _move(path: str, folder: str) -> None:
    if files.exists(path):
        files.rename(path, f"{folder}/{os.path.basename(path)}")
