"""Lets go of old segments: those below the log start, those beyond a topic's size, those past its time.

The rules are Kafka's (UnifiedLog.deleteOldSegments). Segments go from the front only, whole, and the log start moves
to the next one's base. First the state says so, durably; then the files get the suffix `.deleted`, under which
readers that have them open go on; and after file.delete.delay.ms whoever does the next pass removes them.
"""

from __future__ import annotations

import logging
import os
from bisect import bisect_right
from collections.abc import Sequence

from pyspark_log.errors import CorruptRecordError, OffsetOutOfRangeError
from pyspark_log.storage.fs import files
from pyspark_log.storage.log import segment_cache
from pyspark_log.storage.log.held_log import HeldLog
from pyspark_log.storage.segment import DELETED, LOG, NO_OFFSET, SegmentReader, mark_deleted, segment_path

log = logging.getLogger(__name__)


def clean(held: HeldLog) -> int:
    """One pass over a partition, whose lock is held; returns how many segments went.

    Raises:
        OSError, OutcomeUnknownError: what is done so far counts; the next pass goes on.
    """
    place, config, state = held.place, held.config, held.state
    now = held.clock()
    bases = held.bases()
    # An empty active segment never goes; one that is not empty may, with all before it.
    limit = len(bases) if state.position else len(bases) - 1
    count = _below_start(held, bases)
    if config.deletes and config.retention_bytes >= 0:
        count = _beyond_size(_sizes(held, bases), count, limit, config.retention_bytes)
    if config.deletes and config.retention_ms >= 0:
        oldest = now - config.retention_ms
        ends = [*bases[1:], NO_OFFSET]
        while count < limit and _newest(held, bases[count], ends[count], oldest) < oldest:
            count += 1
    if count:
        _let_go(held, bases, count)
    held.tell_folder()
    _note_closed(held, bases[count:])
    # The time anew: what was let go just now is younger than the time from before.
    remove_overdue(place.folder, config.file_delete_delay_ms, held.clock())
    return count


def delete_before(held: HeldLog, offset: int) -> None:
    """Moves the log start up to `offset`, durably; the lock is held. A start that is beyond it stays.

    Raises:
        OffsetOutOfRangeError: above the log end.
        OSError, OutcomeUnknownError: whether the log start has moved is not certain; it can be done again.
    """
    state, place = held.state, held.place
    if not 0 <= offset <= state.next_offset:
        raise OffsetOutOfRangeError(place.topic, place.partition, offset, state.log_start, state.next_offset)
    if offset > state.log_start:
        # Synced first: the log must not end before its start after a power loss.
        held.settle()
        held.save(held.state._replace(log_start=offset), durable=True)
    bases = held.bases()
    count = _below_start(held, bases)
    if count:
        _let_go(held, bases, count)
    held.tell_folder()
    _note_closed(held, bases[count:])


def remove_overdue(folder: str, delay_ms: int, now: int) -> None:
    """Removes the files in a partition's folder that were let go `delay_ms` or more before `now` (ms)."""
    for name in files.list_folder(folder):
        if name.endswith(DELETED):
            path = f"{folder}/{name}"
            # Its renaming was the last change to the file.
            if now - files.status_of(path).st_ctime_ns // 1_000_000 >= delay_ms:
                files.unlink(path)


def _note_closed(held: HeldLog, left: Sequence[int]) -> None:
    """Has what is known of closed segments follow, after a roll too; `left` are the segments that did not go."""
    segment_cache.bring_up(held.place, left or [held.state.active_base])


def _below_start(held: HeldLog, bases: Sequence[int]) -> int:
    """How many segments end before the log start: those behind which another one begins by then."""
    return bisect_right(bases[1:], held.state.log_start)


def _sizes(held: HeldLog, bases: Sequence[int]) -> list[int]:
    closed = (segment_path(held.place.folder, base, LOG) for base in bases[:-1])
    return [*map(files.size_of, closed), held.state.position]


def _beyond_size(sizes: Sequence[int], count: int, limit: int, most: int) -> int:
    """How many segments go by size, `count` of them anyway: as many as leave `most` bytes or more."""
    excess = sum(sizes[count:]) - most
    while count < limit and excess >= sizes[count]:
        excess -= sizes[count]
        count += 1
    return count


def _newest(held: HeldLog, base: int, until: int, enough: int) -> int:
    """The largest time of a segment's records, in ms, or one that is `enough`; if they have none, its file's."""
    reader = SegmentReader(held.place.folder, base, until=until)
    try:
        size = held.state.position if base == held.state.active_base else reader.log.size()
        largest = reader.largest_timestamp(size)
        if largest < enough:
            # An index that has lost entries says too little, and what goes does not come back: the log must say so too.
            largest = max(header.max_timestamp for header in reader.headers(0, size))
        return largest if largest >= 0 else os.fstat(reader.log.fd).st_mtime_ns // 1_000_000
    except CorruptRecordError as error:
        log.warning("%s: a damaged segment is kept, and so are those behind it: %s", held.place, error)
        return enough
    finally:
        reader.close()


def _let_go(held: HeldLog, bases: Sequence[int], count: int) -> None:
    if count == len(bases):
        held.roll()
    state, place = held.state, held.place
    start = bases[count] if count < len(bases) else state.active_base
    start = max(start, state.log_start)
    log.info("%s: %d segments go; the log starts at offset %d", place, count, start)
    held.save(state._replace(log_start=start, generation=state.generation + 1), durable=True)
    mark_deleted(place.folder, bases[:count])
