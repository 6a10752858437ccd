"""Compares `leader-epoch-checkpoint` with the leader epochs of a partition's batches.

An entry may be for an epoch of which the log has no batch (any more). One may start too early: if the process that
began the epoch died, records of the previous one followed, and a follower may refetch too much. If an entry starts too
late, or is missing, a follower would keep records that the leader does not have.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pyspark_log.storage.fs import files
from pyspark_log.storage.log.state import PartitionState
from pyspark_log.storage.maintenance.verify.findings import REPAIR, Finder, Finding

# A log with more changes of epoch than this is not one of a store: the rest is not compared.
_MOST_RUNS = 100_000
ADVICE = f"recovery from a power loss replaces it; or {REPAIR}; only Kafka's tools use it"


@dataclass(slots=True)
class EpochRun:
    """Batches of one leader epoch that follow each other, with the offsets [first_offset, next_offset)."""

    epoch: int
    first_offset: int
    next_offset: int


def add_run(runs: list[EpochRun], epoch: int, first_offset: int, next_offset: int) -> None:
    """Adds a batch to the runs before it."""
    if runs and runs[-1].epoch == epoch:
        runs[-1].next_offset = next_offset
    elif len(runs) < _MOST_RUNS:
        runs.append(EpochRun(epoch, first_offset, next_offset))


def epoch_findings(
    path: str, finding: Finder, entries: Sequence[tuple[int, int]], state: PartitionState, runs: Sequence[EpochRun]
) -> Iterator[Finding]:
    """What is wrong with a partition's checkpoint.

    Args:
        path: the file.
        finding: makes findings.
        entries: what it says: epochs and the offsets at which they begin.
        state: the partition's, read after the file: an epoch begins in that at an offset that the log has reached.
        runs: the epochs of its batches, in order.
    """
    runs = [run for run in runs if run.epoch >= 0 and run.next_offset > state.log_start]
    if not entries:
        if runs:
            what = "it has no epoch" if files.exists(path) else "the file is missing"
            yield finding.index(path, what, ADVICE, first=runs[0].first_offset)
        return
    for before, (epoch, start) in pairwise(entries):
        if epoch <= before[0] or start <= before[1]:
            what = f"epoch {epoch} at offset {start} comes after {before}"
            yield finding.index(path, what, ADVICE, first=start)
            return
    epoch, start = entries[-1]
    if start > state.next_offset:
        what = f"epoch {epoch} begins at {start}, beyond the log end {state.next_offset}"
        yield finding.index(path, what, ADVICE, first=start)
        return
    starts = [start for _, start in entries]
    early: list[Finding] = []
    for run in runs:
        first = max(run.first_offset, state.log_start)
        number = bisect_right(starts, first) - 1
        said = entries[number][0] if number >= 0 else -1
        if said < run.epoch:
            what = f"the batch at offset {first} has epoch {run.epoch}, it says epoch {said}"
            yield finding.index(path, what, ADVICE, first=first)
            return
        epoch, start = entries[bisect_right(starts, run.next_offset - 1) - 1]
        if epoch > run.epoch and not early:
            what = f"it has epoch {epoch} begin at offset {start}, where records of epoch {run.epoch} follow"
            advice = "none: a copy of the log would fetch more again than it must"
            early.append(finding.note(path, what, advice, first=start))
    yield from early
