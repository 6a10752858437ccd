"""Puts the staged records of a decision into one partition, once; and finishes what a killed one began.

An intent in the state file comes first, durably: which decision, where its records begin and end, and a
digest of them. Then the bytes. Then one move of the end that also says "applied up to this decision". So
whatever is found later tells whether the bytes behind the end are this decision's, whole, or scrap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyspark_log.storage import files
from pyspark_log.storage.appender import Appender
from pyspark_log.storage.batch import BatchHeader
from pyspark_log.storage.checksum import crc32c
from pyspark_log.storage.config import INT_MAX
from pyspark_log.storage.errors import (
    CorruptRecordError,
    LogDamagedError,
    OutcomeUnknownError,
    StagedOutputError,
)
from pyspark_log.storage.locks import DEFAULT_TIMEOUT
from pyspark_log.storage.records import restamp, scan, stamp
from pyspark_log.storage.segment import LOG, SegmentWriter, list_segments, read_headers, segment_path
from pyspark_log.storage.state_file import Flags, Intent
from pyspark_log.storage.types import NO_TIMESTAMP

# Staged bytes are copied this many at a time: enough that calls cost nothing, little enough for memory.
_COPY_SIZE = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Region:
    """Staged record batches of one partition, back to back, with offsets from 0.

    Attributes:
        path: the file that holds them.
        position, size: where in it, in bytes.
        count: how many records, which is how many offsets they take.
        crcs: the batches' CRC fields, 4 bytes each; it tells these batches from all others.
    """

    path: str
    position: int
    size: int
    count: int
    crcs: bytes


def apply(
    appender: Appender,
    decision: int,
    decided_at: int,
    regions: Sequence[Region],
    *,
    timeout: float = DEFAULT_TIMEOUT,
) -> bool:
    """Appends the regions in order, as one, unless that was done already; True if it was done here.

    Args:
        appender: of the partition.
        decision: the decision's number.
        decided_at: when it was made (ms); the records' time if the topic has LogAppendTime, whoever applies it.
        regions: what the partition gets.
        timeout: how long to wait for the lock, in seconds.

    Raises:
        StagedOutputError: a region is missing, or is not what was decided; nothing was appended.
        OSError: e.g. a full disk; nothing was appended, and it can be tried again.
        LockTimeoutError, UnknownTopicError, LogDamagedError: as Appender.hold says.
    """
    with appender.hold(timeout):
        if appender.state.applied >= decision:
            return False
        active = appender.state.active_base
        append_time = decided_at if appender.config.log_append_time else None
        steps = list(_layout(appender, regions, append_time))
        appender.drop_newer_segments()
        try:
            digest = _digest(regions, append_time)
        except (FileNotFoundError, CorruptRecordError) as error:
            raise StagedOutputError(f"{appender.place}: decision {decision}: {error}") from error
        _begin(appender, decision, digest, steps[-1])
        try:
            segment, headers = _write(appender, steps, append_time)
        except (OSError, OutcomeUnknownError, CorruptRecordError, StagedOutputError) as error:
            _drop(appender)
            if isinstance(error, CorruptRecordError | FileNotFoundError):
                raise StagedOutputError(f"{appender.place}: decision {decision}: {error}") from error
            raise
        _move_end(appender)
        appender.use_segment(segment)
        appender.index(headers)
        if segment.base_offset != active:
            appender.maintain()
        return True


@dataclass(frozen=True, slots=True)
class _Step:
    """One region and where in the log it goes: byte `position` of segment `base`, from `offset` on."""

    region: Region
    base: int
    position: int
    offset: int


def _layout(appender: Appender, regions: Sequence[Region], append_time: int | None) -> Iterator[_Step]:
    state = appender.state
    base, position, offset = state.active_base, state.position, state.next_offset
    first = regions[0]
    newest = max(map(_newest, regions)) if append_time is None else append_time
    roll = bool(state.flags & Flags.SUSPECT) or appender.segment.must_roll(
        first.size, offset + first.count - 1, newest
    )
    for region in regions:
        # A region is written in one piece, so the limits of a segment are looked at for it as a whole.
        full = position > appender.config.segment_bytes - region.size or offset + region.count - 1 - base > INT_MAX
        if position > 0 and (full or roll):
            base, position, roll = offset, 0, False
        yield _Step(region, base, position, offset)
        position += region.size
        offset += region.count


def _newest(region: Region) -> int:
    """The largest time of a region's records, in ms. If it cannot be read, copying it will say why."""
    try:
        with files.open_read(region.path) as source:
            headers = read_headers(source, region.position, region.position + region.size)
            return max(header.max_timestamp for header in headers)
    except (OSError, CorruptRecordError):
        return NO_TIMESTAMP


def _digest(regions: Sequence[Region], append_time: int | None) -> int:
    """What tells the records of this decision from all others, as they will be in the log."""
    if append_time is None:
        return crc32c(b"".join(region.crcs for region in regions))
    crcs = bytearray()
    for region in regions:
        for data in _staged(region):
            restamp(data, 0, len(data), append_time)
            crcs += _crcs(scan(data, 0, len(data)))
    return crc32c(bytes(crcs))


def _crcs(headers: Sequence[BatchHeader]) -> bytes:
    return b"".join(header.crc.to_bytes(4, "big") for header in headers)


def _begin(appender: Appender, decision: int, digest: int, last: _Step) -> None:
    appender.save(
        appender.state._replace(
            intent=Intent.APPLY,
            intent_decision=decision,
            intent_digest=digest,
            intent_next=last.offset + last.region.count,
            intent_base=last.base,
            intent_position=last.position + last.region.size,
        ),
        durable=True,
    )


def _write(
    appender: Appender, steps: Sequence[_Step], append_time: int | None
) -> tuple[SegmentWriter, list[BatchHeader]]:
    """Writes all steps durably; gives the last segment and its batches that are not indexed yet."""
    segment, headers = appender.segment, list[BatchHeader]()
    for step in steps:
        if step.base != segment.base_offset:
            segment.enter(headers)
            appender.close_segment(segment, segment.position)
            segment, headers = appender.new_segment(step.base), []
        headers += _copy(segment, step, appender.state.leader_epoch, append_time)
    appender.sync_log(segment)
    return segment, headers


def _copy(segment: SegmentWriter, step: _Step, epoch: int, append_time: int | None) -> Iterator[BatchHeader]:
    offset, target = step.offset, step.position
    for data in _staged(step.region):
        offset = stamp(data, 0, len(data), offset, epoch)
        if append_time is not None:
            restamp(data, 0, len(data), append_time)
        segment.log.pwrite(data, target)
        yield from scan(data, 0, len(data))
        target += len(data)
    if offset != step.offset + step.region.count:
        raise StagedOutputError(f"{step.region.path}: the part at {step.region.position} holds other counts than said")


def _staged(region: Region) -> Iterator[bytearray]:
    """The batches of a region, some at a time, with every CRC checked; at the end, whether they are the right ones."""
    crcs = bytearray()
    with files.open_read(region.path) as source:
        position, end = region.position, region.position + region.size
        while position < end:
            data = bytearray(source.pread(min(_COPY_SIZE, end - position), position))
            data = _whole_batches(data, region, end - position, source, position)
            crcs += _crcs(scan(data, 0, len(data), check_crcs=True))
            position += len(data)
            yield data
    if crcs != region.crcs:
        raise StagedOutputError(f"{region.path}: the bytes at {region.position} are not those that were staged")


def _whole_batches(data: bytearray, region: Region, left: int, source: files.File, position: int) -> bytearray:
    """The whole batches at the start of `data`; at least one, for which more is read if need be."""
    headers = scan(data, 0, len(data))
    if not headers and len(data) < left:
        data = bytearray(source.pread(left, position))
        headers = scan(data, 0, len(data))
    if not headers:
        raise StagedOutputError(f"{region.path}: no whole record batch at byte {position}")
    del data[headers[-1].end :]
    return data


def _move_end(appender: Appender) -> None:
    """The intent comes true, in one write."""
    state = appender.state
    rolled = state.intent_base != state.active_base
    appender.save(
        state.without_intent()._replace(
            next_offset=state.intent_next,
            active_base=state.intent_base,
            position=state.intent_position,
            synced=state.intent_position,
            applied=state.intent_decision,
            generation=state.generation + rolled,
            flags=state.flags & ~Flags.SUSPECT if rolled else state.flags,
        ),
        # Without it a power loss leads to the same end, as intent and bytes are on the disk; but the list
        # of segments must not change back under a reader.
        durable=rolled,
    )


def _drop(appender: Appender) -> None:
    """Nothing of the decision stays, and no later append can be taken for it."""
    appender.forget()
    appender.cut()
    appender.save(appender.state.without_intent(), durable=True)


def resolve(appender: Appender) -> None:
    """Finishes or drops the intent that a killed holder left. The lock is held."""
    state = appender.state
    if is_whole(appender):
        for base in list_segments(appender.place.folder):
            if state.active_base <= base <= state.intent_base:
                with files.open_write(segment_path(appender.place.folder, base, LOG)) as segment:
                    segment.sync()
        files.sync_folder(appender.place.folder)
        _move_end(appender)
        appender.save(appender.state, durable=True)
    else:
        _drop(appender)


def is_whole(appender: Appender) -> bool:
    """Whether exactly the intent's batches stand behind the end, and can be on the disk."""
    state = appender.state
    if state.flags & Flags.SUSPECT:
        return False  # A sync has failed for them: they may be in memory only.
    offset, start, crcs = state.next_offset, state.position, bytearray()
    bases = [b for b in list_segments(appender.place.folder) if state.active_base <= b <= state.intent_base]
    if not bases or bases[-1] != state.intent_base:
        return False
    for base in bases:
        file = files.open_read(segment_path(appender.place.folder, base, LOG))
        try:
            end = state.intent_position if base == state.intent_base else file.size()
            if base == state.active_base and file.size() < state.position:
                raise LogDamagedError(
                    f"{appender.place}: {file.path} ends before byte {state.position}, which it once held"
                )
            for header in _checked(file, start, end):
                if header.base_offset != offset:
                    return False
                offset = header.next_offset
                crcs += _crcs([header])
        except CorruptRecordError:
            return False
        finally:
            file.close()
        start = 0
    return offset == state.intent_next and crc32c(bytes(crcs)) == state.intent_digest


def _checked(file: files.File, start: int, end: int) -> Iterator[BatchHeader]:
    """The batches in [start, end) of a log, each with its CRC checked. CorruptRecordError."""
    position = start
    while position < end:
        data = file.pread(min(_COPY_SIZE, end - position), position)
        headers = scan(data, 0, len(data), check_crcs=True)
        if not headers and len(data) < end - position:
            data = file.pread(end - position, position)
            headers = scan(data, 0, len(data), check_crcs=True)
        if not headers:
            raise CorruptRecordError("no whole batch", position, file=file.path)
        yield from headers
        position += headers[-1].end
