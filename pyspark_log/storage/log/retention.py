"""Deletes old segments: those below the log start, those beyond a topic's size, those past its time.

The rules are Kafka's (UnifiedLog.deleteOldSegments). Only whole segments at the front are deleted, and the log start
moves to the next one's base. First the state records that, durably; then the files get the suffix `.deleted`, under
which readers that have them open keep reading; and after file.delete.delay.ms the next pass of any process deletes
them.
"""

from __future__ import annotations

import logging
import os
from bisect import bisect_right
from collections.abc import Sequence

from pyspark_log.errors import CorruptRecordError, OffsetOutOfRangeError, PylogError
from pyspark_log.storage.fs import files
from pyspark_log.storage.log.held_log import HeldLog
from pyspark_log.storage.log.read import segment_cache
from pyspark_log.storage.segment import NO_OFFSET, SegmentReader
from pyspark_log.storage.segment.file_names import DELETED, LOG, mark_deleted, segment_path

log = logging.getLogger(__name__)


def maintain(held: HeldLog) -> None:
    """Runs one pass after a segment has begun. Errors are logged, never raised; the next segment's pass tries again."""
    try:
        clean(held)
    except (OSError, PylogError) as error:
        log.warning("%s: old segments could not be removed: %s", held.place, error)
        held.reload()


def clean(held: HeldLog) -> int:
    """Runs one pass over a partition, whose lock is held; returns how many segments were deleted.

    Raises:
        OSError, OutcomeUnknownError: what is done so far stays; the next pass continues.
    """
    place, config, state = held.place, held.config, held.state
    now = held.clock()
    bases = held.bases()
    # An empty active segment is never deleted; another one may be, with all segments before it.
    limit = len(bases) if state.position else len(bases) - 1
    if state.high_watermark < state.next_offset:
        # The rest of a replica may yet be taken back.
        limit = bisect_right(bases[1:], state.high_watermark)
    count = _below_start(held, bases)
    if config.deletes and config.retention_bytes >= 0:
        count = _beyond_size(_sizes(held, bases), count, limit, config.retention_bytes)
    if config.deletes and config.retention_ms >= 0:
        oldest = now - config.retention_ms
        ends = [*bases[1:], NO_OFFSET]
        while count < limit and _newest(held, bases[count], ends[count], oldest) < oldest:
            count += 1
    if count:
        _delete_segments(held, bases, count)
    held.update_side_files()
    _note_largest_timestamps(held, bases[count:])
    # The time is read again: the files that were just marked are younger than the time from before.
    remove_overdue(place.folder, config.file_delete_delay_ms, held.clock())
    return count


def delete_before(held: HeldLog, offset: int) -> None:
    """Moves the log start up to `offset`, durably; the lock is held. A log start beyond it is kept.

    Raises:
        OffsetOutOfRangeError: above the log end.
        OSError, OutcomeUnknownError: it is not known whether the log start has moved; the call can be repeated.
    """
    state, place = held.state, held.place
    if not 0 <= offset <= state.next_offset:
        raise OffsetOutOfRangeError(place.topic, place.partition, offset, state.log_start, state.next_offset)
    if offset > state.log_start:
        # Synced first: after a power loss the log must not end below its start.
        held.flush()
        held.lease.save(held.state._replace(log_start=offset), durable=True)
    bases = held.bases()
    count = _below_start(held, bases)
    if count:
        _delete_segments(held, bases, count)
    held.update_side_files()
    _note_largest_timestamps(held, bases[count:])


def remove_overdue(folder: str, delay_ms: int, now: int) -> None:
    """Deletes the files in a partition's folder that were marked as deleted `delay_ms` or more before `now` (ms)."""
    for name in files.list_folder(folder):
        if name.endswith(DELETED):
            path = f"{folder}/{name}"
            # Its renaming was the last change to the file.
            if now - files.status_of(path).st_ctime_ns // 1_000_000 >= delay_ms:
                files.unlink(path)


def _note_largest_timestamps(held: HeldLog, left: Sequence[int]) -> None:
    """Updates the cache of inactive segments, after a roll too; `left` are the segments that were not deleted."""
    segment_cache.update(held.place, left or [held.state.active_base])


def _below_start(held: HeldLog, bases: Sequence[int]) -> int:
    """How many segments end at or below the log start: the next one begins there or earlier."""
    return bisect_right(bases[1:], held.state.log_start)


def _sizes(held: HeldLog, bases: Sequence[int]) -> list[int]:
    closed = (segment_path(held.place.folder, base, LOG) for base in bases[:-1])
    return [*map(files.size_of, closed), held.state.position]


def _beyond_size(sizes: Sequence[int], count: int, limit: int, most: int) -> int:
    """How many segments exceed the size, `count` of them in any case: as many as leave `most` bytes or more."""
    excess = sum(sizes[count:]) - most
    while count < limit and excess >= sizes[count]:
        excess -= sizes[count]
        count += 1
    return count


def _newest(held: HeldLog, base: int, until: int, enough: int) -> int:
    """The largest time of a segment's records, in ms, or one of at least `enough`; if they have none, its file's."""
    reader = SegmentReader(held.place.folder, base, until=until)
    try:
        size = held.state.position if base == held.state.active_base else reader.log.size()
        largest = reader.largest_timestamp(size)
        if largest < enough:
            # An index that has lost entries gives too small a time, and a deletion is final: the log must confirm it.
            largest = max(header.max_timestamp for header in reader.headers(0, size))
        return largest if largest >= 0 else os.fstat(reader.log.fd).st_mtime_ns // 1_000_000
    except CorruptRecordError as error:
        log.warning("%s: a damaged segment is kept, and so are those after it: %s", held.place, error)
        return enough
    finally:
        reader.close()


def _delete_segments(held: HeldLog, bases: Sequence[int], count: int) -> None:
    if count == len(bases):
        held.roll()
    state, place = held.state, held.place
    start = bases[count] if count < len(bases) else state.active_base
    start = max(start, state.log_start)
    log.info("%s: deleting %d segments; the log starts at offset %d", place, count, start)
    held.lease.save(state._replace(log_start=start, generation=state.generation + 1), durable=True)
    mark_deleted(place.folder, bases[:count])
