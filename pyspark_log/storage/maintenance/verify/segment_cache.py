"""Compares the cached facts about inactive segments with their batches."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from itertools import accumulate

from pyspark_log.storage.catalog import PartitionPath
from pyspark_log.storage.log import WIDTH, read_all
from pyspark_log.types import NO_TIMESTAMP


def closed_faults(place: PartitionPath, largest: Mapping[tuple[int, int], int]) -> Iterator[tuple[int, str]]:
    """The faults in a partition's file of inactive segments: the byte at which an entry begins, and the fault.

    A time that is larger than that of any record is not wrong: it costs a look into the segment, and no more.

    Args:
        place: which partition.
        largest: for its inactive segments, by base offset and that of the next one, the largest time (ms) in them.
    """
    spans = sorted(largest)
    ends = [following for _, following in spans]
    so_far = [NO_TIMESTAMP, *accumulate((largest[span] for span in spans), max)]
    for number, entry in enumerate(read_all(place)):
        if entry is None:
            yield number * WIDTH, "an entry is torn, so that what stands behind it is not used"
            return
        own = largest.get((entry.base_offset, entry.next_offset), NO_TIMESTAMP)
        # One that begins later says nothing of all segments, and readers leave it out.
        before = so_far[bisect_right(ends, entry.next_offset)] if spans and entry.first_offset <= spans[0][0] else own
        if own > entry.largest or before > entry.largest_so_far:
            yield number * WIDTH, f"a record has the time {max(own, before)} ms, which is later than {entry} says"
