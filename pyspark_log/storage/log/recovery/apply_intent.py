"""The intent to apply a decision: written to a partition's state before the records, and resolved after a crash.

It names the decision, says where its records begin and end, and has a digest of them. So it can be decided later
whether the bytes beyond the log end are this decision's, complete, or scrap. Recovery needs nothing else.
"""

from __future__ import annotations

from pyspark_log.storage.fs import files
from pyspark_log.storage.log.held_log import HeldLog, write_again
from pyspark_log.storage.log.recovery import swap
from pyspark_log.storage.log.state.partition_state import Flags, check_length
from pyspark_log.storage.record import crc32c
from pyspark_log.storage.record.layout import crcs_of
from pyspark_log.storage.segment import SegmentWriter
from pyspark_log.storage.segment.batch_stream import intact_batches
from pyspark_log.storage.segment.file_names import INDEX, LOG, TIME_INDEX, list_segments, segment_path


def fulfil(held: HeldLog, *, synced: bool) -> None:
    """Completes the intent in one write of the state; `synced`: its records are on the disk."""
    state = held.state
    rolled = state.intent_base != state.active_base
    finished = Flags.CLAIMED | Flags.SUSPECT if rolled else Flags.CLAIMED
    # An active segment that was empty may be another file by now.
    changed = rolled or state.position == 0
    held.lease.save(
        state.without_intent()._replace(
            next_offset=state.intent_next,
            active_base=state.intent_base,
            position=state.intent_position,
            synced=state.intent_position if synced else 0 if rolled else state.synced,
            unsynced_since=held.unsynced_since(),
            applied=state.intent_decision,
            generation=state.generation + changed,
            flags=state.flags & ~finished,
        ),
        # Without this write a power loss leads to the same end, as intent and bytes are on the disk; but the list
        # of segments must not change back under a reader.
        durable=changed,
    )


def renew_empty(held: HeldLog) -> None:
    """Replaces an active segment without live records by an empty file, after the intent has used it.

    It may be staged output under a second name, which must not be truncated: the decision is still to be applied.
    Atomically, since readers look for the segment.
    """
    state, folder = held.state, held.place.folder
    path = segment_path(folder, state.active_base, LOG)
    if state.position == 0 and files.exists(path) and files.size_of(path) > 0:
        held.lease.claim()
        files.replace_whole(path, b"")
        for suffix in (INDEX, TIME_INDEX):
            held.lease.unlink(segment_path(folder, state.active_base, suffix))


def drop(held: HeldLog) -> None:
    """Drops the intent with all of its records, so that no later append can be taken for it."""
    held.invalidate()
    if not held.lease.may_cut:
        return
    renew_empty(held)
    held.cut()
    # The active segment may be another file than before; processes that have the old one open must open it again.
    held.lease.save(held.state.without_intent()._replace(generation=held.state.generation + 1), durable=True)


def resolve(held: HeldLog) -> None:
    """Finishes or drops the intent that a killed holder left. The lock is held."""
    if held.state.swaps:
        swap.finish(held)
    elif is_whole(held):
        finish(held)
    else:
        drop(held)


def finish(held: HeldLog, *, again: bool = False) -> None:
    """Finishes an intent whose batches are there; `again`: a sync of them may have failed. The lock is held."""
    for base in _bases(held):
        path = segment_path(held.place.folder, base, LOG)
        with files.open_write(path) as log:
            if again:
                write_again(log, held.state.synced if base == held.state.active_base else 0, log.size())
            held.sync_file(log)
            if base != held.state.intent_base:
                # Its writer may have died before the indexes were written, and those of an inactive segment are not
                # rebuilt.
                writer = SegmentWriter(held.place.folder, base, log.size(), held.config, held.clock)
                writer.finish()
                writer.close()
    files.sync_folder(held.place.folder)
    fulfil(held, synced=True)
    held.lease.save(held.state, durable=True)


def is_whole(held: HeldLog) -> bool:
    """Whether exactly the intent's batches are beyond the log end, and can be on the disk."""
    state = held.state
    if state.flags & Flags.SUSPECT:
        return False  # A sync has failed for them: they may be in memory only.
    offset, position, crcs = state.next_offset, state.position, bytearray()
    bases = _bases(held)
    if not bases or bases[-1] != state.intent_base:
        return False
    for base in bases:
        with files.open_read(segment_path(held.place.folder, base, LOG)) as file:
            end = state.intent_position if base == state.intent_base else file.size()
            if base == state.active_base:
                check_length(held.place, file.path, file.size(), state.position)
            for header in intact_batches(file, position, end, offset):
                position, offset = header.end, header.next_offset
                crcs += crcs_of([header])
        if position != end:
            return False
        position = 0
    return offset == state.intent_next and crc32c(bytes(crcs)) == state.intent_digest


def _bases(held: HeldLog) -> list[int]:
    """The segments that hold or will hold the intent's records, and the active one."""
    state = held.state
    return [base for base in list_segments(held.place.folder) if state.active_base <= base <= state.intent_base]
