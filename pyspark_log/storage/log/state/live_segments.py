"""The segments of a log that its state says are live."""

from __future__ import annotations

from bisect import bisect_right

from pyspark_log.storage.log.state.partition_state import PartitionState
from pyspark_log.storage.segment.file_names import list_segments


def live_segments(folder: str, state: PartitionState, start: int = 0) -> list[tuple[int, int]]:
    """The live segments from the one with offset `start` on: where each begins, and where it ends."""
    bases = [base for base in list_segments(folder) if state.counts(base)]
    bases = bases[max(bisect_right(bases, start) - 1, 0) :]
    return list(zip(bases, [*bases[1:], state.next_offset], strict=True))
