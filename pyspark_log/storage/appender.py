"""Changes one partition's log: appends, rolls, cuts, and puts right what a killed holder left.

Everything here happens while the partition's lock is held (`Appender.hold`). The order of steps is the
protocol of docs/guarantees.md; in short: bytes first, then the end, then the index entries. Until the end
moves, nothing that was written exists for anybody.
"""

from __future__ import annotations

import contextlib
import logging
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from pyspark_log.storage import checkpoint_files, files, leader_epochs, state_file
from pyspark_log.storage.batch import BatchHeader
from pyspark_log.storage.clock import Clock, now_ms
from pyspark_log.storage.config import TopicConfig
from pyspark_log.storage.errors import (
    InvalidRecordError,
    LogDamagedError,
    OffsetOutOfRangeError,
    OutcomeUnknownError,
    PylogError,
    RecordTooLargeError,
    UnknownTopicError,
)
from pyspark_log.storage.locks import DEFAULT_TIMEOUT, FileLock, lock_for
from pyspark_log.storage.log_folder import LogFolder, LogOffsets
from pyspark_log.storage.missing import no_state
from pyspark_log.storage.mounts import is_shared
from pyspark_log.storage.place import PartitionPlace
from pyspark_log.storage.producers import Numbered, Producers
from pyspark_log.storage.records import scan, stamp
from pyspark_log.storage.segment import (
    LOG,
    SEGMENT_SUFFIXES,
    SegmentReader,
    SegmentWriter,
    list_segments,
    read_headers,
    segment_path,
)
from pyspark_log.storage.state_file import Flags, Intent, Loaded, PartitionState
from pyspark_log.storage.types import TopicPartition

log = logging.getLogger(__name__)

_REWRITE_SIZE = 1024 * 1024

#: How far ahead of unsynced records offsets are reserved: one sync in so many records.
RESERVE = 1 << 20


class Recovery(NamedTuple):
    """What an appender does about what others left; it knows when, and not how.

    Attributes:
        resolve: finishes or drops an intent that a killed holder left; see apply.py.
        after_restart: puts the partition right if the machine went down since; see power.py.
        clean: lets go of segments that are too old; see retention.py.
    """

    resolve: Callable[[Appender], None]
    after_restart: Callable[[Appender], None]
    clean: Callable[[Appender], object]


class Appended(NamedTuple):
    """The offsets [base_offset, next_offset) that records have; `duplicate`: they had them before."""

    base_offset: int
    next_offset: int
    duplicate: bool = False


class Appender:
    """The one that changes a partition, for this process. Several threads may share it.

    Attributes:
        place: whose log it is.
        config: the topic's settings.
        producers: what is known of producers that number their records.
        clock: what time it is.
    """

    def __init__(
        self, place: PartitionPlace, config: TopicConfig, recovery: Recovery, log_folder: LogFolder
    ) -> None:
        self.place = place
        self.config = config
        self.clock: Clock = now_ms
        self.producers = Producers(place.folder, config.producer_id_expiration_ms)
        self._recovery = recovery
        self._log_folder = log_folder
        # Another host may take over at any moment, and sees only what is synced.
        self._shared = is_shared(os.path.dirname(place.state_path))
        self._lock: FileLock | None = None
        self._segment: SegmentWriter | None = None
        self._state_file: files.File | None = None
        self._seen = (-1, -1)  # generation and sequence number of the state that `_segment` agrees with
        self._loaded: Loaded | None = None

    # ---- holding the lock

    @contextlib.contextmanager
    def hold(self, timeout: float = DEFAULT_TIMEOUT) -> Iterator[Appender]:
        """Holds the partition's lock, with its log in order: no intent, nothing behind the end.

        Raises:
            LockTimeoutError: not to be had within `timeout` seconds.
            UnknownTopicError: the topic was deleted.
            LogDamagedError: the files are shorter than the state says.
            OSError: the store cannot be written.
        """
        lock = self._lock = self._lock or lock_for(self.place.state_path)
        try:
            lock.acquire(timeout)
        except FileNotFoundError:
            raise no_state(self.place) from None
        try:
            if lock.file is not self._state_file:
                # The first time, or the store's folder was replaced by a copy: what was known is of other files.
                self.forget()
                self.producers.forget()
                self._state_file = lock.file
            self._loaded = state_file.load(lock.file)
            self._enter(lock)
            yield self
        finally:
            self._loaded = None
            lock.release()

    def _enter(self, lock: FileLock) -> None:
        loaded = self._held
        if loaded.state.flags & Flags.DEAD:
            raise UnknownTopicError(f"{self.place}: the topic was deleted")
        mine = (loaded.state.generation, loaded.state.seq) == self._seen
        if not mine and loaded.slot >= 2:
            # Its writer may have died between write and sync; what is built on it must not outlive it.
            lock.file.sync()
        if loaded.state.boot != state_file.this_boot() and not self._shared:
            self._recovery.after_restart(self)
        elif loaded.state.intent != Intent.NONE:
            self.forget()
            self._recovery.resolve(self)
        elif not mine:
            self._catch_up()
        self._cut_leftovers()

    @property
    def _held(self) -> Loaded:
        assert self._loaded is not None, "the partition's lock is not held"
        return self._loaded

    @property
    def state(self) -> PartitionState:
        """The partition's state; the lock is held, so nobody changes it but the caller."""
        return self._held.state

    def save(self, state: PartitionState, *, durable: bool) -> None:
        """Makes `state` the partition's state (and, if `durable`, syncs it)."""
        assert self._lock is not None
        self._loaded = state_file.store(self._lock.file, self._held, state, durable=durable, sync=self._shared)
        self._seen = (self._loaded.state.generation, self._loaded.state.seq)

    # ---- the active segment

    @property
    def segment(self) -> SegmentWriter:
        """The active segment, up to the end."""
        if self._segment is None:
            self._segment = self._open_active()
        return self._segment

    def _open_active(self) -> SegmentWriter:
        state, folder = self.state, self.place.folder
        try:
            return SegmentWriter(folder, state.active_base, state.position, self.config, self.clock)
        except FileNotFoundError:
            if state.position > 0:
                raise LogDamagedError(
                    f"{self.place}: the active segment {segment_path(folder, state.active_base, LOG)} is "
                    f"missing, which held {state.position} bytes"
                ) from None
        files.make_folder(folder)
        metadata = f"{folder}/{checkpoint_files.PARTITION_METADATA}"
        if not os.path.exists(metadata):
            checkpoint_files.write_partition_metadata(metadata, self.place.topic_id)
        leader_epochs.begin(folder, state.leader_epoch, state.next_offset)
        segment = self.new_segment(state.active_base)
        self.tell_folder()
        return segment

    def new_segment(self, base_offset: int) -> SegmentWriter:
        """Makes the files of an empty segment, durably. Files of that name are leftovers and go first."""
        for suffix in reversed(SEGMENT_SUFFIXES):
            path = segment_path(self.place.folder, base_offset, suffix)
            if os.path.exists(path):
                files.unlink(path)
        files.create(segment_path(self.place.folder, base_offset, LOG)).close()
        files.sync_folder(self.place.folder)
        return SegmentWriter(self.place.folder, base_offset, 0, self.config, self.clock)

    def use_segment(self, segment: SegmentWriter) -> None:
        """Makes a segment the one to append to, after `save` has made it the active one."""
        if self._segment is segment:
            return
        if self._segment is not None:
            self._segment.close()
        self._segment = segment
        try:
            self.producers.take_snapshot(self.state, self.clock())
        except (OSError, PylogError) as error:
            log.warning("%s: no snapshot of its producers was taken: %s", self.place, error)

    def forget(self) -> None:
        """Drops what is known of the files; the next use looks at them anew."""
        if self._segment is not None:
            self._segment.close()
        self.producers.close()
        self._segment, self._seen = None, (-1, -1)

    def _catch_up(self) -> None:
        """Takes over where another process left off."""
        self.producers.close()
        state = self.state
        if self._segment is not None:
            same = state.generation == self._seen[0] and state.active_base == self._segment.base_offset
            # A client of a shared file system sees what others wrote for certain only in a file opened since.
            if same and not self._shared:
                self._segment.resume(state.position)
            else:
                self.forget()
        self._seen = (state.generation, state.seq)

    # ---- cutting

    def _cut_leftovers(self) -> None:
        segment = self.segment
        size = segment.log.size()
        if size < self.state.position:
            self.forget()
            raise LogDamagedError(
                f"{self.place}: {segment.log.path} has {size} bytes, of which {self.state.position} were "
                "written and acknowledged: something cut it. Nothing is changed; restore it from a copy"
            )
        if size > self.state.position or self.state.flags & Flags.CUTTING:
            self.cut()

    def cut(self) -> None:
        """Removes all that stands behind the end: bytes, segments, index entries.

        The flag makes the next holder do it again, since a truncation that was not synced can undo itself
        when the power goes.
        """
        state = self.state
        log.info("%s: removing what stands behind the log end %d", self.place, state.next_offset)
        self.save(state._replace(flags=state.flags | Flags.CUTTING), durable=False)
        self.drop_newer_segments()
        self.segment.cut(state.position, state.next_offset)
        self.producers.cut(state, self.clock())
        self.segment.log.sync()
        files.sync_folder(self.place.folder)
        self.save(state._replace(flags=state.flags & ~Flags.CUTTING), durable=False)

    def drop_newer_segments(self) -> None:
        """Removes segments above the active one, which a killed holder left; before another one is made.

        One that stayed would count as soon as the active segment is above it.
        """
        for base in list_segments(self.place.folder):
            if base > self.state.active_base:
                # The log last: where it is left, the next holder comes for the others.
                for suffix in reversed(SEGMENT_SUFFIXES):
                    files.unlink(segment_path(self.place.folder, base, suffix))

    # ---- appending

    def append(self, data: bytearray, *, sync: bool, first_undone: int | None = None) -> Appended:
        """Appends whole record batches; the caller holds the lock.

        Args:
            data: batches in format 2, back to back, with dense offsets from 0; their offsets are set here. A batch
                with a producer id comes alone.
            sync: True: what is acknowledged survives a power loss.
            first_undone: for the decision log: its new value in the state.

        Returns:
            The offsets that the records have; those of the first time, if their producer sends them again.

        Raises:
            RecordTooLargeError: larger than a segment may be.
            ProducerError: the batch does not follow its producer's last one; nothing was appended.
            OSError: e.g. a full disk; nothing was appended.
            OutcomeUnknownError: a sync failed; nothing was appended as far as readers see, but the disk
                can no longer be trusted with this segment. The next append begins another.
        """
        if len(data) > self.config.segment_bytes:
            raise RecordTooLargeError(
                f"{self.place}: an append of {len(data)} bytes is larger than segment.bytes "
                f"({self.config.segment_bytes}): append less at a time, or raise segment.bytes"
            )
        base = self.state.next_offset
        end = stamp(data, 0, len(data), base, self.state.leader_epoch)
        headers = scan(data, 0, len(data))
        numbered = self._judge(headers, data)
        if numbered is not None and numbered.duplicate is not None:
            if sync:
                self.settle()
            return Appended(numbered.duplicate.base_offset, numbered.duplicate.last_offset + 1, duplicate=True)
        newest = max(header.max_timestamp for header in headers)
        if self.state.flags & Flags.SUSPECT or self.segment.must_roll(len(data), end - 1, newest):
            self.roll()
            self.maintain()
        sync = sync or self._shared
        if not sync and end > self.state.reserve:
            # Before readers see offsets that a power loss could take back: none of these is ever used again.
            self.save(self.state._replace(reserve=end + RESERVE), durable=True)
        segment, state = self.segment, self.state
        try:
            segment.log.pwrite(data, state.position)
            if numbered is not None and numbered.aborted is not None:
                self.producers.index_aborted(state, numbered.aborted, self.clock())
            if sync:
                self.sync_log(segment)
        except (OSError, OutcomeUnknownError):
            self._undo()
            raise
        position = state.position + len(data)
        moved = state._replace(
            next_offset=end, position=position, synced=position if sync else state.synced,
            first_undone=state.first_undone if first_undone is None else first_undone,
            flags=state.flags if numbered is None else state.flags | Flags.PRODUCERS,
        )  # fmt: skip
        try:
            # A power loss can take this back and leave the batches, which are then adopted.
            self.save(moved, durable=False)
        except OSError as error:
            self.forget()
            raise OutcomeUnknownError(
                f"{self.place}: the log end could not be moved to {end} ({error}); read it before trying again"
            ) from error
        if numbered is None:
            self.producers.pass_over(base, end)
        else:
            self.producers.enter(numbered)
        self.index(headers)
        return Appended(base, end)

    def _judge(self, headers: Sequence[BatchHeader], data: bytearray) -> Numbered | None:
        """What a batch with a producer id means for this partition; None for all others."""
        if all(header.producer_id < 0 for header in headers):
            return None
        if len(headers) != 1:
            raise InvalidRecordError(f"{self.place}: {len(headers)} batches at once, one of them with a producer id")
        return self.producers.judge(self.state, data, headers[0], self.clock())

    def settle(self) -> None:
        """Makes all that is there durable, and gives back the reserve of offsets. The lock is held.

        Raises:
            OSError, OutcomeUnknownError: as append says.
        """
        if self.state.flags & Flags.SUSPECT:
            self.roll()  # A sync of this segment says nothing any more.
        state = self.state
        if state.synced < state.position or state.reserve > state.next_offset:
            self.sync_log(self.segment)
            self.save(state._replace(synced=state.position, reserve=state.next_offset), durable=True)
        self._note_offsets()

    def tell_folder(self) -> None:
        """Has what Kafka keeps of a partition, beside its segments, follow where its log starts and ends. OSError."""
        leader_epochs.cut_start(self.place.folder, self.state.log_start)
        self._note_offsets()
        self._log_folder.write_due()

    def _note_offsets(self) -> None:
        state = self.state
        first = min(list_segments(self.place.folder), default=state.active_base)
        self._log_folder.note(
            TopicPartition(self.place.topic, self.place.partition),
            LogOffsets(
                recovery_point=state.next_offset if state.synced == state.position else state.active_base,
                high_watermark=state.next_offset,
                log_start=state.log_start if state.log_start > first else None,
            ),
        )

    def close_segment(self, segment: SegmentWriter, position: int) -> None:
        """Ends a segment of `position` bytes, durably, before another one begins.

        A hole that a power loss makes here would make everything behind it unreachable.
        """
        if self.state.flags & Flags.SUSPECT:
            # What the failed sync may have lost is written once more, so that this sync says something.
            for at in range(self.state.synced, position, _REWRITE_SIZE):
                segment.log.pwrite(segment.log.pread(min(_REWRITE_SIZE, position - at), at), at)
        self.sync_log(segment)
        self.producers.sync_index(segment.base_offset)
        segment.finish()

    def index(self, headers: Sequence[BatchHeader]) -> None:
        """Adds index entries for batches that readers see by now.

        If that fails the batches are there all the same. Whoever opens the segment next makes up for it.
        """
        try:
            self.segment.enter(headers)
        except OSError as error:
            log.warning("%s: index entries could not be written: %s", self.place, error)
            self.forget()

    def sync_log(self, segment: SegmentWriter) -> None:
        """Makes a segment's log durable.

        Raises:
            OutcomeUnknownError: nobody knows what of it is on the disk. The kernel may call the lost pages
                clean from now on, so a later sync of the file proves nothing: it is marked in the state,
                and the next append begins another segment.
        """
        try:
            segment.log.sync()
        except OSError as error:
            self.save(self.state._replace(flags=self.state.flags | Flags.SUSPECT), durable=False)
            raise OutcomeUnknownError(
                f"{self.place}: {segment.log.path} could not be synced ({error}); what was being added is not visible"
            ) from error

    def _undo(self) -> None:
        """After a failed write: nothing stays behind the end; if even that fails, the next holder cuts."""
        try:
            self.cut()
        except OSError as error:
            log.warning("%s: what a failed append wrote could not be removed now: %s", self.place, error)
            self.forget()

    def roll(self) -> None:
        """Closes the active segment, which is not empty, and begins the next one at the log end."""
        state = self.state
        self.close_segment(self.segment, state.position)
        self.drop_newer_segments()
        segment = self.new_segment(state.next_offset)
        self.save(
            state._replace(
                flags=state.flags & ~Flags.SUSPECT,
                active_base=state.next_offset, position=0, synced=0, generation=state.generation + 1,
            ),
            durable=True,
        )  # fmt: skip
        self.use_segment(segment)

    def maintain(self) -> None:
        """Lets go of segments that are too old. Nobody's write fails for it: an error is logged, and the next one tries."""
        try:
            self._recovery.clean(self)
        except (OSError, PylogError) as error:
            log.warning("%s: old segments could not be removed: %s", self.place, error)
            # Whether the state was written before the error is not known.
            self.forget()
            assert self._lock is not None
            self._loaded = state_file.load(self._lock.file)

    # ---- taking back

    def truncate(self, offset: int) -> int:
        """Takes back records from `offset` on, durably; the lock is held. For replicas: readers may have seen them.

        Batches go whole: the log then ends behind the last batch that lies before `offset`. (Kafka ends it at `offset`
        itself, with a hole in front; no log of ours has one.) If that would be before the log start, nothing
        stays, and the log goes on at its start. After a power loss in the middle the end may lie in between.

        Returns:
            The log end.

        Raises:
            OffsetOutOfRangeError: below the log start, or above the log end.
            OSError, LogDamagedError: the log ends where it did, or at the new end.
        """
        state, place = self.state, self.place
        if not state.log_start <= offset <= state.next_offset:
            raise OffsetOutOfRangeError(place.topic, place.partition, offset, state.log_start, state.next_offset)
        if offset == state.next_offset:
            return offset
        base, position, end = self._place_of(offset)
        if end < state.log_start:
            self.drop_newer_segments()
            self.new_segment(state.log_start).close()
            base, position, end = state.log_start, 0, state.log_start
        synced = min(position, state.synced) if base == state.active_base else position
        leader_epochs.begin(place.folder, state.leader_epoch + 1, end)
        self.save(
            state._replace(
                # What stands behind the new end is now a leftover, which the next holder removes if this one cannot.
                flags=state.flags | Flags.CUTTING, active_base=base, position=position, synced=synced,
                next_offset=end, generation=state.generation + 1,
                # Offsets that are given to other records have another epoch.
                leader_epoch=state.leader_epoch + 1,
            ),
            durable=True,
        )  # fmt: skip
        self.forget()
        self.cut()
        self.tell_folder()
        return end

    def _place_of(self, offset: int) -> tuple[int, int, int]:
        """The batch that holds `offset`: its segment, its position and its first offset."""
        bases = [base for base in list_segments(self.place.folder) if base <= self.state.active_base]
        base = bases[bisect_right(bases, offset) - 1]
        reader = SegmentReader(self.place.folder, base)
        try:
            size = self.state.position if base == self.state.active_base else reader.log.size()
            position, end = 0, base
            for header in read_headers(reader.log, reader.position_of(offset, size), size):
                position, end = header.position, header.base_offset
                if header.last_offset >= offset:
                    break
                position, end = header.end, header.next_offset
        finally:
            reader.close()
        return base, position, end
