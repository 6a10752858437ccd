"""Recovers a partition after a power loss.

What was synced is intact; any part of all else may be intact, torn or missing: bytes of the log, index entries,
unsynced moves of the log end. So the log itself is read, batch by batch with every CRC:

- Complete batches beyond the recorded end are adopted. They were acknowledged, or their writer died before it
  could acknowledge them; a synced append may be there, since the move of the end may be lost.
- Torn bytes are truncated. If they were below the end, unsynced records are lost; that is what "not synced" means.
- Offsets that readers may have seen are never given to other records. Before unsynced records were shown, a
  reserve above them was made durable; the log continues there, after an empty batch that fills the gap. But in a copy
  of another log each offset has its record for good, and is fetched again.

Only the last write, which is synced, has the new boot id. So a second power loss starts this again.
"""

from __future__ import annotations

import contextlib
import logging

from pyspark_log.errors import LogDamagedError
from pyspark_log.storage.catalog import PartitionPath
from pyspark_log.storage.fs import files
from pyspark_log.storage.log.held_log import HeldLog, write_again
from pyspark_log.storage.log.recovery import apply_intent, swap
from pyspark_log.storage.log.state import state_file
from pyspark_log.storage.log.state.partition_state import NO_OWNER, Flags, Intent, PartitionState, check_length
from pyspark_log.storage.record.empty_batch import empty_batch
from pyspark_log.storage.segment import SegmentWriter
from pyspark_log.storage.segment.batch_stream import intact_batches
from pyspark_log.storage.segment.file_names import INDEX, LOG, TIME_INDEX, TXN_INDEX, segment_path

log = logging.getLogger(__name__)


def after_restart(held: HeldLog) -> None:
    """Recovers files and state of a partition. Its lock is held, and its state is of an earlier boot."""
    held.invalidate()
    # What is read now is on the disk, except for what an earlier attempt has written and could not sync.
    again = bool(held.state.flags & Flags.SUSPECT)
    held.lease.trust()
    if held.state.swaps:
        swap.finish(held)
    elif held.state.intent != Intent.NONE:
        _settle_intent(held, again=again)
    state = held.state
    path = segment_path(held.place.folder, state.active_base, LOG)
    try:
        file = files.open_write(path)
    except FileNotFoundError:
        if state.position > 0:
            raise LogDamagedError(f"{held.place}: {path} is missing; it held {state.position} bytes") from None
        # Segments that a truncation has removed, if it did not reach its last step.
        held.drop_newer_segments()
        if files.is_folder(held.place.folder):
            files.sync_folder(held.place.folder)
        _finish(held, state)
        return
    with file:
        position, found, flags = _whole_up_to(held.place, file, state)
        if found < state.next_offset:
            log.error(
                "%s: a power loss came before offsets %d to %d were synced; they are lost",
                held.place,
                found,
                state.next_offset - 1,
            )
        end = max(found, state.reserve) if state.owner_node == NO_OWNER else found
        if file.size() > position:
            file.truncate(position)
        if again:
            write_again(file, state.synced, position)
        if end > found:
            filler = empty_batch(found, end, state.leader_epoch)
            file.pwrite(filler, position)
            position += len(filler)
        held.sync_file(file)
    # Unsynced index entries may be missing, which the indexes do not show.
    stale = [INDEX, TIME_INDEX]
    if not flags & Flags.PRODUCERS:
        stale.append(TXN_INDEX)  # Of a transaction that is lost, with the state that named it.
    for suffix in stale:
        files.unlink(segment_path(held.place.folder, state.active_base, suffix))
    held.drop_newer_segments()
    files.sync_folder(held.place.folder)
    SegmentWriter(held.place.folder, state.active_base, position, held.config).close()
    state = state._replace(flags=flags, next_offset=end, position=position, synced=position, reserve=end)
    held.producers.rebuild(state, state.active_base)
    held.cut_epochs(end)
    _finish(held, state)


def _finish(held: HeldLog, state: PartitionState) -> None:
    held.lease.repair_slots()
    held.lease.save(
        state.without_intent()._replace(
            flags=state.flags & ~(Flags.CUTTING | Flags.SUSPECT),
            boot=state_file.this_boot(),
            incarnation=state.incarnation + 1,
            generation=state.generation + 1,
        ),
        durable=True,
    )


def _settle_intent(held: HeldLog, *, again: bool) -> None:
    """Finishes an apply that was complete on the disk. Any other is undone completely, and applied again later.

    `again`: a sync of these records may have failed since the restart.
    """
    state = held.state
    path = segment_path(held.place.folder, state.active_base, LOG)
    try:
        with files.open_write(path) as file:
            # With a hole before the intent's records they cannot stay where they are.
            whole = _whole_up_to(held.place, file, state)[0] >= state.position and apply_intent.is_whole(held)
    except FileNotFoundError:
        whole = False
    if whole:
        apply_intent.finish(held, again=again)
        return
    # Before the intent is dropped: a batch of it that stayed would be adopted, and then be applied a second time.
    apply_intent.renew_empty(held)
    with contextlib.suppress(FileNotFoundError), files.open_write(path) as file:
        if file.size() > state.position:
            file.truncate(state.position)
        held.sync_file(file)
    held.drop_newer_segments()
    files.sync_folder(held.place.folder)
    held.lease.save(state.without_intent(), durable=True)


def _whole_up_to(place: PartitionPath, file: files.File, state: PartitionState) -> tuple[int, int, int]:
    """How far the active segment is intact: the position after its last good batch, and the offset there.

    Returns the state's flags too, with those that its batches require: a lost move of the end may have set them.
    """
    position, offset, flags = 0, state.active_base, state.flags
    if state.synced == state.position:
        position, offset = state.position, state.next_offset
    size = file.size()
    check_length(place, file.path, size, position)
    for header in intact_batches(file, position, size, offset):
        position, offset = header.end, header.next_offset
        if header.producer_id >= 0:
            flags |= Flags.PRODUCERS
    return position, offset, flags
