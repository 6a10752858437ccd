"""Appends the staged records of a decision to one partition, once.

An intent in the state file comes first, durably (see apply_intent.py). Then the bytes: small output is copied after
the end, a large file of the partition's own (or a copy of it) becomes a segment (see install.py). Then one move of
the end also records "applied up to this decision".
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyspark_log.config import INT_MAX
from pyspark_log.errors import CorruptRecordError, OutcomeUnknownError, StagedOutputError
from pyspark_log.storage.fs import DEFAULT_TIMEOUT, files, forbids_links
from pyspark_log.storage.log import RESERVE, Flags, Intent, LogWriter, apply_intent
from pyspark_log.storage.publish.install import ReadySegment, Ways, choose
from pyspark_log.storage.publish.staged_file import StagedRegion, headers_of, read_region
from pyspark_log.storage.record import BatchHeader, assign_offsets, crc32c, crcs_of, scan, set_log_append_time
from pyspark_log.storage.segment import SegmentWriter
from pyspark_log.types import NO_TIMESTAMP

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
# The disk begins to write the copy of so large a region (bytes) at once: the sync has little left to wait for.
_WRITE_BACK = 1024 * 1024
# Errors that mean that a staged file is not what was staged.
_NOT_AS_STAGED = (FileNotFoundError, CorruptRecordError, StagedOutputError)


def apply(
    writer: LogWriter,
    decision: int,
    decided_at: int,
    regions: Sequence[StagedRegion],
    *,
    sync: bool = True,
    installs: bool = True,
    timeout: float = DEFAULT_TIMEOUT,
) -> bool:
    """Appends the regions in order, atomically, if the decision is still pending. Returns whether this call applied it.

    Args:
        writer: the partition's writer.
        decision: the decision's number.
        decided_at: when it was made (ms); the records' time if the topic has LogAppendTime.
        regions: the batches to append.
        sync: whether the records are synced before they are visible. Those of installed segments always are.
        installs: whether staged files may become segments; False for those of another store.
        timeout: how long to wait for the lock, in seconds.

    Raises:
        StagedOutputError: a region is missing, or is not what was decided; nothing was appended.
        OSError: e.g. a full disk; nothing was appended, and it can be tried again.
        LockTimeoutError, UnknownTopicError, LogDamagedError: as LogWriter.hold.
    """
    work = _Work(writer, decision, decided_at if writer.config.log_append_time else None, regions, sync, timeout)
    # A host that lost its lock unnoticed may still write to a file that it has open, so hosts share no files.
    installs = installs and not writer.shared
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


def pass_over(writer: LogWriter, decision: int, *, timeout: float = DEFAULT_TIMEOUT) -> None:
    """Marks a decision as applied in a partition without its records, so that later decisions can be applied.

    Raises:
        OSError, LockTimeoutError, UnknownTopicError, LogDamagedError: as LogWriter.hold.
    """
    with writer.hold(timeout):
        if writer.state.applied < decision:
            writer.save(writer.state._replace(applied=decision), durable=True)


@dataclass(frozen=True, slots=True)
class _Step:
    """One piece, and where in the log it goes: byte `position` of segment `base`, from `offset` on."""

    piece: StagedRegion | ReadySegment
    base: int
    position: int
    offset: int


@dataclass(frozen=True, slots=True)
class _Work:
    """One decision to be applied to one partition."""

    writer: LogWriter
    decision: int
    append_time: int | None
    regions: Sequence[StagedRegion]
    sync: bool
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
                    if self.writer.state.applied >= self.decision:
                        return False
                raise self._named(error) from error
            with self.writer.hold(self.timeout):
                if self.writer.state.applied >= self.decision:
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

    def _prepare(self, ways: Ways, leftovers: contextlib.ExitStack) -> list[StagedRegion | ReadySegment]:
        """The regions, with those that become segments prepared."""
        installs = self._choose(ways)
        pieces: list[StagedRegion | ReadySegment] = []
        for region, is_installed, next_is in zip(self.regions, installs, [*installs[1:], False], strict=True):
            if is_installed:
                ready = self._ready(region, closed=next_is)
                leftovers.callback(ready.discard)
                pieces.append(ready)
            else:
                pieces.append(region)
        return pieces

    def _ready(self, region: StagedRegion, *, closed: bool) -> ReadySegment:
        writer = self.writer
        # Nothing may be created in the mount point of a log dir that is not mounted.
        place = writer.whereabouts()
        try:
            return ReadySegment(region, place, writer.config, closed=closed, sync=not self.sync)
        except OSError as error:
            writer.fail(error)

    def _digest(self, pieces: Sequence[StagedRegion | ReadySegment]) -> int:
        """A digest that identifies this decision's records as they will be in the log."""
        return crc32c(b"".join(map(self._crcs, pieces)))

    def _crcs(self, piece: StagedRegion | ReadySegment) -> bytes:
        if self.append_time is None or isinstance(piece, ReadySegment):
            return piece.crcs
        crcs = bytearray()
        for data in read_region(piece):
            set_log_append_time(data, 0, len(data), self.append_time)
            crcs += crcs_of(scan(data, 0, len(data)))
        return bytes(crcs)

    def _newest(self, pieces: Sequence[StagedRegion | ReadySegment]) -> int:
        """The largest time (ms) of the copied records; the segment may have to be rolled before them because of it."""
        if self.append_time is not None:
            return self.append_time
        copied = (piece for piece in pieces if isinstance(piece, StagedRegion))
        times = (header.max_timestamp for piece in copied for header in headers_of(piece))
        return max(times, default=NO_TIMESTAMP)

    # ---- with the lock

    def _apply(self, pieces: Sequence[StagedRegion | ReadySegment], digest: int, newest: int) -> None:
        writer = self.writer
        self._check_staged(pieces)
        active, was_empty = writer.state.active_base, writer.state.position == 0
        steps = list(self._layout(pieces, newest))
        # An installed segment is synced before it gets its name, and so must the intent be.
        installs = any(isinstance(piece, ReadySegment) for piece in pieces)
        end = steps[-1].offset + steps[-1].piece.count
        sync = self.sync or installs or writer.must_sync(end)
        if installs or steps[-1].base != active:
            # A segment begins, which would make those above it live.
            writer.drop_newer_segments()
        self._begin(steps[-1], digest, sync=sync)
        try:
            segment, headers = self._write(steps, sync=sync)
        except (OSError, OutcomeUnknownError, CorruptRecordError, StagedOutputError) as error:
            apply_intent.drop(writer)
            if isinstance(error, _NOT_AS_STAGED):
                raise self._named(error) from error
            raise
        apply_intent.fulfil(writer, synced=sync)
        writer.use_segment(segment)
        writer.index(headers)
        if segment.base_offset != active or (installs and was_empty):
            writer.maintain()

    def _check_staged(self, pieces: Sequence[StagedRegion | ReadySegment]) -> None:
        """Refuses files that were removed since they were linked; the link still exists.

        A process that sets a decision aside moves its files first, and checks each partition under its lock after
        that. So either it finds what is applied here, or it has moved the files before this check.
        """
        for piece in pieces:
            if isinstance(piece, ReadySegment) and not files.exists(piece.staged_path):
                raise self._named(FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), piece.staged_path))

    def _layout(self, pieces: Sequence[StagedRegion | ReadySegment], newest: int) -> Iterator[_Step]:
        writer, state = self.writer, self.writer.state
        base, position, offset = state.active_base, state.position, state.next_offset
        first = pieces[0]
        roll = bool(state.flags & Flags.SUSPECT) or writer.segment.must_roll(
            first.size, offset + first.count - 1, newest
        )
        for piece in pieces:
            # A piece goes into one segment, so the segment's limits are checked for the whole piece.
            full = (
                isinstance(piece, ReadySegment)
                or position > writer.config.segment_bytes - piece.size
                or offset + piece.count - 1 - base > INT_MAX
            )
            if (position > 0 or base != offset) and (full or roll):
                base, position, roll = offset, 0, False
            yield _Step(piece, base, position, offset)
            position += piece.size
            offset += piece.count

    def _begin(self, last: _Step, digest: int, *, sync: bool) -> None:
        state, end = self.writer.state, last.offset + last.piece.count
        # Offsets that a power loss could take back must be reserved before readers see them.
        reserve = end + RESERVE if not sync and end > state.reserve else state.reserve
        begun = state._replace(
            reserve=reserve,
            intent=Intent.APPLY,
            intent_decision=self.decision,
            intent_digest=digest,
            intent_next=end,
            intent_base=last.base,
            intent_position=last.position + last.piece.size,
        )
        self.writer.save(self.writer.claiming(begun), durable=sync or reserve != state.reserve)

    def _write(self, steps: Sequence[_Step], *, sync: bool) -> tuple[SegmentWriter, list[BatchHeader]]:
        """Writes all steps; returns the last segment and its batches that are not indexed yet."""
        writer = self.writer
        segment: SegmentWriter | None = writer.segment
        base, headers, copied, installed = writer.state.active_base, list[BatchHeader](), False, False
        for step in steps:
            piece = step.piece
            if step.base != base and segment is not None:
                segment.enter(headers)
                writer.close_segment(segment, segment.position)
            if isinstance(piece, ReadySegment):
                piece.put(writer.place.folder, step.base, writer.state.leader_epoch)
                segment = None if piece.closed else self._open(step.base, piece.size)
                base, headers, copied, installed = step.base, [], False, True
                continue
            if step.base != base:
                segment, headers = writer.new_segment(step.base), []
                writer.claim()
                base = step.base
            assert segment is not None, "a piece after a complete segment begins another one"
            headers += self._copy(segment, piece, step)
            copied = True
        assert segment is not None, "the last segment is never closed"
        if copied and sync:
            writer.sync_log(segment)
        if installed:
            files.sync_folder(writer.place.folder)
        return segment, headers

    def _open(self, base: int, position: int) -> SegmentWriter:
        writer = self.writer
        return SegmentWriter(writer.place.folder, base, position, writer.config, writer.clock)

    def _copy(self, segment: SegmentWriter, region: StagedRegion, step: _Step) -> Iterator[BatchHeader]:
        offset, target = step.offset, step.position
        for data in read_region(region):
            offset = assign_offsets(data, 0, len(data), offset, self.writer.state.leader_epoch)
            if self.append_time is not None:
                set_log_append_time(data, 0, len(data), self.append_time)
            segment.log.pwrite(data, target)
            if self.sync and region.size >= _WRITE_BACK:
                segment.log.begin_sync(target, len(data))
            yield from scan(data, 0, len(data))
            target += len(data)

