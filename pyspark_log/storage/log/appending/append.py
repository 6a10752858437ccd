"""How records get into a log: an append, of a client or of a publish, is a plan that goes through `append`.

`append_in_room` is its shortcut for bytes alone, which small appends in a row take.

Place (and roll), claim, bytes, sync, the move of the end, index entries, in this order: docs/internals/protocol.md has
the reasons. Until the end moves, no reader sees what was written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pyspark_log.config import INT_MAX
from pyspark_log.errors import OutcomeUnknownError, PylogError
from pyspark_log.storage.fs import files
from pyspark_log.storage.log import retention
from pyspark_log.storage.log.appending.appends import Appended
from pyspark_log.storage.log.appending.new_segment import NewSegment
from pyspark_log.storage.log.held_log import HeldLog
from pyspark_log.storage.log.producers.manager import ProducerAppendInfo
from pyspark_log.storage.log.recovery import apply_intent
from pyspark_log.storage.log.state.partition_state import Flags, Intent, PartitionState, check_owner
from pyspark_log.storage.record import BatchHeader, assign_offsets, scan
from pyspark_log.storage.segment import SegmentWriter

#: How far beyond unsynced records offsets are reserved: one sync for each such stretch of records.
RESERVE = 1 << 20
# After this many copied bytes the disk starts to write them, so that the sync has little left to wait for.
_WRITE_BACK = 1024 * 1024


@dataclass(slots=True)
class Copy:
    """Record batches that are copied into a segment.

    Attributes:
        size, count: their bytes and records, at most.
        pieces: whole batches of format 2, back to back, with dense offsets from 0, in memory that may be written to.
            It may change when the next piece is asked for; if they are encoded meanwhile, the next but one.
        headers: the batches' headers, if `pieces` is one piece that has the log's offsets already.
        encoded_meanwhile: whether each piece is written while the next one is made.
    """

    size: int
    count: int
    pieces: Iterable[bytearray | memoryview]
    headers: Sequence[BatchHeader] | None = None
    encoded_meanwhile: bool = False


class Decided(NamedTuple):
    """The decision of which an append is a part: its number, and a digest of the records that identifies them."""

    number: int
    digest: int


class AppendPlan(NamedTuple):
    """What is appended.

    Attributes:
        pieces: the records, in order; each piece goes into one segment. Without a decision it is one copy.
        newest: the largest time (ms) of the copied records.
        sync: whether they are synced before they are visible.
        producers: those batches that have producer ids; none of them is in the log.
        first_undone: for the decision log: its new value in the state.
        decided: the decision that is applied by this; the append is then repeated or undone as a whole after a kill.
        replicated: whether another log has given the records their offsets.
    """

    pieces: Sequence[Copy | NewSegment]
    newest: int
    sync: bool
    producers: Sequence[ProducerAppendInfo] = ()
    first_undone: int | None = None
    decided: Decided | None = None
    replicated: bool = False


class _Step(NamedTuple):
    """A piece, and where in the log it goes: byte `position` of segment `base`, from `offset` on."""

    piece: Copy | NewSegment
    base: int
    position: int
    offset: int


class _Written(NamedTuple):
    """What was written: up to where, into which last segment, and its batches that have no index entries yet."""

    segment: SegmentWriter
    headers: Sequence[BatchHeader]
    position: int
    next_offset: int


def append(log: HeldLog, plan: AppendPlan) -> Appended:
    """Appends records; the lock is held.

    Returns:
        The offsets that they have.

    Raises:
        OSError: e.g. a full disk; nothing was appended.
        OutcomeUnknownError: a sync failed; readers see nothing of the append, but the disk can no longer be trusted
            with this segment. The next append begins another one. Or what a failed append wrote could not be removed:
            the next writer does that, unless a power loss comes first. Or the end could not be moved.
        PartitionOwnedError: another process gives the records their offsets.
        PylogError: what a piece raised; nothing was appended.
    """
    if not plan.replicated:
        check_owner(log.place, log.state, log.leads)
    steps = _place(log, plan)
    before, last = log.state, steps[-1]
    # A new segment is synced before it gets its name, and so must the intent be.
    installs = plan.decided is not None and any(not isinstance(piece, Copy) for piece in plan.pieces)
    sync = plan.sync or installs or log.must_sync(last.offset + last.piece.count)
    if installs or last.base != before.active_base:
        # A segment begins, which would make those above it live.
        log.drop_newer_segments()
    _claim(log, before, plan.decided, last, sync=sync)
    try:
        written = _write(log, before, steps, sync=plan.sync)
        for producer in plan.producers:
            if producer.aborted is not None:
                log.producers.index_aborted(log.state, producer.aborted)
        if sync and isinstance(last.piece, Copy):
            log.sync_log(written.segment)
        if installs:
            files.sync_folder(log.place.folder)
    except (OSError, PylogError) as error:
        _undo(log, error, plan.decided)
        raise
    _move_end(log, plan, written, sync=sync)
    log.use_segment(written.segment)
    log.index(written.segment, written.headers)
    if last.base != before.active_base or (installs and before.position == 0):
        retention.maintain(log)
    return Appended(before.next_offset, written.next_offset)


def append_in_room(
    log: HeldLog, data: bytearray, headers: Sequence[BatchHeader], producers: Sequence[ProducerAppendInfo] = ()
) -> bool:
    """Appends batches, unsynced, that need only the last steps of `append`: bytes, the move of the end, index entries.

    That takes half the time of `append` for a small batch (docs/internals/architecture.md). Errors as there.

    Args:
        log: the log; its lock is held.
        data: batches that have the log's next offsets.
        headers: theirs.
        producers: those that have producer ids; none of them is in the log.

    Returns:
        False: they need another segment, a sync, reserved offsets, or are the first with producer ids, and nothing was
        done.
    """
    held, segment = log.lease.held, log.segment
    state, begin, limits = held.stored, held.position, segment.limits
    if not log.syncs_if_asked or state.synced == begin or state.flags & ~Flags.PRODUCERS:
        return False
    if state.owner_node and state.leader_epoch != log.leads:
        return False
    position, first, end = begin + len(data), held.next_offset, headers[-1].next_offset
    if position > limits.position or end > limits.next_offset or end > state.reserve:
        return False
    for header in headers:
        if header.max_timestamp > limits.timestamp:
            return False
    if producers and not state.flags & Flags.PRODUCERS:
        return False
    try:
        segment.log.pwrite(data, begin)
    except OSError as error:
        _undo(log, error)
        raise
    try:
        held.move_end(end, position, held.high_watermark if state.owner_node else end)
    except OSError as error:
        raise _end_not_moved(log, end, error) from error
    _enter_producers(log, producers, first, end)
    log.index(segment, headers)
    return True


def must_roll(log: HeldLog, size: int, last_offset: int, newest: int) -> bool:
    """Whether records need a new segment; the lock is held. Arguments as `SegmentWriter.must_roll`."""
    return bool(log.lease.held.stored.flags & Flags.SUSPECT) or log.segment.must_roll(size, last_offset, newest)


# ---- before anything is written


def _place(log: HeldLog, plan: AppendPlan) -> Sequence[_Step]:
    """Where each piece goes. Pieces without a decision go into the active segment, after a roll if one is needed."""
    first, state = plan.pieces[0], log.state
    roll = must_roll(log, first.size, state.next_offset + first.count - 1, plan.newest)
    if plan.decided is None:
        if roll:
            log.roll()
            retention.maintain(log)
            state = log.state
        return [_Step(first, state.active_base, state.position, state.next_offset)]
    return list(_layout(log, plan.pieces, roll=roll))


def _layout(log: HeldLog, pieces: Iterable[Copy | NewSegment], *, roll: bool) -> Iterator[_Step]:
    """Places pieces that may need several segments; `roll`: the first one cannot be in the active one."""
    state = log.state
    base, position, offset = state.active_base, state.position, state.next_offset
    for piece in pieces:
        # A piece goes into one segment, so the segment's limits are checked for the whole piece.
        full = (
            not isinstance(piece, Copy)
            or position > log.config.segment_bytes - piece.size
            or offset + piece.count - 1 - base > INT_MAX
        )
        if (position > 0 or base != offset) and (full or roll):
            base, position, roll = offset, 0, False
        yield _Step(piece, base, position, offset)
        position += piece.size
        offset += piece.count


def _claim(log: HeldLog, state: PartitionState, decided: Decided | None, last: _Step, *, sync: bool) -> None:
    """Makes the state ready for records up to the end of the last step: reserve, mark or intent. OSError."""
    end = last.offset + last.piece.count
    # Before readers see offsets that a power loss could undo: none of these is ever used again.
    reserve = end + RESERVE if not sync and end > state.reserve else state.reserve
    if decided is None:
        if reserve != state.reserve:
            log.lease.save(state._replace(reserve=reserve), durable=True)
        log.lease.claim()
        return
    begun = state._replace(
        reserve=reserve,
        intent=Intent.APPLY,
        intent_decision=decided.number,
        intent_digest=decided.digest,
        intent_next=end,
        intent_base=last.base,
        intent_position=last.position + last.piece.size,
    )
    log.lease.save(log.lease.claiming(begun), durable=sync or reserve != state.reserve)


# ---- the bytes


def _write(log: HeldLog, state: PartitionState, steps: Sequence[_Step], *, sync: bool) -> _Written:
    """Writes all steps; `sync`: the copied bytes will be synced."""
    segment: SegmentWriter | None = log.segment
    headers: list[BatchHeader] = []
    base, epoch = state.active_base, state.leader_epoch
    end = position = 0
    for step in steps:
        piece = step.piece
        if step.base != base and segment is not None:
            segment.enter(headers)
            log.close_segment(segment, segment.position)
        if not isinstance(piece, Copy):
            piece.put(log.place.folder, step.base, epoch)
            segment = None if piece.inactive else _opened(log, step.base, piece.size)
            base, headers = step.base, []
            end, position = step.offset + piece.count, piece.size
            continue
        if step.base != base:
            segment, headers = log.new_segment(step.base), []
            log.lease.claim()
            base = step.base
        assert segment is not None, "a piece after a complete segment begins another one"
        copied, position = _copied(segment, step, epoch, early=sync and piece.size >= _WRITE_BACK)
        headers += copied
        end = copied[-1].next_offset
    assert segment is not None, "the last segment is the active one"
    return _Written(segment, headers, position, end)


def _opened(log: HeldLog, base: int, position: int) -> SegmentWriter:
    return SegmentWriter(log.place.folder, base, position, log.config, log.clock)


def _copied(segment: SegmentWriter, step: _Step, epoch: int, *, early: bool) -> tuple[Sequence[BatchHeader], int]:
    """Writes a copy; returns the headers and where it ends. `early`: the disk begins to write each piece at once."""
    copy, target, offset = step.piece, step.position, step.offset
    assert isinstance(copy, Copy)
    if copy.headers is not None:
        for piece in copy.pieces:
            segment.log.pwrite(piece, target)
        return copy.headers, target + copy.size
    headers: list[BatchHeader] = []
    with contextlib.ExitStack() as held:
        background = held.enter_context(files.BackgroundWriter()) if copy.encoded_meanwhile else None
        for piece in copy.pieces:
            offset = assign_offsets(piece, 0, len(piece), offset, epoch)
            headers += scan(piece, 0, len(piece))
            if background is not None:
                background.pwrite(segment.log, piece, target)
            else:
                segment.log.pwrite(piece, target)
                if early:
                    segment.log.begin_sync(target, len(piece))
            target += len(piece)
    return headers, target


def _undo(log: HeldLog, failure: Exception, decided: Decided | None = None) -> None:
    """Removes everything beyond the log end after a failed write.

    Raises:
        OutcomeUnknownError: that failed too. The next holder truncates; after a power loss whole batches are adopted.
        OSError: the same, and the intent of a decision is still there, for the next holder.
    """
    if decided is not None:
        apply_intent.drop(log)
        return
    try:
        log.cut()
    except (OSError, OutcomeUnknownError) as error:
        log.invalidate()
        raise OutcomeUnknownError(
            f"{log.place}: an append failed ({failure}), and the bytes that it wrote could not be removed ({error})"
        ) from failure


# ---- the end


def _move_end(log: HeldLog, plan: AppendPlan, written: _Written, *, sync: bool) -> None:
    """Shows readers what was written. OutcomeUnknownError, or for a decision OSError."""
    if plan.decided is not None:
        apply_intent.fulfil(log, synced=sync)
        return
    state, end, producers = log.state, written.next_offset, plan.producers
    # All that changes at once: each copy of a state takes a microsecond of a small append.
    moved = state._replace(
        seq=state.seq + 1,
        next_offset=end,
        high_watermark=state.high_watermark if state.is_replica else end,
        position=written.position,
        synced=written.position if sync else state.synced,
        unsynced_since=log.unsynced_since(),
        first_undone=state.first_undone if plan.first_undone is None else plan.first_undone,
        flags=state.flags & ~Flags.CLAIMED | (Flags.PRODUCERS if producers else Flags.NONE),
    )
    try:
        # A power loss can undo this and leave the batches, which are then adopted.
        log.lease.save(moved, durable=False)
    except OSError as error:
        raise _end_not_moved(log, end, error) from error
    _enter_producers(log, producers, state.next_offset, end)


def _enter_producers(log: HeldLog, producers: Sequence[ProducerAppendInfo], first: int, end: int) -> None:
    """Takes in the producers of what was appended at [first, end)."""
    for producer in producers:
        log.producers.enter(producer)
    log.producers.skip(producers[-1].header.next_offset if producers else first, end)


def _end_not_moved(log: HeldLog, end: int, error: OSError) -> OutcomeUnknownError:
    """The error that is raised when the batches were written, and it is not known whether readers see them."""
    log.invalidate()
    return OutcomeUnknownError(
        f"{log.place}: the log end could not be moved to {end} ({error}); read it before trying again"
    )
