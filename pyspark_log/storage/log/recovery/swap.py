"""Replaces segments by the cleaned segment that was made of them, while readers are at work.

The cleaned segment has the base offset of the first of them, and reaches to the segment after the last. Its files
are ready, on the disk, with the suffix `.cleaned`. Under the partition's lock:

1. An intent names the range of offsets, durably. From here on any holder of the lock continues the swap.
2. The files get the suffix `.swap`. A Kafka broker that is given the folder from now on finishes the swap by its own
   rules (LogLoader.load): the `.swap` files count, and the segments in their range do not.
3. The first old segment is replaced atomically, so that each offset is always found in some file. Its indexes are
   deleted before that; without them readers scan. The new log has a second name until the end, for the broker's rules.
4. The intent records that, durably, with a new generation: readers ignore the other old segments from now on.
5. They get the suffix `.deleted`, and retention deletes them later, as it does with others. The indexes are created.
6. The intent is cleared, durably.

Each step first checks which files exist, so after a kill or a power loss all steps can be repeated from the first.
"""

from __future__ import annotations

import contextlib
import logging

from pyspark_log.errors import CorruptRecordError
from pyspark_log.storage.fs import files
from pyspark_log.storage.fs.links import forbids_links
from pyspark_log.storage.log.held_log import HeldLog
from pyspark_log.storage.log.state.partition_state import Intent, PartitionState
from pyspark_log.storage.segment import read_headers
from pyspark_log.storage.segment.file_names import (
    CLEANED,
    DELETED,
    INDEX,
    LOG,
    SWAP,
    TIME_INDEX,
    TXN_INDEX,
    list_segments,
    mark_deleted,
    same_file,
    segment_path,
)

log = logging.getLogger(__name__)

# The second name of a log during its renaming; a broker ignores it, and deletes it with what it replaces.
_LINKED = ".linked"

# The log comes last: a broker deletes files with `.swap` as long as there is one with `.cleaned`.
_CLEANED_FILES = (INDEX, TIME_INDEX, TXN_INDEX, LOG)


def begin(held: HeldLog, base: int, until: int) -> None:
    """Replaces the segments in [base, until) by the cleaned one of that base. The partition's lock is held.

    Args:
        held: the partition's log, recovered.
        base: the base offset of the first of them, and of the cleaned one, whose files are on the disk.
        until: that of the segment after the last of them.

    Raises:
        FileNotFoundError: the cleaned log is missing; nothing has changed.
        OSError: nothing has changed; or the next holder of the lock finishes the swap.
    """
    size = files.size_of(segment_path(held.place.folder, base, LOG) + CLEANED)
    begun = held.state.without_intent()._replace(
        intent=Intent.SWAP, intent_base=base, intent_next=until, intent_position=size
    )
    held.lease.save(held.lease.claiming(begun), durable=True)
    finish(held)


def finish(held: HeldLog) -> None:
    """Finishes a swap that was begun. The partition's lock is held. OSError: the next holder finishes it."""
    if held.state.intent == Intent.SWAP:
        if not _is_ready(held):
            log.error(
                "%s: the cleaned segment at offset %d is not there; the old ones stay",
                held.place,
                held.state.intent_base,
            )
            held.lease.save(held.state.without_intent(), durable=True)
            return
        _replace_first(held)
        held.lease.save(held.state._replace(intent=Intent.SWAPPED, generation=held.state.generation + 1), durable=True)
    _delete_old_segments(held)
    held.lease.save(held.state.without_intent(), durable=True)


def _path(held: HeldLog, suffix: str, ending: str = "") -> str:
    return segment_path(held.place.folder, held.state.intent_base, suffix) + ending


def _is_ready(held: HeldLog) -> bool:
    """Whether the cleaned log exists under one of its names. If not, no old segment may be deleted.

    Under its own name, as a file system without hard links leaves it, it differs from the old one by its size or by
    its end. An old segment with the same size and end is the only one replaced, and its indexes say the same.
    """
    if files.exists(_path(held, LOG, CLEANED)) or files.exists(_path(held, LOG, SWAP)):
        return True
    try:
        with files.open_read(_path(held, LOG)) as first:
            if first.size() != held.state.intent_position:
                return False
            end = held.state.intent_base
            for header in read_headers(first, 0, first.size()):
                end = header.next_offset
    except (FileNotFoundError, CorruptRecordError):
        return False
    return end == held.state.intent_next


def _replace_first(held: HeldLog) -> None:
    for suffix in _CLEANED_FILES:
        with contextlib.suppress(FileNotFoundError):
            files.rename(_path(held, suffix, CLEANED), _path(held, suffix, SWAP))
    files.sync_folder(held.place.folder)
    for suffix in (INDEX, TIME_INDEX):
        held.lease.unlink(_path(held, suffix))
    target, new = _path(held, LOG), _path(held, LOG, SWAP)
    if files.exists(new) and not same_file(target, new):
        held.lease.claim()
        # Readers on other hosts, which have the old one open, need it for a while.
        files.unlink(target + DELETED)
        files.unlink(target + _LINKED)
        try:
            files.link(target, target + DELETED)
            files.link(new, target + _LINKED)
            files.rename(target + _LINKED, target)
        except OSError as error:
            if not forbids_links(error):
                raise
            files.rename(new, target)
    # After the log: for the new one the old index has too many entries at worst.
    try:
        with files.open_read(_path(held, TXN_INDEX, SWAP)) as index:
            files.replace_whole(_path(held, TXN_INDEX), index.pread(index.size(), 0))
    except FileNotFoundError:
        held.lease.unlink(_path(held, TXN_INDEX))
    files.sync_folder(held.place.folder)


def _delete_old_segments(held: HeldLog) -> None:
    state, folder = held.state, held.place.folder
    mark_deleted(folder, [base for base in list_segments(folder) if state.intent_base < base < state.intent_next])
    for suffix in (INDEX, TIME_INDEX):
        with contextlib.suppress(FileNotFoundError):
            files.rename(_path(held, suffix, SWAP), _path(held, suffix))
    for name in (_path(held, LOG, SWAP), _path(held, LOG, _LINKED), _path(held, TXN_INDEX, SWAP)):
        files.unlink(name)
    files.sync_folder(folder)


def live_segments(folder: str, state: PartitionState) -> list[int]:
    """The base offsets of a partition's segments, ascending, without those that a cleaned segment has replaced.

    For lock-free readers, which judge each file on its own.
    """
    bases = list_segments(folder)
    if not state.swaps:
        return bases
    first = segment_path(folder, state.intent_base, LOG)
    if state.intent == Intent.SWAP and not same_file(first, first + SWAP):
        return bases
    return [base for base in bases if not state.intent_base < base < state.intent_next]
