"""Copies a live store while processes read it and write to it. The copy is the store at one moment.

1. Partition by partition, the data written so far is copied ahead. Only one lock is held at a time, and for a moment.
2. With all locks held (the decision log's, that of all topics, those of the partitions that were ever written to), it
   is noted where each log ends, and the files that hold what the copy lacks are opened. This is the moment.
3. The locks are released, and what was opened is copied: an open file can be read although it is deleted meanwhile.

Nothing is made in the source. `store.json` is written last: before that the folder is not a store.
"""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyspark_log.errors import LockTimeoutError, PylogError, UnknownTopicError
from pyspark_log.storage.catalog import PUBLISH_TOPIC
from pyspark_log.storage.catalog.store_json import STAGING_FOLDER, STORE_FILE, TOPICS_FOLDER, StoreDescription
from pyspark_log.storage.catalog.topics import MAX_DESCRIPTION_BYTES
from pyspark_log.storage.folder_store import FolderStore
from pyspark_log.storage.fs import files
from pyspark_log.storage.fs.locking import timeouts
from pyspark_log.storage.log import HeldLog, Turnstile
from pyspark_log.storage.log.read import segment_cache
from pyspark_log.storage.log.state import EMPTY, Flags, state_file
from pyspark_log.storage.log.state.state_file import FILE_SIZE
from pyspark_log.storage.log_manager import LogManager, TopicLogs
from pyspark_log.storage.log_manager.folder_copy import FolderCopy, NewBytes
from pyspark_log.storage.maintenance.new_folder import new_folder
from pyspark_log.storage.maintenance.progress import Progress, ProgressCounter
from pyspark_log.storage.maintenance.verify import log_bytes
from pyspark_log.storage.publish import Decision, apply_pending, recovery, staging_folder
from pyspark_log.storage.publish.staging import manifest
from pyspark_log.storage.segment import SegmentWriter
from pyspark_log.storage.segment.file_names import list_segments

log = logging.getLogger(__name__)

# How often it tries to get all locks.
_ATTEMPTS = 5
_PIECE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Backup:
    """A copy of a store that was made.

    Attributes:
        path: its folder.
        time: of which moment it is, in ms since 1970.
        pause: how long processes that write had to wait, in s.
        partitions: how many partitions have records.
        bytes: how many bytes were copied.
        undone: how many decided publishes in it cannot be applied: what was staged for them is damaged or missing.
    """

    path: str
    time: int
    pause: float
    partitions: int
    bytes: int
    undone: int


def back_up(store: FolderStore, into: str | os.PathLike[str], *, progress: Progress | None = None) -> Backup:
    """Copies a store as it is at one moment into a new folder, while other processes read it and write to it.

    It opens about a dozen files for each partition. While it runs, the process may open as many as the system allows.

    Args:
        store: the store.
        into: a folder that is missing or empty, outside of the store and its log dirs; the folder above it exists.
        progress: called with the number of bytes copied, and the total.

    Raises:
        StoreNotFoundError: the folder above `into` does not exist.
        StoreExistsError: `into` is not empty, or lies in the store or one of its log dirs.
        ReadOnlyError: it is a folder of a Kafka broker.
        LockTimeoutError: some process holds a lock for too long.
        LogDamagedError, LogDirOfflineError: a partition cannot be copied.
        OSError: e.g. a full disk. What was made of the copy is no store, and can be deleted.
    """
    store.check_writable()
    folder = new_folder(store, into)
    with _many_open_files():
        return _Backup(store, folder, progress).run()


@contextlib.contextmanager
def _many_open_files() -> Iterator[None]:
    before = soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # Some systems refuse what they name as the limit.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield
    finally:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, before)


class _Partition:
    """The copy of one partition.

    Attributes:
        state: as it is in the copy; not set before the moment.
    """

    def __init__(self, source: LogManager, target: LogManager, opened: TopicLogs, number: int) -> None:
        """Changes nothing yet. `opened`: its topic."""
        self._writer = Turnstile(HeldLog(opened.place(number), opened.config, source.log_dirs, source.clock, {}))
        self.target = target.open(opened.description).place_in(number, 0)
        self.state = EMPTY
        self._copy: FolderCopy | None = None
        self._new: list[NewBytes] = []
        self._cleaner: bytes | None = None

    def _copied_from(self, folder: str, counter: ProgressCounter) -> FolderCopy:
        if self._copy is None or self._copy.source != folder:  # It was moved to another log dir.
            self._copy = FolderCopy(folder, self.target.folder, active_indexes=False, progress=counter.add)
        return self._copy

    def copy_ahead(self, counter: ProgressCounter) -> None:
        """Copies the data written so far. Recovers the log first, so that it need not be done at the moment."""
        with self._writer.hold() as held:
            state, folder = held.state, held.log.place.folder
        self._copied_from(folder, counter).follow(state, locked=False)

    def hold(self, held: contextlib.ExitStack, timeout: float, counter: ProgressCounter) -> None:
        """Takes the partition's lock for as long as `held` is open, and notes what is to be copied."""
        writer = held.enter_context(self._writer.hold(timeout))
        if writer.state.flags & Flags.SUSPECT:
            writer.log.roll()  # What can be read of this segment may be in memory only; now it is on the disk.
        state = writer.state
        self._new = list(self._copied_from(writer.log.place.folder, counter).find_new(state, locked=True))
        # All of the copy is synced, so no offsets are in reserve. There is one log dir, and nothing is in progress.
        self.state = state._replace(
            log_dir=0, synced=state.position, reserve=state.next_offset, flags=state.flags & Flags.PRODUCERS
        )
        self._cleaner = _read(writer.log.place.cleaner_path)

    def finish(self) -> int:
        """Copies what was noted, and writes the state; returns how many bytes were copied in all."""
        copy, target, state = self._copy, self.target, self.state
        assert copy is not None, "it was held"
        for new in self._new:
            copy.take(new)
        copy.close()
        writer = self._writer
        # Makes the indexes.
        SegmentWriter(copy.folder, state.active_base, state.position, writer.config, writer.log.clock).close()
        copy.sync_folder()
        segment_cache.update(target, list_segments(copy.folder))
        if self._cleaner is not None:
            files.create_whole(target.cleaner_path, self._cleaner)
        state_file.create(target.state_path, state)
        return copy.bytes

    def remove(self) -> None:
        """Deletes what was copied: the topic was deleted."""
        if self._copy is not None:
            self._copy.close()
            self._copy.remove()


def _read(path: str) -> bytes | None:
    try:
        return files.read_whole(path, FILE_SIZE)
    except FileNotFoundError:
        return None


@dataclass(frozen=True, slots=True)
class _Moment:
    """What is known of the moment of the copy, beside the partitions.

    Attributes:
        time: when it was, in ms.
        pause: how long locks were held, in s.
        topics: the descriptions of topics, by the names of their files.
        staged: the files that decisions need that are not applied everywhere, and their sizes.
    """

    time: int
    pause: float
    topics: dict[str, bytes]
    staged: list[tuple[files.File, int]]


class _DecisionsBeganError(Exception):
    """The first publish of the store was just made, so its lock is missing among those that are held."""


class _Backup:
    def __init__(self, source: FolderStore, folder: str, progress: Progress | None) -> None:
        self._source = source
        self._target = LogManager(folder, source.cluster_id, source.configs)
        self._partitions: dict[str, _Partition] = {}  # by the state files of the source
        places = [place for opened in self._topics() for place in opened.places()]
        self._counter = ProgressCounter(progress, sum(log_bytes(place.folder) for place in places))

    def run(self) -> Backup:
        self._source.logs.make_folders()  # In a store that was never written to there is no lock yet.
        self._target.make_folders()
        files.make_folder(f"{self._target.path}/{TOPICS_FOLDER}")
        for opened in self._topics():
            for number in opened.written():
                with contextlib.suppress(UnknownTopicError):  # It was deleted meanwhile.
                    self._partition(opened, number).copy_ahead(self._counter)
        moment = self._take_moment()
        copied = sum(partition.finish() for partition in self._partitions.values())
        copied += self._copy_staged(moment.staged)
        files.sync_folder(f"{self._target.path}/data")
        for name, data in moment.topics.items():
            files.create_whole(f"{self._target.path}/{TOPICS_FOLDER}/{name}", data)
        described = StoreDescription(self._source.cluster_id, self._source.configs)
        files.create_whole(f"{self._target.path}/{STORE_FILE}", described.encode())
        written = sum(partition.state.next_offset > 0 for partition in self._partitions.values())
        return Backup(self._target.path, moment.time, moment.pause, written, copied, self._apply_in_copy())

    def _apply_in_copy(self) -> int:
        """Applies what was decided and not yet applied at the moment; returns how many decisions cannot be applied."""
        with FolderStore.open(self._target.path) as copy:
            apply_pending(copy.decisions)
            return len(recovery.waiting(copy.decisions))

    def _topics(self) -> list[TopicLogs]:
        """The topics, as they are now; the decision log first, since its lock is taken first."""
        found = []
        for name in self._source.topics(internal=True):
            with contextlib.suppress(UnknownTopicError):
                found.append(self._source.logs.topic(name))
        return sorted(found, key=lambda opened: opened.description.name != PUBLISH_TOPIC)

    def _partition(self, opened: TopicLogs, number: int) -> _Partition:
        path = opened.state_path(number)
        if path not in self._partitions:
            self._partitions[path] = _Partition(self._source.logs, self._target, opened, number)
        return self._partitions[path]

    # ---- the moment

    def _take_moment(self) -> _Moment:
        for attempt in range(1, _ATTEMPTS + 1):
            self._apply()
            try:
                with contextlib.ExitStack() as held:
                    return self._take_moment_held(held, time.monotonic())
            except (LockTimeoutError, _DecisionsBeganError) as error:
                if attempt == _ATTEMPTS and isinstance(error, LockTimeoutError):
                    raise
                log.info("%s: the locks could not all be taken: %s", self._source.path, error)
        raise LockTimeoutError(f"{self._source.path}: the locks could not be taken together")

    def _apply(self) -> None:
        """Applies what is decided. What cannot be applied is decided in the copy, too."""
        apply_pending(self._source.decisions)

    def _take_moment_held(self, held: contextlib.ExitStack, began: float) -> _Moment:
        # A publisher that has the decision log's lock may make a partition of the offsets log, with the lock of all
        # topics; so that comes second.
        decisions = self._hold_partitions(held, began, [one for one in self._topics() if _is_decision_log(one)])
        held.enter_context(self._source.logs.catalog.changing(_left(began)))
        topics = self._topics()
        if decisions != {path for one in topics if _is_decision_log(one) for path in _state_paths(one)}:
            raise _DecisionsBeganError
        live = {path for opened in topics for path in _state_paths(opened)}
        for path in self._partitions.keys() - live:
            # Before another topic of that name gets its folder.
            self._partitions.pop(path).remove()
        self._hold_partitions(held, began, [one for one in topics if not _is_decision_log(one)])
        described = {}
        for opened in topics:
            name = f"{opened.description.name}.json"
            described[name] = files.read_whole(f"{self._source.path}/{TOPICS_FOLDER}/{name}", MAX_DESCRIPTION_BYTES)
        self._source.decisions.follow()
        decided = self._source.decisions.in_order()
        undone = self._undone(decided, topics)
        staged = [file for decision in decided for file in self._staged(decision, whole=decision in undone)]
        return _Moment(self._source.logs.clock(), time.monotonic() - began, described, staged)

    def _hold_partitions(self, held: contextlib.ExitStack, began: float, topics: Sequence[TopicLogs]) -> set[str]:
        """Holds the locks of all partitions of topics; returns their state files."""
        found = set()
        for opened in topics:
            for number in opened.written():
                self._partition(opened, number).hold(held, _left(began), self._counter)
                found.add(opened.state_path(number))
        return found

    def _undone(self, decided: Sequence[Decision], topics: Sequence[TopicLogs]) -> list[Decision]:
        """Those of the decisions that some partition has not applied; all locks are held."""
        ids = {opened.description.topic_id for opened in topics}
        applied = {(one.target.topic_id, one.target.partition): one.state.applied for one in self._partitions.values()}
        return [
            decision
            for decision in decided
            if any(
                place.topic_id in ids and applied.get((place.topic_id, place.partition), -1) < decision.offset
                for place in decision.places
            )
        ]

    def _staged(self, decision: Decision, *, whole: bool) -> list[tuple[files.File, int]]:
        """What is staged for a decision, open, with sizes; the manifest only if it is not `whole`.

        Nothing, if it cannot be found: it is decided all the same.
        """
        folder = staging_folder(self._source.logs)
        paths = {f"{folder}/{decision.manifest}"}
        try:
            if whole:
                paths |= manifest.paths(manifest.read(folder, decision.manifest, decision.manifest_crc))
            opened = [files.open_read(path) for path in sorted(paths)]
        except (PylogError, OSError) as error:
            if whole:
                log.warning("%s: decision %d cannot be applied: %s", self._source.path, decision.offset, error)
            return []
        # A file that becomes a segment is appended to later.
        return [(file, file.size()) for file in opened]

    # ---- afterwards

    def _copy_staged(self, staged: Sequence[tuple[files.File, int]]) -> int:
        folder = f"{self._target.path}/{STAGING_FOLDER}"
        if staged:
            files.make_folder(folder)
        for source, size in staged:
            with files.create(f"{folder}/{os.path.basename(source.path)}") as target:
                for at in range(0, size, _PIECE):
                    target.pwrite(source.pread(min(_PIECE, size - at), at), at)
                target.sync()
            source.close()
        if staged:
            files.sync_folder(folder)
        return sum(size for _, size in staged)


def _is_decision_log(opened: TopicLogs) -> bool:
    return opened.description.name == PUBLISH_TOPIC


def _state_paths(opened: TopicLogs) -> list[str]:
    return [opened.state_path(number) for number in opened.written()]


def _left(began: float) -> float:
    """How long to wait for the next lock, in s."""
    return max(0.0, began + timeouts.ALL_LOCKS - time.monotonic())
