"""Where a partition's log has ended lately: there the next read of a consumer begins that has read all."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from pyspark_log.storage.fs import files
from pyspark_log.storage.log.read.stored_batches import StoredBatches
from pyspark_log.storage.log.state.partition_state import PartitionState

# As many ends are remembered: consumers of a partition may be that many appends apart.
_MOST_ENDS = 4


class _End(NamedTuple):
    """The log's end at some time: offset `next_offset`, at byte `position` of the file `inode` of segment `base`."""

    next_offset: int
    position: int
    base: int
    incarnation: int
    inode: int


class LogTail:
    """The last ends of a partition's log. From one of them on, no index and no header need be read."""

    def __init__(self) -> None:
        """None is known."""
        self._ends: tuple[_End, ...] = ()

    def note(self, file: files.File, state: PartitionState) -> None:
        """Takes in where the log ends by a state; `file` is its active segment's."""
        self._note(state, os.fstat(file.fd).st_ino)

    def _note(self, state: PartitionState, inode: int) -> None:
        end = _End(state.next_offset, state.position, state.active_base, state.incarnation, inode)
        if end not in self._ends:
            self._ends = (end, *self._ends[: _MOST_ENDS - 1])

    def batches_from(
        self, start: int, max_bytes: int, state: PartitionState, path_of: Callable[[int, PartitionState], str]
    ) -> StoredBatches | None:
        """All batches from an offset to the log's end, if they are within `max_bytes`.

        Args:
            start: the offset.
            max_bytes: see above.
            state: the log's.
            path_of: gives the path of the file of a segment, by its base offset.

        Returns:
            None: they are not, or the log has not ended there lately. `locate` finds out.
        """
        for end in self._ends:
            if end.next_offset == start and (end.base, end.incarnation) == (state.active_base, state.incarnation):
                break
        else:
            return None
        if start < state.log_start or not 0 < state.position - end.position <= max_bytes:
            return None
        try:
            file = files.open_read(path_of(end.base, state))
        except OSError:
            return None
        status = os.fstat(file.fd)
        if status.st_ino != end.inode or status.st_size < state.position:
            return None
        self._note(state, end.inode)
        return StoredBatches(file, end.position, state.position - end.position, state.next_offset)
