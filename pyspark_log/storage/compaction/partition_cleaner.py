"""Compacts the log of a partition: keeps the last record of each key (Kafka's LogCleaner).

One round reads the dirty part of the log into a map of keys, and rewrites the inactive segments without the records
for which the map has a later one. That takes long, and needs only the lock of the partition's cleaner; writers and
readers continue. Then each new segment replaces its old ones (see swap.py), for which the partition's lock is held
briefly.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyspark_log.errors import CorruptRecordError, InvalidConfigError, LogDamagedError, SideFileError
from pyspark_log.storage.compaction.build_offset_map import Source, Throttle, fill
from pyspark_log.storage.compaction.offset_map import OffsetMap
from pyspark_log.storage.compaction.plan import InactiveSegment, Plan, make_plan, segment_groups
from pyspark_log.storage.compaction.rewrite import LastRecord, Rewritten, Round, remove_unfinished, rewrite
from pyspark_log.storage.compaction.transactions import CleanedTransactions
from pyspark_log.storage.fs import files
from pyspark_log.storage.fs.locking.timeouts import DEFAULT_TIMEOUT
from pyspark_log.storage.log import HeldLog, Turnstile, cleaner_checkpoint
from pyspark_log.storage.log.cleaner_checkpoint import CleanerCheckpoint, cleaning
from pyspark_log.storage.log.producers import ProducerEntry
from pyspark_log.storage.log.read import AbortedRanges, LogReader, aborted_between, segment_cache
from pyspark_log.storage.log.recovery import live_segments, swap
from pyspark_log.storage.segment import SegmentReader
from pyspark_log.storage.segment.file_names import LOG, segment_path

log = logging.getLogger(__name__)

# What a key takes of the memory for keys, and how many more are made room for, so that a small map is not too full.
_KEY_BYTES, _SPARE_KEYS = 24, 64
# Errors that make a partition uncleanable until it is repaired.
_DAMAGE = (CorruptRecordError, LogDamagedError, SideFileError)


@dataclass(frozen=True, slots=True)
class Cleaned:
    """The result of a round.

    Attributes:
        cleaned_to: the first offset that is not cleaned now.
        bytes_before, bytes_after: of the rewritten segments.
        records_before, records_after: of the same.
        finished: whether everything cleanable was cleaned. If not, there were more keys than memory for them, or
            segments were deleted meanwhile; another round continues.
    """

    cleaned_to: int
    bytes_before: int
    bytes_after: int
    records_before: int
    records_after: int
    finished: bool


def plan_cleaning(held: HeldLog, reader: LogReader) -> Plan:
    """What can be compacted of a partition, whose lock is held.

    Raises:
        CorruptRecordError, LogDamagedError: the log is damaged.
        OSError: a file cannot be read.
    """
    return make_plan(held, cleaner_checkpoint.read(held.place), reader.last_stable_offset())


def run(
    writer: Turnstile, reader: LogReader, memory: int, throttle: Throttle, timeout: float = DEFAULT_TIMEOUT
) -> Cleaned | None:
    """Compacts in one round; None: nothing to do. Does not wait for another cleaner.

    Args:
        writer, reader: the partition's.
        memory: bytes for the keys of one round; 24 are needed for each.
        throttle: called with the number of bytes read or written; it may wait.
        timeout: how long to wait for the partition's lock each time that it is needed, in seconds: at first, and for
            each swapped segment.

    Raises:
        LockTimeoutError: another cleaner is running there, or the partition's lock could not be acquired; segments
            swapped by then stay.
        CorruptRecordError, LogDamagedError, SideFileError: the log is damaged; segments before the damage may be
            compacted. The partition is marked as uncleanable, with the reason.
        SegmentOverflowError: a segment would become too large.
        InvalidConfigError: `memory` is too little, or more than the system gives; nothing is wrong with the partition.
        UnknownTopicError: the topic was deleted.
        OSError: e.g. a full disk; the log is as it was, or compacted up to some segment.
    """
    with cleaning(writer.place, timeout=0):
        try:
            return _Work(writer, reader, memory, throttle, timeout).run()
        except _DAMAGE as error:
            known = cleaner_checkpoint.read(writer.place)
            cleaner_checkpoint.write(writer.place, known._replace(reason=str(error), time=writer.log.clock()))
            raise
        except MemoryError:
            raise InvalidConfigError(
                f"{writer.place}: there is not enough memory to compact it: give the process more, or set "
                f"log.cleaner.dedupe.buffer.size (now {memory} bytes for the keys of a round) lower"
            ) from None


class _Work:
    """One round; the lock of the partition's cleaner is held."""

    def __init__(self, writer: Turnstile, reader: LogReader, memory: int, throttle: Throttle, timeout: float) -> None:
        self._writer, self._reader = writer, reader
        self._place, self._config = writer.place, writer.config
        self._memory, self._throttle, self._timeout = memory, throttle, timeout
        self._incarnation = self._truncations = -1

    def run(self) -> Cleaned | None:
        with self._writer.hold(self._timeout):
            held = self._writer.log
            self._place = held.place
            self._remove_unfinished(held)
            plan = plan_cleaning(held, self._reader)
            self._incarnation, self._truncations = held.state.incarnation, held.state.truncations
            if not plan.dirty_bytes:
                return None
            producers = held.producers.entries(held.state, held.clock())
        try:
            return self._clean(plan, producers)
        except FileNotFoundError as error:
            # Retention has deleted it, or the topic was deleted, which the next read of the state reports.
            log.info("%s: a segment was removed while it was compacted: %s", self._place, error)
            return Cleaned(plan.first_dirty, 0, 0, 0, 0, finished=False)

    def _remove_unfinished(self, held: HeldLog) -> None:
        held.lease.claim()
        remove_unfinished(self._place.folder)

    def _clean(self, plan: Plan, producers: Sequence[ProducerEntry]) -> Cleaned:
        folder, first, state = self._place.folder, plan.segments[0].base, self._reader.state()
        bases = [base for base in live_segments(folder, state) if base >= first]
        # All markers in them count: whole segments are rewritten, even if a part of one must stay.
        until = max(segment.until for segment in plan.segments if segment.base < plan.first_uncleanable)
        aborted = aborted_between(folder, bases, first, until)
        # There are no more keys than offsets.
        offsets = plan.first_uncleanable - plan.first_dirty
        keys = OffsetMap(min(self._memory, _KEY_BYTES * (offsets + offsets // 8 + _SPARE_KEYS)))
        dirty = [segment for segment in plan.segments if segment.until > plan.first_dirty]
        with self._opened(dirty) as sources:
            end = fill(
                keys, self._place, sources, plan.first_dirty, plan.first_uncleanable, aborted=AbortedRanges(aborted),
                max_batch_bytes=self._config.max_batch_bytes, throttle=self._throttle,
            )  # fmt: skip
        one_round = Round(
            self._place, self._config, self._config.delete_retention_ms, keys, self._writer.log.clock(),
            self._legacy_horizon(plan), CleanedTransactions(aborted), _last_records(producers), self._throttle,
        )  # fmt: skip
        groups = segment_groups(plan.segments, end, self._config)
        known = cleaner_checkpoint.read(self._place)
        # Durable before the first swap, for processes that inspect a killed cleaner's leftovers. How far earlier
        # cleaners got may not be known; it was not beyond the log's end.
        touched_to = max(min(known.touched_to, state.next_offset), groups[-1][-1].until)
        known = known._replace(touched_to=touched_to)
        cleaner_checkpoint.write(self._place, known)
        done = list(self._rewrite_all(one_round, groups, known))
        finished = len(done) == len(groups)
        if finished:
            cleaned = CleanerCheckpoint(end, self._truncations, touched_to, self._writer.log.clock())
            cleaner_checkpoint.write(self._place, cleaned)
        return Cleaned(
            end if finished else plan.first_dirty,
            sum(one.bytes_read for one in done),
            sum(one.bytes_written for one in done),
            sum(one.records_read for one in done),
            sum(one.records_kept for one in done),
            finished and end == plan.first_uncleanable,
        )

    def _rewrite_all(
        self, one_round: Round, groups: Sequence[Sequence[InactiveSegment]], known: CleanerCheckpoint
    ) -> Iterator[Rewritten]:
        """Replaces group after group, up to a group that has changed meanwhile; `known`: as it is written."""
        for group in groups:
            with self._opened(group) as sources:
                rewritten = rewrite(one_round, list(sources), group[-1].until)
            with self._writer.hold(self._timeout):
                held = self._writer.log
                if not self._is_unchanged(held, group):
                    self._remove_unfinished(held)
                    return
                if held.lease.shared:
                    # A cleaner that lost its lock notices it here: the cleaned files are another cleaner's by now.
                    cleaner_checkpoint.write(self._place, known)
                swap.begin(held, group[0].base, group[-1].until)
                segment_cache.update(self._place, held.bases())
            yield rewritten

    @contextlib.contextmanager
    def _opened(self, segments: Sequence[InactiveSegment]) -> Iterator[Iterator[Source]]:
        """The segments, each opened on demand. FileNotFoundError: one was deleted meanwhile."""
        with contextlib.ExitStack() as stack:

            def each() -> Iterator[Source]:
                for segment in segments:
                    reader = SegmentReader(self._place.folder, segment.base, until=segment.until)
                    stack.callback(reader.close)
                    yield Source(reader, reader.size_up_to(segment.until))

            yield each()

    def _is_unchanged(self, held: HeldLog, group: Sequence[InactiveSegment]) -> bool:
        """Whether the segments are those that were read: none was deleted, truncated or moved."""
        state, until = held.state, group[-1].until
        bases = [base for base in held.bases() if group[0].base <= base < until]
        return (
            held.place == self._place
            and bases == [segment.base for segment in group]
            and state.incarnation == self._incarnation
            and until <= state.active_base
        )

    def _legacy_horizon(self, plan: Plan) -> int:
        """The segment file time (ms) up to which tombstones of formats 0 and 1 may be deleted."""
        clean = [segment for segment in plan.segments if segment.until <= plan.first_dirty]
        if not clean:
            return 0
        modified = files.status_of(segment_path(self._place.folder, clean[-1].base, LOG)).st_mtime_ns // 1_000_000
        return modified - self._config.delete_retention_ms


def _last_records(producers: Sequence[ProducerEntry]) -> dict[int, LastRecord]:
    return {
        entry.producer_id: LastRecord(entry.batches[-1].last_offset if entry.batches else -1, entry.epoch)
        for entry in producers
    }
