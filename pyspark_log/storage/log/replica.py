"""What a replica needs of a log: to compare its leader epochs with those of the leader, and to truncate its end.

Only tests use it. It is kept, in one place, for replication to come, and because the tests of readers, caches and
recovery check that they are right after a truncation.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from pyspark_log.errors import OffsetOutOfRangeError
from pyspark_log.storage.fs import files
from pyspark_log.storage.log import leader_epochs
from pyspark_log.storage.log.held_log import HeldLog
from pyspark_log.storage.log.leader_epochs import EpochStart
from pyspark_log.storage.log.retention import delete_before
from pyspark_log.storage.log.state.partition_state import Flags
from pyspark_log.storage.segment import SegmentReader, read_headers

#: "No such epoch" and "no such offset" in an answer.
UNDEFINED = -1


def end_offset_for(epochs: Sequence[EpochStart], epoch: int, log_end: int) -> tuple[int, int]:
    """Returns up to which offset a log agrees with a follower whose last record has `epoch`.

    Args:
        epochs: those of the log, oldest first.
        epoch: the follower's.
        log_end: of the log.

    Returns:
        The largest epoch of the log that is not above `epoch`, and the offset at which it ends; for an epoch before
        the first, that epoch itself and the first one's start. (-1, -1): not known.
    """
    if epoch == UNDEFINED or not epochs or epoch > epochs[-1].epoch:
        return UNDEFINED, UNDEFINED
    if epoch == epochs[-1].epoch:
        return epoch, log_end
    later = next(entry for entry in epochs if entry.epoch > epoch)
    return max((entry.epoch for entry in epochs if entry.epoch <= epoch), default=epoch), later.start_offset


def truncate(held: HeldLog, offset: int) -> int:
    """Removes the records from `offset` on, durably; the lock is held. Readers may have seen them.

    Only whole batches are removed: the log then ends after the last batch that is below `offset`. (Kafka ends it at
    `offset` itself, with a hole in front; no log of ours has one.) If that would be below the log start, the log is
    emptied and continues at its start. After a power loss in the middle the end may be in between.

    Returns:
        The log end.

    Raises:
        OffsetOutOfRangeError: below the log start, or above the log end.
        OSError, LogDamagedError: the log ends where it did, or at the new end.
    """
    state, place = held.state, held.place
    if not state.log_start <= offset <= state.next_offset:
        raise OffsetOutOfRangeError(place.topic, place.partition, offset, state.log_start, state.next_offset)
    if offset == state.next_offset:
        return offset
    base, position, end = _place_of(held, offset)
    empty = end < state.log_start
    if empty:
        # What a killed writer has left above the active segment would count once it is above the active one.
        held.drop_newer_segments()
        files.sync_folder(place.folder)
        # Its file is created after the state is saved: earlier it would be among segments that still count.
        base, position, end = state.log_start, 0, state.log_start
    synced = min(position, state.synced) if base == state.active_base else position
    # The epochs that began beyond the new end are removed; the current one continues there.
    leader_epochs.begin(place.folder, state.leader_epoch, end)
    held.lease.save(
        state._replace(
            # What is beyond the new end is now a leftover, which the next holder removes if this one cannot.
            flags=state.flags | Flags.CUTTING,
            active_base=base,
            position=position,
            synced=synced,
            next_offset=end,
            generation=state.generation + 1,
            # Offsets are given to other records: nothing that is cached of them is valid any more.
            incarnation=state.incarnation + 1,
            truncations=state.truncations + 1,
        ),
        durable=True,
    )
    held.invalidate()
    held.cut()
    held.update_side_files()
    if empty:
        # Older segments may hold removed records. What they say of producers before them stays known.
        held.producers.take_snapshot(held.state, held.clock())
        delete_before(held, end)
    return end


def _place_of(held: HeldLog, offset: int) -> tuple[int, int, int]:
    """The batch that holds `offset`: its segment, its position and its first offset."""
    bases = held.bases()
    base = bases[bisect_right(bases, offset) - 1]
    with SegmentReader(held.place.folder, base) as reader:
        size = held.state.position if base == held.state.active_base else reader.log.size()
        position, end = 0, base
        for header in read_headers(reader.log, reader.position_of(offset, size), size):
            position, end = header.position, header.base_offset
            if header.last_offset >= offset:
                break
            position, end = header.end, header.next_offset
    return base, position, end
