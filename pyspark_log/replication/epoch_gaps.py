"""Leader epochs that begin where compaction has removed the batches: no batch says where, so the leader is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from pyspark_log.storage.log.leader_epochs import EpochEnd, EpochStart
from pyspark_log.storage.record import BatchHeader


class Gap(NamedTuple):
    """Offsets without batches, among which a leader epoch begins.

    Attributes:
        start, end: the first offset, and that of the batch after them.
        last_epoch: of the batch before them; -1: there is none.
        next_epoch: of the batch after them.
    """

    start: int
    end: int
    last_epoch: int
    next_epoch: int


def gaps_in(headers: Iterable[BatchHeader], end: int, last_epoch: int) -> Iterator[Gap]:
    """The gaps before batches; `end` and `last_epoch`: of the log that they continue."""
    for header in headers:
        if header.base_offset > end and header.leader_epoch > last_epoch:
            yield Gap(end, header.base_offset, last_epoch, header.leader_epoch)
        end, last_epoch = header.next_offset, max(last_epoch, header.leader_epoch)


def epochs_in(gap: Gap, end_of: Callable[[int], EpochEnd]) -> list[EpochStart]:
    """The epochs that begin in a gap, or right after it, oldest first.

    Args:
        gap: the gap.
        end_of: asks the leader where an epoch ends, as OffsetForLeaderEpoch answers: of one without records, the epoch
            before it is meant; of one before all, the start of the first.
    """
    starts, epoch = list[EpochStart](), gap.next_epoch
    while epoch > gap.last_epoch:
        # An epoch begins where all before it have ended.
        before, start = end_of(epoch - 1) if epoch > 0 else EpochEnd(-1, gap.start)
        if start < 0:
            start = gap.end  # The leader does not know.
        if starts and start >= starts[-1].start_offset:
            break  # There was no such epoch: the one after it is the first.
        starts.append(EpochStart(epoch, min(max(start, gap.start), gap.end)))
        if start <= gap.start:
            break
        epoch = before
    return starts[::-1]
