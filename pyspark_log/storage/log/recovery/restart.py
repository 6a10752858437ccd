"""Puts a partition right after the machine went down without a word.

What was synced is there; of all else any part may be missing, torn or there: bytes of the log, index entries,
the moves of the end that were not synced. So the log is asked what it holds, batch by batch with every CRC:

- Whole batches behind the recorded end are adopted. They were acknowledged, or their writer died before it
  could say; an append that was synced may stand there, since its end move may be lost.
- What is torn is cut. If it lay below the end, unsynced records are lost; that is what "not synced" means.
- Offsets that readers may have seen are never given to other records. Before unsynced records were shown, a
  reserve above them was made durable; the log goes on there, behind an empty batch that fills the gap.

Only the last write, which is synced, carries the new boot id. So a second power loss starts this again.
"""

from __future__ import annotations

import contextlib
import logging

from pyspark_log.errors import LogDamagedError
from pyspark_log.storage.catalog import PartitionPath
from pyspark_log.storage.fs import files
from pyspark_log.storage.log import leader_epochs, state_file
from pyspark_log.storage.log.held_log import HeldLog, write_again
from pyspark_log.storage.log.missing import check_length
from pyspark_log.storage.log.recovery import apply_intent, swap
from pyspark_log.storage.log.state_file import Flags, Intent, PartitionState
from pyspark_log.storage.record import empty_batch
from pyspark_log.storage.segment import INDEX, LOG, TIME_INDEX, TXN_INDEX, SegmentWriter, batch_at, segment_path

log = logging.getLogger(__name__)


def after_restart(held: HeldLog) -> None:
    """Brings files and state of a partition in line. Its lock is held, and its state is of an earlier boot."""
    held.forget()
    # What is read now is on the disk, but for what an earlier try of this has written and could not sync.
    again = bool(held.state.flags & Flags.SUSPECT)
    held.trust()
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
            raise LogDamagedError(f"{held.place}: {path} is missing, which held {state.position} bytes") from None
        # Those that a truncation has taken back, of which it did not come to the last step.
        held.drop_newer_segments()
        if files.is_folder(held.place.folder):
            files.sync_folder(held.place.folder)
        _finish(held, state)
        return
    with file:
        position, found, flags = _whole_up_to(held.place, file, state)
        if found < state.next_offset:
            log.error(
                "%s: the machine went down before offsets %d to %d were synced; they are lost",
                held.place, found, state.next_offset - 1,
            )  # fmt: skip
        end = max(found, state.reserve)
        if file.size() > position:
            file.truncate(position)
        if again:
            write_again(file, state.synced, position)
        if end > found:
            filler = empty_batch(found, end, state.leader_epoch)
            file.pwrite(filler, position)
            position += len(filler)
        held.sync_file(file)
    # What was not synced of the indexes may be missing, which they do not show.
    stale = [INDEX, TIME_INDEX]
    if not flags & Flags.PRODUCERS:
        stale.append(TXN_INDEX)  # Of a transaction that is lost, with the state that told of it.
    for suffix in stale:
        files.unlink(segment_path(held.place.folder, state.active_base, suffix))
    held.drop_newer_segments()
    files.sync_folder(held.place.folder)
    SegmentWriter(held.place.folder, state.active_base, position, held.config).close()
    state = state._replace(flags=flags, next_offset=end, position=position, synced=position, reserve=end)
    held.producers.rebuild(state, state.active_base)
    leader_epochs.begin(held.place.folder, state.leader_epoch, end)
    _finish(held, state)


def _finish(held: HeldLog, state: PartitionState) -> None:
    held.mend_slots()
    held.save(
        state.without_intent()._replace(
            flags=state.flags & ~(Flags.CUTTING | Flags.SUSPECT),
            boot=state_file.this_boot(),
            incarnation=state.incarnation + 1,
            generation=state.generation + 1,
        ),
        durable=True,
    )


def _settle_intent(held: HeldLog, *, again: bool) -> None:
    """Finishes an apply that was whole on the disk. Of any other nothing stays: it is done anew.

    `again`: a sync of what is there may have failed since the restart.
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
    # Before the intent goes: a batch of it that was left would be adopted, and then come a second time.
    apply_intent.renew_empty(held)
    with contextlib.suppress(FileNotFoundError), files.open_write(path) as file:
        if file.size() > state.position:
            file.truncate(state.position)
        held.sync_file(file)
    held.drop_newer_segments()
    files.sync_folder(held.place.folder)
    held.save(state.without_intent(), durable=True)


def _whole_up_to(place: PartitionPath, file: files.File, state: PartitionState) -> tuple[int, int, Flags]:
    """How far the active segment is whole: the position behind its last good batch, and the offset there.

    And the state's flags, with those that its batches call for: a move of the end that was lost may have set them.
    """
    position, offset, flags = 0, state.active_base, state.flags
    if state.synced == state.position:
        position, offset = state.position, state.next_offset
    size = file.size()
    check_length(place, file.path, size, position)
    while (header := batch_at(file, position, size)) is not None and header.base_offset == offset:
        position, offset = header.end, header.next_offset
        if header.producer_id >= 0:
            flags |= Flags.PRODUCERS
    return position, offset, flags
