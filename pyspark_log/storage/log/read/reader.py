"""Reads one partition of a topic: its log start and log end, and the records between them.

Readers take no lock. The end that they see, the high watermark, comes from the state file; every byte below it
counts, and none beyond it, whatever the files hold.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Container, Iterator
from functools import partial
from typing import TYPE_CHECKING, NoReturn, TypeVar

from pyspark_log.config import MAX_BATCH_BYTES
from pyspark_log.errors import (
    BatchTooLargeError,
    CorruptRecordError,
    LogDamagedError,
    OffsetOutOfRangeError,
    PylogError,
    UnknownTopicError,
)
from pyspark_log.storage.catalog import LogDirs, PartitionPath
from pyspark_log.storage.fs import files
from pyspark_log.storage.log.producers.manager import idempotent_batches
from pyspark_log.storage.log.read.damage import Damage, find_damage, missing_segment
from pyspark_log.storage.log.read.isolation import AbortedRanges, LastStableOffset, aborted_between
from pyspark_log.storage.log.read.log_tail import LogTail
from pyspark_log.storage.log.read.range_reader import Decode, Piece, RangeReader
from pyspark_log.storage.log.read.segment_cache import SegmentCache
from pyspark_log.storage.log.read.stored_batches import StoredBatches, end_before, locate
from pyspark_log.storage.log.read.time_search import TimeSearch
from pyspark_log.storage.log.state import partition_state, state_file
from pyspark_log.storage.log.state.partition_state import Flags, PartitionState
from pyspark_log.storage.log.state.state_file import Loaded
from pyspark_log.storage.record import BatchHeader
from pyspark_log.storage.record.end_txn_marker import EndTxnMarker
from pyspark_log.storage.record.walk import Pairs, read_pairs
from pyspark_log.storage.segment import NO_OFFSET, AbortedTransaction, SegmentReader
from pyspark_log.storage.segment.batch_stream import READ_SIZE
from pyspark_log.storage.segment.file_names import LOG, list_segments, segment_path
from pyspark_log.types import NO_TIMESTAMP, OffsetAndTimestamp

if TYPE_CHECKING:
    from pyspark_log.storage.record.decoding.decoder import Chunk

_T = TypeVar("_T")
_P = TypeVar("_P", bound=Piece)

#: Bytes of records (before compression) in a batch that a read yields: few enough to stay in the processor's cache.
READ_BYTES = 1024 * 1024


class LogReader:
    """The reader's view of one partition. Safe to use from several threads."""

    def __init__(
        self, place: PartitionPath, max_batch_bytes: int = MAX_BATCH_BYTES, log_dirs: LogDirs | None = None
    ) -> None:
        """Reads nothing yet.

        Args:
            place: which partition.
            max_batch_bytes: the most that one batch may take in memory; a larger one is refused.
            log_dirs: of the store; None: the partition never moves.
        """
        self.place, self._log_dirs, self._max_batch_bytes = place, log_dirs, max_batch_bytes
        self._written = False  # whether it ever had a state file
        self._loaded: Loaded | None = None  # what it held last
        self._segments: tuple[int, list[int]] = (-1, [])
        # Which of a broker's segments are inactive is not recorded anywhere.
        self._segment_cache: SegmentCache | None = SegmentCache(place)
        self._dense = True
        self._tail = LogTail()
        #: What `last_stable_offset` has found so far.
        self.stable = LastStableOffset()

    def state(self) -> PartitionState:
        """The partition's current state.

        Raises:
            UnknownTopicError: the topic was deleted.
            LogDamagedError: there are segments but no state file.
        """
        loaded = state_file.read(self.place.state_path, self._loaded)
        if loaded is None and (self._written or partition_state.holds_segments(self._log_dirs, self.place)):
            # Perhaps it was created between the two reads; the first write creates the files, the state first.
            loaded = state_file.read(self.place.state_path)
            if loaded is None:
                raise partition_state.no_state(self.place)
        if loaded is None:
            return partition_state.EMPTY
        self._written, self._loaded = True, loaded
        if loaded.state.flags & Flags.DEAD:
            raise UnknownTopicError(f"{self.place}: the topic was deleted")
        return loaded.state

    def place_in(self, state: PartitionState) -> PartitionPath:
        """Where its files are by a state: it may be moved from one log dir to another."""
        folders = self._log_dirs
        return self.place if folders is None else self.place.in_log_dir(folders.at(state.log_dir).path)

    def _folder(self, state: PartitionState) -> str:
        return self.place_in(state).folder

    def _check_folder(self, state: PartitionState) -> None:
        """Raises LogDirOfflineError if the log dir has failed, so that the log is not mistaken for damaged."""
        if self._log_dirs is not None:
            self._log_dirs.check(state.log_dir, self.place)

    def _fail(self, error: OSError) -> NoReturn:
        """Raises a system error; as LogDirOfflineError if it means that the log dir has failed."""
        explained = error
        if self._log_dirs is not None:
            explained = self._log_dirs.explained(error, self.place)
        if explained is error:
            raise error
        raise explained from error

    def segments(self, state: PartitionState) -> list[int]:
        """The base offsets of the live segments of `state`, ascending.

        A newer file is one whose creation was not finished, and one below the log start is about to be deleted.
        """
        generation, bases = self._segments
        if generation != state.generation:
            bases = [base for base in list_segments(self._folder(state)) if state.counts(base)]
            if bases and bases[-1] == state.active_base:
                self._segments = (state.generation, bases)
        return bases[max(bisect_right(bases, state.log_start) - 1, 0) :]

    def _present(self, state: PartitionState) -> list[int]:
        """The same for a partition that was written to: without segments, its folder was moved or is missing."""
        bases = self.segments(state)
        if not bases:
            raise LogDamagedError(f"{self.place}: no segments in {self._folder(state)}: files were removed or moved")
        return bases

    def segment_count(self) -> int:
        """How many live segments a partition has that was written to. LogDamagedError, LogDirOfflineError: none."""
        return self._retry_while_segments_change(lambda state, _: len(self._present(state)))

    def size(self) -> int:
        """Bytes of the live `.log` files."""

        def sum_sizes(state: PartitionState, _: bool) -> int:
            inactive = [base for base in self.segments(state) if base != state.active_base]
            with partition_state.missing_is_damage(self.place):
                return state.position + sum(files.size_of(self._log_path(base, state)) for base in inactive)

        return self._retry_while_segments_change(sum_sizes)

    def _log_path(self, base: int, state: PartitionState) -> str:
        return segment_path(self._folder(state), base, LOG)

    def _retry_while_segments_change(
        self, read: Callable[[PartitionState, bool], _T], first_state: PartitionState | None = None
    ) -> _T:
        """Returns the result of `read`, which is called again if segments are deleted while it runs.

        Its flag says whether to list the folder: if not, it may use the cached entries of inactive segments.
        `first_state` is the state that the caller has read before; None: it is read.
        """
        listed = self._segment_cache is None
        while True:
            state, first_state = first_state or self.state(), None
            try:
                return read(state, listed)
            except (LogDamagedError, CorruptRecordError, FileNotFoundError):
                now = self.state()
                if (now.generation, now.log_start) == (state.generation, state.log_start):
                    if listed:
                        self._check_folder(now)
                        raise
                    listed = True
            except OSError as error:
                self._fail(error)

    def last_stable_offset(self, state: PartitionState | None = None) -> int:
        """The offset below which every transaction is decided; the log end, if none is open.

        `state` is the state that the caller has read before; None: it is read.

        Raises:
            UnknownTopicError, LogDamagedError: as `state`.
            CorruptRecordError: a batch after the newest snapshot of producers is damaged.
        """
        offset = None if state is None else self.stable.known(state)
        return self._retry_while_segments_change(self._last_stable, state) if offset is None else offset

    def _last_stable(self, state: PartitionState, listed: bool) -> int:
        if not state.may_have_transactions:
            return state.high_watermark
        bases = self._present(state)
        return self.stable.follow(
            self._folder(state), state, bases[0], lambda offset: self._segments_from(offset, state, listed)
        )

    def aborted(self, start: int, end: int) -> list[AbortedTransaction]:
        """The aborted transactions with records in [start, end), a range in which all are decided. Raises as `read`."""

        def read_aborted(state: PartitionState, _: bool) -> list[AbortedTransaction]:
            bases = self._present(state)
            aborted = self._aborted_by(bases[max(bisect_right(bases, start) - 1, 0) :], start, end, state)
            # An index is deleted before its log when the log start has moved: without it nothing is known. And an index
            # that was removed with others, by a move to another log dir or by a swap, must not be mistaken for empty.
            now = self.state()
            self._check_range(start, end, now)
            if now.generation != state.generation:
                raise LogDamagedError(f"{self.place}: segments were removed while their indexes were read")
            return aborted

        return self._retry_while_segments_change(read_aborted)

    def _aborted_by(self, bases: list[int], start: int, end: int, state: PartitionState) -> list[AbortedTransaction]:
        """What the indexes of some segments, and of those after them, say of [start, end)."""
        return aborted_between(self._folder(state), bases, start, end)

    def read(
        self, start: int, end: int, *, max_bytes: int, columns: Container[str] = ("key", "value"),
        check_crcs: bool = True, committed: bool = False, state: PartitionState | None = None,
        on_damage: Callable[[Damage], None] | None = None,
    ) -> Iterator[Chunk]:  # fmt: skip
        """Reads the records of [start, end) in order, in chunks of some `max_bytes` before compression.

        Of the columns key, value and headers the chunks have those that are named.
        With `committed`, records of aborted transactions are left out; `end` is at most the last stable offset.
        `state` is the state that the caller has read before; None: it is read when the first chunk is asked for.
        With `on_damage`, damaged records are left out: it is called with each damage, before the records after it are
        read. A batch that takes more memory than it may is an error in any case.

        Raises:
            OffsetOutOfRangeError: `start` below the log start, or `end` above the log end; or records of
                the range were deleted before they were read.
            SideFileError: with `committed`, an index of aborted transactions is damaged.
            UnknownTopicError: the topic was deleted.
            CorruptRecordError: a damaged batch, with its place. The records before it were yielded.
                BatchTooLargeError: it takes more memory than it may.
            LogDamagedError: a segment is missing or shorter than it was.
        """
        from pyspark_log.storage.record.decoding.decoder import decode  # noqa: PLC0415  (Arrow, which a server does not load)

        chosen = partial(
            decode, max_bytes=max_bytes, check_crcs=check_crcs,
            keys="key" in columns, values="value" in columns, headers="headers" in columns,
        )  # fmt: skip
        return self._read(start, end, chosen, max_bytes, committed, state, on_damage)

    def read_pairs(
        self, start: int, end: int, *, committed: bool = False, state: PartitionState | None = None
    ) -> Iterator[Pairs]:
        """Reads keys and values of [start, end), batch by batch: for the engine's own logs. The rest is as `read`."""
        return self._read(start, end, read_pairs, READ_SIZE, committed, state, None)

    def _read(
        self, start: int, end: int, decode: Decode[_P], max_bytes: int, committed: bool, state: PartitionState | None,
        on_damage: Callable[[Damage], None] | None,
    ) -> Iterator[_P]:  # fmt: skip
        state = state or self.state()
        self._check_range(start, end, state)
        aborted = AbortedRanges(self.aborted(start, end)) if committed and state.may_have_transactions else None
        reader = RangeReader(self.place, decode, max_bytes, self._max_batch_bytes, self._dense, aborted)
        position, listed = start, self._segment_cache is None
        passed: Damage | None = None
        while position < end:
            try:
                base, following = self._segment_of(position, state, listed)
                until = end if following is None else min(end, following)
                segment, now = self._open(base, following, state)
                size = self._live_bytes(segment, state, now) if following is None else segment.log.size()
                # After damage the indexes may lead to before it.
                begin = passed.end if passed is not None and passed.file == segment.log.path else None
                for chunk in reader.read(segment, size, position, until, following, begin):
                    yield chunk
                    position = max(position, chunk.next_offset)
                # Not in a `finally`: that would run when this generator is dropped, and a Ctrl-C that comes during it
                # is lost. Files that are dropped close without it.
                segment.close()
                # The segment was read to a proven end, so what is missing up to here was compacted away.
                position = until
            except CorruptRecordError as error:
                passed = self._passed_over(position, error, on_damage)
                position = passed.next_offset
            except LogDamagedError as error:
                # Unless the requested offset was deleted meanwhile, or is in other files by now.
                now = self.state()
                self._check_range(position, end, now)
                if now.generation == state.generation:
                    if listed:
                        self._check_folder(now)
                        passed = self._passed_over(position, error, on_damage)
                        position = passed.next_offset
                    listed = True
                state = now
            except OSError as error:
                self._fail(error)

    def _passed_over(self, offset: int, error: PylogError, on_damage: Callable[[Damage], None] | None) -> Damage:
        """The damage at `offset` or after it, which `on_damage` was called with; raises `error` if there is none."""
        damage = None
        if on_damage is not None and not isinstance(error, BatchTooLargeError):
            damage = self._damage_at(offset)
        # What comes before the damage was read: nothing undamaged is left out.
        if damage is None or damage.first_offset != offset or on_damage is None:
            raise error
        on_damage(damage)
        return damage

    def _check_range(self, start: int, end: int, state: PartitionState, most: int | None = None) -> None:
        """Checks a range of offsets, which ends at `most` at the latest: without that at the high watermark."""
        most = state.high_watermark if most is None else most
        for offset in (start, end):
            if not state.log_start <= offset <= most:
                raise OffsetOutOfRangeError(self.place.topic, self.place.partition, offset, state.log_start, most)

    def _segment_of(self, offset: int, state: PartitionState, listed: bool) -> tuple[int, int | None]:
        """The base of the segment that holds `offset`, and of the one after it (None: it is active)."""
        if offset >= state.active_base:
            return state.active_base, None
        if self._segment_cache is not None and not listed and self._segments[0] != state.generation:
            segment = self._segment_cache.holding(offset, state)
            if segment is not None:
                return segment.base_offset, segment.next_offset
        bases = self.segments(state)
        number = bisect_right(bases, offset) - 1
        if number < 0 or bases[-1] != state.active_base:
            raise LogDamagedError(
                f"{self.place}: no segment for offset {offset} in {self._folder(state)} (log start "
                f"{state.log_start}, active segment {state.active_base}): files were removed or moved"
            )
        return bases[number], bases[number + 1]

    def _open(self, base: int, following: int | None, state: PartitionState) -> tuple[SegmentReader, PartitionState]:
        """Opens a segment of a state; returns the state after that, too."""
        with partition_state.missing_is_damage(self.place):
            segment = SegmentReader(self._folder(state), base, until=NO_OFFSET if following is None else following)
        # The folder may belong to a newer topic of the same name by now; but not if this one still exists.
        now = self.state()
        if now.incarnation != state.incarnation:
            raise LogDamagedError(f"{self.place}: the log was truncated while it was read")
        return segment, now

    def _live_bytes(self, segment: SegmentReader, state: PartitionState, now: PartitionState) -> int:
        """The live bytes of the segment that is active by a state, and was opened between that and `now`.

        Once it is inactive the cleaner may replace it by another file, to which the state's position does not apply.
        """
        if now.active_base == state.active_base:
            partition_state.check_length(self.place, segment.log.path, segment.log.size(), state.position)
            return state.position
        return segment.size_up_to(state.next_offset)

    def end_within(self, start: int, end: int, max_bytes: int) -> tuple[int, int]:
        """How far from `start` some `max_bytes` of the log reach, by the offset indexes.

        Args:
            start, end: a range of offsets, of which the log may not hold all.
            max_bytes: of record batches as they are stored. One batch is within them, however large it is.

        Returns:
            An offset up to `end` at which a batch begins or ends, and about how many bytes there are up to it.

        Raises:
            UnknownTopicError, LogDamagedError, CorruptRecordError: as `last_stable_offset`.
        """

        def find_end(state: PartitionState, listed: bool) -> tuple[int, int]:
            first, last = max(start, state.log_start), min(end, state.high_watermark)
            length = 0
            for segment, size in self._segments_from(first, state, listed) if first < last else ():
                begin = segment.position_of(first, size)
                stop = begin + max_bytes - length
                is_last = segment.until == NO_OFFSET or segment.until >= last
                live = min(segment.size_up_to(last), size) if is_last and last < state.high_watermark else size
                if stop < live:
                    return end_before(segment, first, min(stop, size), size, last), length + stop - begin
                length += live - begin
                if is_last:
                    break
            return end, length

        return self._retry_while_segments_change(find_end)

    def stored_batches(self, start: int, end: int, max_bytes: int, state: PartitionState) -> StoredBatches | None:
        """Where the batches of [start, end) are that are in one segment and within `max_bytes`; None: there are none.

        The first one is there however large it is. `end` is the high watermark or the last stable offset, or for
        another replica of the log its end; `state` is the state that the caller has read before. Errors as `read`.
        """

        def find(state: PartitionState, listed: bool) -> StoredBatches | None:
            self._check_range(start, end, state, state.next_offset)
            pieces = self._segments_from(start, state, listed) if start < end else ()
            located = (locate(segment, size, start, end, max_bytes) for segment, size in pieces)
            batches = next((batches for batches in located if batches is not None), None)
            if batches is not None and batches.next_offset == state.next_offset:
                self._tail.note(batches.file, state)
            return batches

        at_tail = self._tail.batches_from(start, max_bytes, state, self._log_path) if end == state.next_offset else None
        return at_tail or self._retry_while_segments_change(find, state)

    def producer_batches(self, start: int, end: int) -> list[tuple[BatchHeader, EndTxnMarker | None]]:
        """The batches of [start, end) that have producer ids, by their headers, with the markers of transactions.

        Raises as `last_stable_offset`; OffsetOutOfRangeError: the range is not in the log.
        """

        def find(state: PartitionState, listed: bool) -> list[tuple[BatchHeader, EndTxnMarker | None]]:
            self._check_range(start, end, state)
            pieces = self._segments_from(start, state, listed) if start < end else ()
            return [batch for segment, size in pieces for batch in idempotent_batches(segment, size, start, end)]

        return self._retry_while_segments_change(find)

    def _damage_at(self, offset: int) -> Damage | None:
        """The first damage that a read from `offset` on meets in the segment with that offset; None: there is none.

        Reads the segment from its beginning. UnknownTopicError, OSError.
        """
        state = self.state()
        bases = self.segments(state)
        number = bisect_right(bases, offset) - 1
        until = bases[number + 1] if number + 1 < len(bases) else state.high_watermark
        if number < 0:
            first = bases[0] if bases else state.log_start
            return missing_segment(self._log_path(first, state), offset, until) if offset < until else None
        base = bases[number]
        size = state.position if base == state.active_base else None
        path = self._log_path(base, state)
        return find_damage(path, base, size, offset, until, max_batch_bytes=self._max_batch_bytes, dense=self._dense)

    def find_timestamp(self, timestamp: int) -> OffsetAndTimestamp | None:
        """The first record, in offset order, whose time is `timestamp` (ms) or later, if there is one."""
        return self._retry_while_segments_change(lambda state, listed: self._by_time(state, listed).find(timestamp))

    def find_max_timestamp(self) -> OffsetAndTimestamp | None:
        """The record with the largest time, of several the first; None if no record has a time.

        As Kafka answers a ListOffsets request for -3 (KIP-734), but deleted records do not count. So a transaction
        marker counts as a record.
        """
        return self._retry_while_segments_change(self._find_max)

    def _find_max(self, state: PartitionState, listed: bool) -> OffsetAndTimestamp | None:
        largest, start = NO_TIMESTAMP, state.log_start
        if self._segment_cache is not None and not listed:
            largest, start = self._segment_cache.largest_timestamp(state)
        return self._by_time(state, listed).find_max(largest, start)

    def _by_time(self, state: PartitionState, listed: bool) -> TimeSearch:
        cached = None if listed else self._segment_cache
        return TimeSearch(
            self.place,
            state,
            self._max_batch_bytes,
            segments_from=lambda offset: self._segments_from(offset, state, listed),
            start_of=lambda time: state.log_start if cached is None else cached.start_by_time(time, state),
        )

    def _segments_from(self, offset: int, state: PartitionState, listed: bool) -> Iterator[tuple[SegmentReader, int]]:
        """The segment that holds `offset` and those after it, each with its live size."""
        position: int | None = offset
        while position is not None and position < state.next_offset:
            base, position = self._segment_of(position, state, listed)
            segment, now = self._open(base, position, state)
            yield segment, self._live_bytes(segment, state, now) if position is None else segment.log.size()
            segment.close()

    def opened(self, state: PartitionState) -> Iterator[tuple[SegmentReader, int]]:
        """Yields the segments of `state`, oldest first, each open until the next one is asked for, with its live bytes.

        The active one is opened before all others: it may be rolled, and even compacted, before its turn comes.

        Raises:
            LogDamagedError: one is missing, or was deleted meanwhile.
            LogDirOfflineError: the log dir has failed.
        """
        try:
            yield from self._opened(state)
        except LogDamagedError:
            self._check_folder(state)
            raise
        except OSError as error:
            self._fail(error)

    def _opened(self, state: PartitionState) -> Iterator[tuple[SegmentReader, int]]:
        position, active = state.log_start, None
        if max(position, state.active_base) < state.next_offset:
            active, _ = self._open(state.active_base, None, state)
        while position < state.active_base:
            base, following = self._segment_of(position, state, listed=True)
            segment, _ = self._open(base, following, state)
            yield segment, segment.log.size() if segment.until == NO_OFFSET else segment.size_up_to(segment.until)
            segment.close()
            position = state.active_base if following is None else following
        if active is not None:
            yield active, state.position
            active.close()
