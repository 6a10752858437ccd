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

import logging

from pyspark_log.storage import apply, files, leader_epochs, retention, state_file
from pyspark_log.storage.appender import Appender, Recovery
from pyspark_log.storage.errors import LogDamagedError
from pyspark_log.storage.gap import gap_batch
from pyspark_log.storage.segment import INDEX, LOG, TIME_INDEX, SegmentWriter, batch_at, segment_path
from pyspark_log.storage.state_file import Flags, Intent, PartitionState

log = logging.getLogger(__name__)


def after_restart(appender: Appender) -> None:
    """Brings files and state of a partition in line. Its lock is held, and its state is of an earlier boot."""
    appender.forget()
    if appender.state.intent != Intent.NONE:
        _settle_intent(appender)
    state = appender.state
    path = segment_path(appender.place.folder, state.active_base, LOG)
    try:
        file = files.open_write(path)
    except FileNotFoundError:
        if state.position > 0:
            raise LogDamagedError(f"{appender.place}: {path} is missing, which held {state.position} bytes") from None
        _finish(appender, state)
        return
    with file:
        position, found, flags = _whole_up_to(file, state)
        if found < state.next_offset:
            log.error(
                "%s: the machine went down before offsets %d to %d were synced; they are lost",
                appender.place, found, state.next_offset - 1,
            )  # fmt: skip
        end = max(found, state.reserve)
        if file.size() > position:
            file.truncate(position)
        if end > found:
            filler = gap_batch(found, end, state.leader_epoch)
            file.pwrite(filler, position)
            position += len(filler)
        file.sync()
    # What was not synced of the indexes may be missing, which they do not show.
    for suffix in (INDEX, TIME_INDEX):
        files.unlink(segment_path(appender.place.folder, state.active_base, suffix))
    appender.drop_newer_segments()
    files.sync_folder(appender.place.folder)
    SegmentWriter(appender.place.folder, state.active_base, position, appender.config).close()
    state = state._replace(flags=flags, next_offset=end, position=position, synced=position, reserve=end)
    appender.producers.rebuild(state, appender.clock())
    leader_epochs.begin(appender.place.folder, state.leader_epoch + 1, end)
    _finish(appender, state)


def _finish(appender: Appender, state: PartitionState) -> None:
    appender.save(
        state.without_intent()._replace(
            flags=state.flags & ~(Flags.CUTTING | Flags.SUSPECT),
            boot=state_file.this_boot(),
            leader_epoch=state.leader_epoch + 1,
            generation=state.generation + 1,
        ),
        durable=True,
    )


def _settle_intent(appender: Appender) -> None:
    """Finishes an apply that was whole on the disk. Any other is dropped with all that is cut."""
    state = appender.state
    path = segment_path(appender.place.folder, state.active_base, LOG)
    try:
        with files.open_write(path) as file:
            whole = _whole_up_to(file, state)[0] >= state.position
    except FileNotFoundError:
        whole = False
    # A hole before the intent's records: they cannot stay where they are.
    if whole and apply.is_whole(appender):
        apply.resolve(appender)
    else:
        appender.save(state.without_intent(), durable=True)


def _whole_up_to(file: files.File, state: PartitionState) -> tuple[int, int, Flags]:
    """How far the active segment is whole: the position behind its last good batch, and the offset there.

    And the state's flags, with those that its batches call for: a move of the end that was lost may have set them.
    """
    position, offset, flags = 0, state.active_base, state.flags
    if state.synced == state.position:
        position, offset = state.position, state.next_offset
    size = file.size()
    if size < position:
        raise LogDamagedError(f"{file.path} has {size} bytes, of which {position} were synced: something cut it")
    while (header := batch_at(file, position, size)) is not None and header.base_offset == offset:
        position, offset = header.end, header.next_offset
        if header.producer_id >= 0:
            flags |= Flags.PRODUCERS
    return position, offset, flags


#: What an appender does about what others left: a killed holder, a power loss, or old segments.
RECOVERY = Recovery(apply.resolve, after_restart, retention.clean)
