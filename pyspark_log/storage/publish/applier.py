"""Applies decisions in the partitions that lack them, and removes what was staged for them.

Any process may apply a decision: the publisher, a later publisher, or a reader that looks for new records. The decision
log's lock is not held meanwhile; each partition's lock, and the decision number in its state, ensure that nothing is
applied twice.

In a partition small output is copied after the end; a large file of the partition's own (or a copy of it) becomes a
segment (see staging/staged_file.py). The log appends all of it at once, and records "applied up to this decision" in
the same move of its end.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyspark_log.errors import CorruptRecordError, PylogError, StagedOutputError, UnknownTopicError
from pyspark_log.storage.catalog.store_json import STAGING_FOLDER
from pyspark_log.storage.fs import files, side_by_side
from pyspark_log.storage.fs.links import forbids_links
from pyspark_log.storage.fs.locking.timeouts import DEFAULT_TIMEOUT
from pyspark_log.storage.log import AppendPlan, Copy, Decided, Turnstile
from pyspark_log.storage.log.appending.append import append
from pyspark_log.storage.log.appending.new_segment import NewSegment
from pyspark_log.storage.log_manager import LogManager
from pyspark_log.storage.publish.decision import Decision, TopicIdPartition
from pyspark_log.storage.publish.decision_log import DecisionLog
from pyspark_log.storage.publish.staging import manifest
from pyspark_log.storage.publish.staging.staged_file import (
    StagedRegion,
    Ways,
    can_be_linked,
    choose,
    headers_of,
    read_region,
)
from pyspark_log.storage.record import crc32c, scan
from pyspark_log.storage.record.headers import set_log_append_time
from pyspark_log.storage.record.layout import crcs_of
from pyspark_log.types import NO_TIMESTAMP

log = logging.getLogger(__name__)

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
# Errors that mean that a staged file is not what was staged.
_NOT_AS_STAGED = (FileNotFoundError, CorruptRecordError, StagedOutputError)
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


# ---- in one partition


def apply(
    writer: Turnstile,
    decision: int,
    decided_at: int,
    regions: Sequence[StagedRegion],
    *,
    installs: bool = True,
    timeout: float = DEFAULT_TIMEOUT,
) -> bool:
    """Appends the regions in order, atomically, if the decision is still pending. Returns whether this call applied it.

    Args:
        writer: the partition's writer.
        decision: the decision's number.
        decided_at: when it was made (ms); the records' time if the topic has LogAppendTime.
        regions: the batches to append.
        installs: whether staged files may become segments; False for those of another store.
        timeout: how long to wait for the lock, in seconds.

    Raises:
        StagedOutputError: a region is missing, or is not what was decided; nothing was appended.
        OSError: e.g. a full disk; nothing was appended, and it can be tried again.
        LockTimeoutError, UnknownTopicError, LogDamagedError: as Turnstile.hold.
    """
    work = _Work(writer, decision, decided_at if writer.config.log_append_time else None, regions, timeout)
    # A host that lost its lock unnoticed may still write to a file that it has open, so hosts share no files.
    installs = installs and not writer.log.lease.shared
    try:
        return work.do(Ways.BY_SIZE if installs else Ways.COPIED)
    except OSError as error:
        if error.errno in _NO_ROOM and installs and work.can_install():
            # Installing needs no space, except for the indexes.
            return work.do(Ways.INSTALLED)
        if forbids_links(error):
            # It was prepared where the partition no longer is, or for another mount of the same device.
            return work.do(Ways.COPIED)
        raise


@dataclass(frozen=True, slots=True)
class _Work:
    """One decision to be applied to one partition."""

    writer: Turnstile
    decision: int
    append_time: int | None
    regions: Sequence[StagedRegion]
    timeout: float

    def do(self, ways: Ways) -> bool:
        """Applies the decision if it is still pending. Returns whether this call applied it. Raises: as `apply`."""
        with contextlib.ExitStack() as leftovers:
            try:
                pieces = self._prepare(ways, leftovers)
                digest, newest = self._digest(pieces), self._newest(pieces)
            except _NOT_AS_STAGED as error:
                # The staged files are deleted when the decision is done.
                with self.writer.hold(self.timeout):
                    if self.writer.log.state.applied >= self.decision:
                        return False
                raise self._named(error) from error
            with self.writer.hold(self.timeout):
                if self.writer.log.state.applied >= self.decision:
                    return False
                self._apply(pieces, digest, newest)
                return True

    def can_install(self) -> bool:
        """Whether some regions could become segments, size aside."""
        return any(self._choose(Ways.INSTALLED))

    def _choose(self, ways: Ways) -> list[bool]:
        return choose(self.regions, self.writer.place, self.writer.config, self.append_time, ways)

    def _named(self, error: Exception) -> StagedOutputError:
        return StagedOutputError(f"{self.writer.place}: decision {self.decision}: {error}")

    # ---- without the lock

    def _prepare(self, ways: Ways, leftovers: contextlib.ExitStack) -> list[StagedRegion | NewSegment]:
        """The regions, with those that become segments prepared."""
        installs = self._choose(ways)
        pieces: list[StagedRegion | NewSegment] = []
        for region, is_installed, next_is in zip(self.regions, installs, [*installs[1:], False], strict=True):
            if is_installed:
                ready = self._ready(region, inactive=next_is)
                leftovers.callback(ready.discard)
                pieces.append(ready)
            else:
                pieces.append(region)
        return pieces

    def _ready(self, region: StagedRegion, *, inactive: bool) -> NewSegment:
        writer = self.writer
        # Nothing may be created in the mount point of a log dir that is not mounted.
        place = writer.log.current_place()
        try:
            links = can_be_linked(region, place)
            return NewSegment(region, place, writer.config, links=links, inactive=inactive)
        except OSError as error:
            writer.log.fail(error)

    def _digest(self, pieces: Sequence[StagedRegion | NewSegment]) -> int:
        """A digest that identifies this decision's records as they will be in the log."""
        return crc32c(b"".join(map(self._crcs, pieces)))

    def _crcs(self, piece: StagedRegion | NewSegment) -> bytes:
        if self.append_time is None or isinstance(piece, NewSegment):
            return piece.crcs
        return b"".join(crcs_of(scan(data, 0, len(data))) for data in self._with_time(piece))

    def _newest(self, pieces: Sequence[StagedRegion | NewSegment]) -> int:
        """The largest time (ms) of the copied records; the segment may have to be rolled before them because of it."""
        if self.append_time is not None:
            return self.append_time
        copied = (piece for piece in pieces if isinstance(piece, StagedRegion))
        times = (header.max_timestamp for piece in copied for header in headers_of(piece))
        return max(times, default=NO_TIMESTAMP)

    # ---- with the lock

    def _apply(self, pieces: Sequence[StagedRegion | NewSegment], digest: int, newest: int) -> None:
        self._check_staged(pieces)
        planned = [piece if isinstance(piece, NewSegment) else self._copy(piece) for piece in pieces]
        append(self.writer.log, AppendPlan(planned, newest, True, decided=Decided(self.decision, digest)))

    def _check_staged(self, pieces: Sequence[StagedRegion | NewSegment]) -> None:
        """Refuses files that were removed since they were linked; the link still exists.

        A process that sets a decision aside moves its files first, and checks each partition under its lock after
        that. So either it finds what is applied here, or it has moved the files before this check.
        """
        for piece in pieces:
            if isinstance(piece, NewSegment) and not files.exists(piece.source):
                raise self._named(FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), piece.source))

    def _copy(self, region: StagedRegion) -> Copy:
        return Copy(region.size, region.count, self._as_decided(region))

    def _as_decided(self, region: StagedRegion) -> Iterator[memoryview]:
        try:
            yield from self._with_time(region)
        except _NOT_AS_STAGED as error:
            raise self._named(error) from error

    def _with_time(self, region: StagedRegion) -> Iterator[memoryview]:
        """The batches of a region as they are copied; each is valid until the next is asked for."""
        for data in read_region(region):
            if self.append_time is not None:
                set_log_append_time(data, 0, len(data), self.append_time)
            yield data
