"""The leader epochs of a partition's batches: whether they can be, and what `leader-epoch-checkpoint` says of them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from pyspark_log.storage.fs import files
from pyspark_log.storage.log import PartitionState
from pyspark_log.storage.maintenance.verify.findings import Severity

# A log with more changes of epoch than this is not one of a store: the rest is not compared.
_MOST_RUNS = 100_000


class EpochRun(NamedTuple):
    """Batches of one leader epoch that follow each other, with the offsets [first_offset, next_offset)."""

    epoch: int
    first_offset: int
    next_offset: int


def add_run(runs: list[EpochRun], epoch: int, first_offset: int, next_offset: int) -> None:
    """Adds a batch to the runs before it."""
    if runs and runs[-1].epoch == epoch:
        runs[-1] = runs[-1]._replace(next_offset=next_offset)
    elif len(runs) < _MOST_RUNS:
        runs.append(EpochRun(epoch, first_offset, next_offset))


class EpochFault(NamedTuple):
    """Something wrong with the checkpoint: how bad, from which offset on (-1: not known), and what."""

    severity: Severity
    first_offset: int
    what: str


def epoch_faults(
    path: str, entries: Sequence[tuple[int, int]], state: PartitionState, runs: Sequence[EpochRun]
) -> Iterator[EpochFault]:
    """What is wrong with a partition's checkpoint.

    An entry may start too early: if the process that began the epoch died, records of the previous one followed. A
    follower may then refetch too much. If an entry starts too late, or is missing, a follower would keep records that
    the leader does not have.

    Args:
        path: the file.
        entries: what it says: epochs and the offsets at which they begin.
        state: the partition's, read after the file: an epoch begins in that at an offset that the log has reached.
        runs: the epochs of its batches, in order.
    """
    numbered = [run for run in runs if run.epoch >= 0 and run.next_offset > state.log_start]
    if not entries:
        if numbered:
            what = "it has no epoch" if files.exists(path) else "the file is missing"
            yield EpochFault(Severity.INDEX, numbered[0].first_offset, what)
        return
    for before, after in pairwise(entries):
        if after[0] <= before[0] or after[1] <= before[1]:
            yield EpochFault(Severity.INDEX, after[1], f"epoch {after[0]} at offset {after[1]} stands behind {before}")
            return
    if entries[-1][1] > state.next_offset:
        epoch, start = entries[-1]
        what = f"epoch {epoch} begins at {start}, behind the log end {state.next_offset}"
        yield EpochFault(Severity.INDEX, start, what)
        return
    yield from _compared(entries, state, numbered)


def _compared(
    entries: Sequence[tuple[int, int]], state: PartitionState, runs: Sequence[EpochRun]
) -> Iterator[EpochFault]:
    starts = [start for _, start in entries]
    early: EpochFault | None = None
    for run in runs:
        first = max(run.first_offset, state.log_start)
        said = _epoch_at(entries, starts, first)
        if said < run.epoch:
            yield EpochFault(
                Severity.INDEX, first, f"the batch at offset {first} has epoch {run.epoch}, it says epoch {said}"
            )
            return
        last = _epoch_at(entries, starts, run.next_offset - 1)
        if last > run.epoch and early is None:
            start = starts[[epoch for epoch, _ in entries].index(last)]
            early = EpochFault(
                Severity.NOTE, start,
                f"it has epoch {last} begin at offset {start}, where records of epoch {run.epoch} follow",
            )  # fmt: skip
    if early is not None:
        yield early


def _epoch_at(entries: Sequence[tuple[int, int]], starts: Sequence[int], offset: int) -> int:
    number = bisect_right(starts, offset) - 1
    return entries[number][0] if number >= 0 else -1
