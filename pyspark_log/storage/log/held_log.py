"""A partition's log while its lease is held: the active segment, and the basic changes to the files.

Recovery and the writer are built on it; the order of steps is the protocol of docs/internals/protocol.md.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NoReturn

from pyspark_log.config import LONG_MAX, TopicConfig
from pyspark_log.errors import LogDamagedError, OutcomeUnknownError, PylogError
from pyspark_log.storage.catalog import LogDir, LogDirs, PartitionPath, kafka_files
from pyspark_log.storage.catalog.log_dirs import LogOffsets
from pyspark_log.storage.fs import files
from pyspark_log.storage.fs.clock import Clock
from pyspark_log.storage.fs.locking import timeouts
from pyspark_log.storage.log import leader_epochs, leftovers
from pyspark_log.storage.log.lease import Lease
from pyspark_log.storage.log.producers.manager import ProducerStateManager
from pyspark_log.storage.log.read import segment_cache
from pyspark_log.storage.log.source_positions import SourcePositions
from pyspark_log.storage.log.state import state_file
from pyspark_log.storage.log.state.partition_state import NO_EPOCH, NO_OWNER, Flags, PartitionState, check_length
from pyspark_log.storage.record import BatchHeader
from pyspark_log.storage.segment import SegmentWriter
from pyspark_log.storage.segment.file_names import LOG, SEGMENT_SUFFIXES, list_segments, segment_path
from pyspark_log.types import TopicPartition

log = logging.getLogger(__name__)

_REWRITE_SIZE = 1024 * 1024


def write_again(log: files.File, start: int, end: int) -> None:
    """Rewrites the bytes [start, end) of a log. Without that, a sync after a failed one proves nothing about them."""
    for at in range(start, end, _REWRITE_SIZE):
        log.pwrite(log.pread(min(_REWRITE_SIZE, end - at), at), at)


class HeldLog:
    """One partition's log, for the process that holds its lease.

    Attributes:
        place: the partition; its folder is current while the lease is held.
        config: the topic's configs.
        clock: what time it is.
        lease: the lock, and the state.
        producers: the state of idempotent producers.
        sources: how far each source was written; None: the topic does not ask.
        syncs_if_asked: whether nothing but the caller of an append can ask for a sync.
    """

    def __init__(
        self, place: PartitionPath, config: TopicConfig, log_dirs: LogDirs, clock: Clock, led: Mapping[str, int]
    ) -> None:
        self.place = place
        self.config = config
        self.clock = clock
        self.lease = Lease(place)
        self.producers = ProducerStateManager(place, config.producer_id_expiration_ms)
        self.sources = self._sources_of(place)
        self.syncs_if_asked = not self.lease.shared and config.flush_messages == config.flush_ms == LONG_MAX
        self._led = led
        self._log_dirs = log_dirs
        self._log_dir: LogDir = log_dirs.at(0)
        self._segment: SegmentWriter | None = None

    @property
    def state(self) -> PartitionState:
        """The partition's state; the lease is held, so only the caller can change it."""
        return self.lease.held.state

    @property
    def leads(self) -> int:
        """The leader epoch in which this process leads a partition of a Kafka cluster; NO_EPOCH: it does not."""
        return self._led.get(self.place.state_path, NO_EPOCH)

    def find_folder(self) -> None:
        """Switches to the log dir that the state names: the partition may have been moved. LogDirOfflineError."""
        self._log_dir = self._log_dirs.check(self.lease.held.stored.log_dir, self.place)
        place = self.place.in_log_dir(self._log_dir.path)
        if place is not self.place:
            self.invalidate()
            producers = ProducerStateManager(place, self.config.producer_id_expiration_ms)
            sources = self._sources_of(place)
            # No call comes between them: after an interrupt there, the producers would stay those of another folder.
            self.place, self.producers, self.sources = place, producers, sources

    def _sources_of(self, place: PartitionPath) -> SourcePositions | None:
        header = self.config.source_position_header
        return SourcePositions(place, header, self.config.max_batch_bytes) if header else None

    def current_place(self) -> PartitionPath:
        """Where the partition is now; its lease need not be held. LogDirOfflineError, LogDamagedError, OSError."""
        loaded = state_file.read(self.place.state_path)
        if loaded is None:
            return self.place  # Its topic is deleted, which acquiring the lease reports.
        return self.place.in_log_dir(self._log_dirs.check(loaded.state.log_dir, self.place).path)

    def fail(self, error: OSError) -> NoReturn:
        """Raises a system error; as LogDirOfflineError if it means that the log dir has failed."""
        explained = self._log_dirs.explained(error, self.place)
        if explained is error:
            raise error
        raise explained from error

    def reload(self) -> None:
        """Rereads everything, after an error that left it open whether the state was written."""
        self.invalidate()
        self.lease.reload()

    def unsynced_since(self) -> int:
        """Since when (ms) records are unsynced, if records are appended now without a sync."""
        state = self.state
        return state.unsynced_since if state.synced < state.position else self.clock()

    def bases(self) -> list[int]:
        """The base offsets of the live segments, ascending."""
        return [base for base in list_segments(self.place.folder) if self.state.counts(base)]

    # ---- the active segment

    @property
    def segment(self) -> SegmentWriter:
        """The active segment, up to the end."""
        if self._segment is None:
            self._segment = self._open_active()
        return self._segment

    def _open_active(self) -> SegmentWriter:
        state, folder = self.state, self.place.folder
        path = segment_path(folder, state.active_base, LOG)
        try:
            check_length(self.place, path, files.size_of(path), state.position)
            # Before the segment is opened, which removes index entries beyond the log end.
            self._check_leftovers()
            return SegmentWriter(folder, state.active_base, state.position, self.config, self.clock)
        except FileNotFoundError:
            if state.position > 0:
                raise LogDamagedError(
                    f"{self.place}: the active segment {path} is missing; it held {state.position} bytes"
                ) from None
        files.make_folder(folder)
        metadata = f"{folder}/{kafka_files.PARTITION_METADATA}"
        if not files.exists(metadata):
            kafka_files.write_partition_metadata(metadata, self.place.topic_id)
        leader_epochs.begin(folder, state.leader_epoch, state.next_offset)
        segment = self.new_segment(state.active_base)
        self.update_side_files()
        return segment

    def new_segment(self, base_offset: int) -> SegmentWriter:
        """Creates the files of an empty segment, durably. Deletes leftover files of that name first."""
        path = segment_path(self.place.folder, base_offset, LOG)
        if self.lease.may_cut:
            for suffix in reversed(SEGMENT_SUFFIXES[1:]):
                leftover = segment_path(self.place.folder, base_offset, suffix)
                if files.exists(leftover):
                    self.lease.unlink(leftover)
        self.lease.claim()
        if self.lease.may_cut and files.exists(path):
            # Atomically, as it may be the active one, which readers look for.
            files.replace_whole(path, b"")
        else:
            files.create(path).close()
            files.sync_folder(self.place.folder)
        return SegmentWriter(self.place.folder, base_offset, 0, self.config, self.clock)

    def use_segment(self, segment: SegmentWriter) -> None:
        """Appends to this segment from now on, after `save` has made it the active one."""
        if self._segment is segment:
            return
        previous, self._segment = self._segment, segment
        if previous is not None:
            previous.close()
        try:
            self.producers.take_snapshot(self.state, self.clock())
            if self.sources is not None:
                self.sources.take_snapshot(self.state)
        except (OSError, PylogError) as error:
            log.warning("%s: could not take a snapshot of its producers: %s", self.place, error)

    def forget_all(self) -> None:
        """Drops what is cached of files that were replaced."""
        self.invalidate()
        self.producers.invalidate()
        if self.sources is not None:
            self.sources.invalidate()

    def invalidate(self) -> None:
        """Drops what is cached of the files; the next use reads them again."""
        previous, self._segment = self._segment, None
        if previous is not None:
            previous.close()
        self.producers.close()

    def catch_up(self) -> None:
        """Continues where another process left off. LogDamagedError."""
        self.producers.close()
        state = self.state
        if self._segment is not None:
            same = state.generation == self.lease.generation_left and state.active_base == self._segment.base_offset
            # A client of a shared file system surely sees the writes of others only in a file that it opened after
            # them.
            if same and not self.lease.shared:
                self._check_length(self._segment)
                self._segment.resume(state.position)
            else:
                self.invalidate()

    def index(self, segment: SegmentWriter, headers: Sequence[BatchHeader]) -> None:
        """Adds index entries for batches of the active segment that readers see already.

        If that fails the batches are visible all the same, and the next process that opens the segment adds the
        entries.
        """
        try:
            segment.enter(headers)
        except OSError as error:
            log.warning("%s: index entries could not be written: %s", self.place, error)
            self.invalidate()

    # ---- syncing

    def must_sync(self, end: int) -> bool:
        """Whether the log must be synced before it ends at `end`, though the caller does not ask for it.

        Always on a shared file system; else by flush.messages and flush.ms. No process runs all the time that could
        sync at a given time, so the first append after flush.ms syncs.
        """
        if self.syncs_if_asked:
            return False
        if self.lease.shared:
            return True
        config, state = self.config, self.state
        unsynced = state.synced < state.position
        if config.flush_messages < LONG_MAX:
            first = self.segment.offset_at(state.synced) if unsynced else state.next_offset
            if end - first >= config.flush_messages:
                return True
        if config.flush_ms == LONG_MAX:
            return False
        age = self.clock() - state.unsynced_since if unsynced else 0
        # A time in the future says nothing: the clock was set back.
        return not 0 <= age < config.flush_ms

    def sync_log(self, segment: SegmentWriter) -> None:
        """Makes a segment's log durable. Raises OutcomeUnknownError as `sync_file` does."""
        self.sync_file(segment.log)

    def sync_file(self, log: files.File) -> None:
        """Makes a segment's log durable. The caller saves the state afterwards.

        Raises:
            OutcomeUnknownError: it is not known what of it is on the disk. The kernel may mark the lost pages as clean,
                so a later sync of the file proves nothing: the state marks the segment as suspect, and the next append
                begins another one.
        """
        suspect = bool(self.lease.held.stored.flags & Flags.SUSPECT)
        if not suspect:
            # Before the sync: a process that is killed while it waits for the disk does not learn the outcome.
            self.lease.suspect()
        try:
            log.sync()
        except OSError as error:
            raise OutcomeUnknownError(
                f"{self.place}: {log.path} could not be synced ({error}); what was being added is not visible"
            ) from error
        if not suspect:
            self.lease.trust()

    def flush(self) -> None:
        """Syncs everything, and returns the unused reserve of offsets. The lock is held.

        Raises:
            OSError, OutcomeUnknownError: as `append`.
        """
        if self.state.flags & Flags.SUSPECT:
            self.roll()  # A sync of this segment proves nothing any more.
        state = self.state
        if state.synced < state.position or state.reserve > state.next_offset:
            self.sync_log(self.segment)
            self.lease.save(state._replace(synced=state.position, reserve=state.next_offset), durable=True)
        self.note_offsets()

    def close_segment(self, segment: SegmentWriter, position: int) -> None:
        """Ends a segment of `position` bytes, durably, before another one begins.

        A hole that a power loss left here would make everything after it unreachable.
        """
        if self.state.flags & Flags.SUSPECT:
            write_again(segment.log, self.state.synced, position)
        self.sync_log(segment)
        self.producers.sync_index(segment.base_offset)
        segment.finish()

    def roll(self, *, new_incarnation: bool = False) -> None:
        """Closes the active segment and begins the next one at the log end.

        With `new_incarnation`, no process relies on what it has cached of the log.
        """
        self.lease.claim()
        state = self.state
        self.close_segment(self.segment, state.position)
        self.drop_newer_segments()
        segment = self.new_segment(state.next_offset)
        # No other process can write to the new segment.
        self.lease.cut_off = False
        self.lease.save(
            state._replace(
                flags=state.flags & ~Flags.SUSPECT,
                active_base=state.next_offset,
                position=0,
                synced=0,
                generation=state.generation + 1,
                incarnation=state.incarnation + new_incarnation,
            ),
            durable=True,
        )
        self.use_segment(segment)

    # ---- cutting

    def _check_length(self, segment: SegmentWriter) -> int:
        """Returns the size of the active segment. LogDamagedError: it is shorter than the state says."""
        size = segment.log.size()
        try:
            check_length(self.place, segment.log.path, size, self.lease.held.position)
        except LogDamagedError:
            self.invalidate()
            raise
        return size

    def _check_leftovers(self) -> None:
        """Raises LogDamagedError if records beyond the log end may have been acknowledged."""
        reason = leftovers.reason_to_keep(self.place, self.state)
        if reason:
            self.invalidate()
            raise LogDamagedError(
                f"{self.place}: by {self.place.state_path} the log ends at offset {self.state.next_offset}, but "
                f"{reason}: the state file is older than the log",
                "nothing is changed: restore both from the same copy, or make a repaired copy of the store "
                "(pylog repair)",
            )

    def cut_leftovers(self) -> None:
        """Removes what a killed writer left beyond the log end. LogDamagedError: the log is shorter than its state."""
        # Not `state`, which takes longer than a small append has.
        held = self.lease.held
        if self._check_length(self.segment) > held.position or held.stored.flags & Flags.CUTTING:
            self._check_leftovers()
            self.lease.cut_off = self.lease.shared
            self.cut()

    def cut(self) -> None:
        """Truncates the files to the log end: removes bytes, segments and index entries beyond it.

        The flag makes the next holder do it again, since a power loss can undo a truncation that was not synced.
        """
        if not self.lease.may_cut:
            self.invalidate()
            return
        # Opened before the claim: after it, a file of that name may be one to which another holder appends.
        segment = self.segment
        state = self.state
        log.info("%s: removing what is beyond the log end %d", self.place, state.next_offset)
        self.lease.save(state._replace(flags=state.flags | Flags.CUTTING), durable=False)
        self.drop_newer_segments()
        segment.cut(state.position, state.next_offset)
        self.producers.cut(state)
        self.sync_log(segment)
        files.sync_folder(self.place.folder)
        self.lease.save(state._replace(flags=state.flags & ~Flags.CUTTING), durable=False)

    def drop_newer_segments(self) -> None:
        """Deletes segments above the active one, which a killed holder left; called before another one is created.

        A file that stayed would become live as soon as the active segment is above it; so would its side files. On a
        shared file system one can appear at any time, from a holder that was suspended between its claim and the
        creation.
        """
        newer = [base for base in list_segments(self.place.folder) if base > self.state.active_base]
        if newer or self.lease.may_cut:
            segment_cache.drop_from(self.place, self.state.active_base)
        for base in newer:
            # The log last: as long as it is there, the next holder deletes the others too.
            for suffix in reversed(SEGMENT_SUFFIXES):
                self.lease.unlink(segment_path(self.place.folder, base, suffix))

    # ---- Kafka's files

    def cut_epochs(self, end: int) -> None:
        """Removes the leader epochs that began at or beyond a new log end, which a truncation will save."""
        if self.state.owner_node == NO_OWNER:
            # The current one continues there.
            leader_epochs.begin(self.place.folder, self.state.leader_epoch, end)
        else:
            # A copy gets its epochs with its batches.
            leader_epochs.cut_end(self.place.folder, end)

    def update_side_files(self, *, at_once: bool = False) -> None:
        """Updates Kafka's side files of the partition after its log start or log end has moved. OSError.

        `at_once`: the checkpoints, too, as the log may be shorter than they say.
        """
        leader_epochs.cut_start(self.place.folder, self.state.log_start)
        self.note_offsets()
        if at_once:
            self._log_dir.write(timeouts.CHECKPOINTS)
        else:
            self._log_dir.write_due()

    def note_offsets(self) -> None:
        """Has the checkpoints updated with the log start, the log end, and up to where the log is on the disk."""
        at = TopicPartition(self.place.topic, self.place.partition)
        self._log_dir.note(at, partial(_offsets_of, self.place))


def _offsets_of(place: PartitionPath) -> LogOffsets | None:
    """The offsets of a partition for the checkpoints, by its state; None: it is deleted, or cannot be read."""
    try:
        loaded = state_file.read(place.state_path)
        if loaded is None or loaded.state.flags & Flags.DEAD:
            return None
        state = loaded.state
        first = min(list_segments(place.folder), default=state.active_base)
    except (PylogError, OSError) as error:
        log.info("%s: its offsets are missing in the checkpoints: %s", place, error)
        return None
    return LogOffsets(
        recovery_point=state.next_offset if state.synced == state.position else state.active_base,
        high_watermark=state.high_watermark,
        log_start=state.log_start if state.log_start > first else None,
    )
