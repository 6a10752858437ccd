"""Finds the last record of each key in the uncleaned part of a log (Cleaner.buildOffsetMap)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, NoReturn

from pyspark_log.errors import InvalidConfigError, LogDamagedError
from pyspark_log.storage.catalog import PartitionPath
from pyspark_log.storage.compaction.offset_map import OffsetMap
from pyspark_log.storage.log.read import AbortedRanges
from pyspark_log.storage.segment import BatchStream, SegmentReader

#: Called with the number of bytes read or written; may wait before it returns.
Throttle = Callable[[int], None]


class Source(NamedTuple):
    """An open segment, and how many of its bytes count."""

    segment: SegmentReader
    size: int


def fill(
    keys: OffsetMap, place: PartitionPath, sources: Iterable[Source], start: int, end: int,
    *, aborted: AbortedRanges, max_batch_bytes: int, throttle: Throttle,
) -> int:  # fmt: skip
    """Enters the keys of the records [start, end), up to a batch whose keys do not fit.

    Control batches, batches of aborted transactions and records without keys are passed over.

    Args:
        keys: is cleared first.
        place: which partition.
        sources: its segments from the one with `start` on, in order, each open; unneeded ones are not requested.
        start, end: offsets; either may lie inside of a batch, as between decisions that were written together.
        aborted: the aborted transactions that overlap [start, end).
        max_batch_bytes: the most bytes that one batch may become when it is decompressed.
        throttle: called with the number of bytes read.

    Returns:
        The offset (exclusive) up to which the keys are known: `end`, or less if there are too many. The next cleaning
        begins there.

    Raises:
        CorruptRecordError, LogDamagedError: damage, with its place.
        InvalidConfigError: the keys of the first batch alone are too many.
        MemoryError: the system has no memory for them.
    """
    keys.clear()
    # No key below has a later record below: an earlier cleaning has removed such records.
    keys.latest_offset = start - 1
    keys.note_replaced(start, end)
    stream = BatchStream(max_batch_bytes, place.topic, place.partition)
    follows, full = -1, False

    def take(buffer: memoryview, at: int, filled: int) -> tuple[int, bool]:
        nonlocal follows, full
        taken, follows, full = keys.take(
            buffer, at, filled, from_offset=start, until_offset=end, follows=follows, max_batch_bytes=max_batch_bytes,
            aborted=aborted.hold,
        )  # fmt: skip
        throttle(taken - at)
        return taken, full or follows >= end

    if start == end:
        return start
    for source in sources:
        position = 0 if follows >= 0 else source.segment.position_of(start, source.size)
        if position == 0:
            if follows not in (-1, source.segment.base_offset):
                break
            follows = source.segment.base_offset
        if any(stream.read(source.segment.log, position, source.size, take)):
            break
    if not full and follows < end:
        raise LogDamagedError(f"{place}: the log ends at offset {follows}, but it must reach {end}")
    if full and keys.latest_offset < start:
        _refuse_first_batch(keys, place, start)
    return keys.latest_offset + 1


def _refuse_first_batch(keys: OffsetMap, place: PartitionPath, start: int) -> NoReturn:
    if keys.count < keys.capacity:
        raise MemoryError
    raise InvalidConfigError(
        f"{place}: the keys of the batch at offset {start} alone are more than {keys.capacity}: "
        "set log.cleaner.dedupe.buffer.size higher"
    )
