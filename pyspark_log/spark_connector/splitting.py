"""`minPartitions` and `maxRecordsPerPartition`: ranges of offsets in pieces, a task for each.

The arithmetic is that of the Kafka connector (KafkaOffsetRangeCalculator), in doubles as there, so that the pieces are
the same. How many there are follows from offsets: where a log has gaps, pieces have fewer records.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyspark_log.spark_connector.ranges import OffsetRange


@dataclass(frozen=True)
class Splitting:
    """Into how many tasks a read is split; by default, one a topic-partition.

    Attributes:
        min_partitions: about how many tasks there are to be at least, or None.
        max_records: the most offsets that a task may have, or None.
    """

    min_partitions: int | None = None
    max_records: int | None = None

    def is_due(self, ranges: Sequence[OffsetRange]) -> bool:
        """Whether ranges of all partitions, where sentinels count as the numbers that they are, are to be split.

        A batch read decides so, before it looks up what -2 and -1 stand for. From earliest to latest is thus a size
        of 1, which `max_records` alone never splits.
        """
        return (self.min_partitions or 0) > len(ranges) or any(
            one.end - one.start > (self.max_records or math.inf) for one in ranges
        )

    def split(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        """The pieces of ranges, those of one range one after the other; ranges without offsets have none."""
        found = [one for one in ranges if one.start < one.end]
        if self.max_records is not None:
            found = [piece for one in found for piece in _pieces(one, math.ceil(_size(one) / self.max_records))]
        if self.min_partitions is None or self.min_partitions <= len(found):
            return found
        # What is small stays whole, and has no part in how the tasks that are left are shared out.
        total = sum(map(_size, found))
        small = [one for one in found if _share(one, total, self.min_partitions) == 1]
        small_partitions = {one.at for one in small}
        total -= sum(map(_size, small))
        tasks = max(self.min_partitions - len(small), 1)
        return [
            piece
            for one in found
            for piece in _pieces(one, 1 if one.at in small_partitions else _share(one, total, tasks))
        ]


def _size(one: OffsetRange) -> int:
    return one.end - one.start


def _share(one: OffsetRange, total: int, tasks: int) -> int:
    # Halves go up, as in Java; Python's `round` takes the even number.
    return max(math.floor(_size(one) / total * tasks + 0.5), 1)


def _pieces(one: OffsetRange, count: int) -> list[OffsetRange]:
    """`count` pieces, the later ones larger by what does not come out even; fewer where there are fewer offsets."""
    pieces, start = [], one.start
    for number in range(count):
        end = start + (one.end - start) // (count - number)
        if start < end:
            pieces.append(OffsetRange(one.at, start, end))
        start = end
    return pieces
