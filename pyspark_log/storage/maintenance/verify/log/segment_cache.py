"""Rebuilds the cached facts about inactive segments with the writer's code, and compares.

A time that is larger than that of any record is right as well: it costs one search of the segment, and no more. So is
an entry that is missing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping

from pyspark_log.storage.catalog import PartitionPath
from pyspark_log.storage.log.read import segment_cache
from pyspark_log.storage.log.read.segment_cache import WIDTH, read_all
from pyspark_log.storage.maintenance.verify.findings import Finder, Finding
from pyspark_log.types import NO_TIMESTAMP

_ADVICE = "remove the file; pylog clean rebuilds it; till then look-ups by time can be wrong"


def cache_findings(place: PartitionPath, finding: Finder, largest: Mapping[tuple[int, int], int]) -> Iterator[Finding]:
    """What is wrong with a partition's file of inactive segments.

    Args:
        place: which partition.
        finding: makes findings.
        largest: for its inactive segments, by base offset and that of the next one, the largest time (ms) in them.
    """
    spans = sorted(largest)
    rebuilt = list(segment_cache.chain(place, spans[0][0], spans, largest)) if spans else []
    for number, entry in enumerate(read_all(place)):
        if entry is None:
            what = "an entry is torn, so that the entries after it are not used"
            yield finding.index(place.segments_path, what, _ADVICE, number * WIDTH)
            return
        count = bisect_right(rebuilt, entry.next_offset, key=lambda one: one.next_offset)
        if not count:
            continue
        right = rebuilt[count - 1]
        own = right.largest if right[1:3] == entry[1:3] else NO_TIMESTAMP
        # An entry that begins later says nothing of all segments, and readers leave it out.
        so_far = right.largest_so_far if entry.first_offset <= right.first_offset else own
        if own > entry.largest or so_far > entry.largest_so_far:
            what = f"a record has the time {max(own, so_far)} ms, which is later than {entry} says"
            yield finding.index(place.segments_path, what, _ADVICE, number * WIDTH)
