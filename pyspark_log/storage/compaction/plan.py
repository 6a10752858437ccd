"""Plans which part of a log to compact, and whether it is due: Kafka's rules (LogCleanerManager).

Records before the first dirty offset were cleaned earlier. Records from the first uncleanable offset on must stay
unchanged: the active segment, undecided transactions, records younger than min.compaction.lag.ms, and decisions that
are not applied everywhere.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from pyspark_log.config import INT_MAX, TopicConfig
from pyspark_log.storage.catalog import PUBLISH_TOPIC
from pyspark_log.storage.fs import files
from pyspark_log.storage.log import HeldLog, cleaner_checkpoint
from pyspark_log.storage.log.cleaner_checkpoint import CleanerCheckpoint
from pyspark_log.storage.record.layout import HEADER_SIZE
from pyspark_log.storage.segment import SegmentReader
from pyspark_log.storage.segment.file_names import LOG, segment_path
from pyspark_log.storage.segment.indexes import TimeIndex
from pyspark_log.types import NO_TIMESTAMP


class InactiveSegment(NamedTuple):
    """An inactive segment.

    Attributes:
        base: its base offset.
        until: that of the next segment.
        size: bytes of its log.
    """

    base: int
    until: int
    size: int


class Plan(NamedTuple):
    """What can be compacted of a partition.

    Attributes:
        segments: its inactive segments, oldest first.
        first_dirty: from this offset on it was not compacted.
        first_uncleanable: from this offset on it must stay as it is.
        clean_bytes, dirty_bytes: of the segments before the first dirty offset, and of those that can be compacted.
        overdue: whether a record is dirty for longer than max.compaction.lag.ms.
    """

    segments: Sequence[InactiveSegment]
    first_dirty: int
    first_uncleanable: int
    clean_bytes: int
    dirty_bytes: int
    overdue: bool

    @property
    def ratio(self) -> float:
        """The share of bytes that are dirty."""
        return self.dirty_bytes / (self.clean_bytes + self.dirty_bytes) if self.dirty_bytes else 0.0

    def is_due(self, config: TopicConfig) -> bool:
        """Whether it is time: by min.cleanable.dirty.ratio, or because a record has waited for too long."""
        return self.dirty_bytes > 0 and (self.overdue or self.ratio > config.min_cleanable_dirty_ratio)


def make_plan(log: HeldLog, known: CleanerCheckpoint, last_stable_offset: int) -> Plan:
    """Plans the compaction of a partition, whose lock is held.

    Args:
        log: its log.
        known: the last cleaner's checkpoint.
        last_stable_offset: from here on transactions are open.

    Raises:
        CorruptRecordError: a segment whose records' times are needed is damaged.
        OSError: a file cannot be read.
    """
    state, folder, now = log.state, log.place.folder, log.clock()
    bases = log.bases()
    bases = bases[max(bisect_right(bases, state.log_start) - 1, 0) :]
    segments = [_inactive(folder, base, until) for base, until in pairwise(bases)]
    dirty = cleaner_checkpoint.first_dirty(known, state)
    uncleanable = min(state.active_base, last_stable_offset)
    if log.place.topic == PUBLISH_TOPIC:
        uncleanable = min(uncleanable, state.first_undone)
    dirty_segments = [segment for segment in segments if segment.until > dirty]
    if log.config.min_compaction_lag_ms > 0:
        for segment in dirty_segments:
            if _largest_timestamp(folder, segment) > now - log.config.min_compaction_lag_ms:
                uncleanable = min(uncleanable, segment.base)
                break
    uncleanable = max(uncleanable, dirty)
    # If an open transaction begins within a segment, the records before it are cleaned only once.
    cleanable = [segment for segment in dirty_segments if dirty < uncleanable and segment.base < uncleanable]
    overdue = any(_first_timestamp(folder, one) < now - log.config.max_compaction_lag_ms for one in cleanable[:1])
    clean_bytes = sum(segment.size for segment in segments if segment.until <= dirty)
    return Plan(segments, dirty, uncleanable, clean_bytes, sum(segment.size for segment in cleanable), overdue)


def segment_groups(segments: Sequence[InactiveSegment], end: int, config: TopicConfig) -> list[list[InactiveSegment]]:
    """Consecutive segments that are to become one (Cleaner.groupSegmentsBySize).

    Args:
        segments: inactive ones, oldest first.
        end: only those that begin before this offset.
        config: of the topic: a group is no larger than a segment may be, before it is cleaned, and its indexes cannot
            become so. The sizes of the present indexes do not show that: an append of many batches makes one entry,
            and the cleaner makes more.
    """
    found: list[list[InactiveSegment]] = []
    size, interval = 0, max(config.index_interval_bytes, HEADER_SIZE)
    for segment in segments:
        if segment.base >= end:
            break
        size += segment.size
        fits = (
            size <= config.segment_bytes
            and (size // interval + 1) * TimeIndex.WIDTH <= config.segment_index_bytes
            and found
            and segment.until - 1 - found[-1][0].base <= INT_MAX
        )
        if fits:
            found[-1].append(segment)
        else:
            found.append([segment])
            size = segment.size
    return found


def _inactive(folder: str, base: int, until: int) -> InactiveSegment:
    return InactiveSegment(base, until, files.size_of(segment_path(folder, base, LOG)))


def _largest_timestamp(folder: str, segment: InactiveSegment) -> int:
    """The largest time of a segment's records (ms); that of its file, if they have none."""
    with SegmentReader(folder, segment.base, until=segment.until) as reader:
        largest = reader.largest_timestamp(segment.size)
        return largest if largest != NO_TIMESTAMP else os.fstat(reader.log.fd).st_mtime_ns // 1_000_000


def _first_timestamp(folder: str, segment: InactiveSegment) -> int:
    """The largest time of a segment's first batch (ms); the time of its file, if that has none."""
    with SegmentReader(folder, segment.base, until=segment.until) as reader:
        for header in reader.headers(0, segment.size):
            if header.max_timestamp != NO_TIMESTAMP:
                return header.max_timestamp
            break
        return os.fstat(reader.log.fd).st_mtime_ns // 1_000_000
