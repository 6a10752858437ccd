"""Moves a partition from one log dir to another, while others read it and write to it (KIP-113).

The log is copied into a folder with the name that Kafka gives to a future replica (`-future`): without the
partition's lock as long as there is much to copy, and the rest with it. All of it is on the disk when that folder gets
the partition's name. Then one durable write of the state, which names the new log dir, completes the move.
The old folder is renamed as those of deleted partitions are, and deleted later: readers have its files open.

A process that is stopped leaves the partition complete where its state says, and perhaps a copy elsewhere that does
not count. The next move, or `pylog clean`, deletes it.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator

from pyspark_log.errors import InvalidConfigError, LockTimeoutError, PylogError, UnknownTopicError
from pyspark_log.storage.catalog import PartitionPath
from pyspark_log.storage.catalog.log_dirs import PARTITION_FOLDER
from pyspark_log.storage.catalog.store_json import STATE_FOLDER
from pyspark_log.storage.fs import contextmanager, files, lock_for
from pyspark_log.storage.fs.locking.timeouts import DEFAULT_TIMEOUT
from pyspark_log.storage.log import HeldLog, cleaner_checkpoint
from pyspark_log.storage.log.state import Flags, state_file
from pyspark_log.storage.log_manager import deletion
from pyspark_log.storage.log_manager.deletion import DELETE, FUTURE
from pyspark_log.storage.log_manager.folder_copy import FolderCopy
from pyspark_log.storage.log_manager.manager import LogManager, TopicLogs

log = logging.getLogger(__name__)

_LOCK = "moves.lock"
# This much is copied while the partition's lock is held; more only if writers are faster than the copying.
_LITTLE = 8 * 1024 * 1024
_PASSES = 10


def move(logs: LogManager, topic: str, partition: int, folder: str) -> int:
    """Moves a partition; returns the number of bytes copied. See `Store.move_partition`."""
    logs.check_writable()
    opened = logs.topic(topic)
    opened.check(partition)
    with moving(logs, DEFAULT_TIMEOUT):
        # With the lock: no process takes the log dir off the list now.
        number = logs.log_dirs.find(folder)
        sweep_held(logs)
        target = opened.place_in(partition, number)
        logs.log_dirs.check(number, target, written=True)
        if not files.exists(target.state_path):
            logs.make_state(opened, partition, number)
        try:
            # What a cleaner is writing beside the log is not copied.
            with cleaner_checkpoint.cleaning(target, DEFAULT_TIMEOUT):
                copied = _Move(logs, opened, partition, number).run()
        except OSError as error:
            if isinstance(error, FileNotFoundError):
                logs.topic(topic).check(partition)  # UnknownTopicError: it was deleted meanwhile.
            explained = logs.log_dirs.explained(error, target)
            if explained is error:
                raise
            raise explained from error
        sweep_held(logs)
        return copied


def sweep(logs: LogManager) -> None:
    """Deletes what moves have left: dead copies at once, old folders after file.delete.delay.ms.

    These are also what a node has set aside. Errors are logged, and the rest is left to the next time. Does nothing
    while a partition is being moved.
    """
    with (
        contextlib.suppress(LockTimeoutError),
        moving(logs, 0) if logs.log_dirs.had_several else contextlib.nullcontext(),
    ):
        sweep_held(logs)


@contextmanager
def moving(logs: LogManager, timeout: float) -> Iterator[None]:
    """Holds the lock of all moves, which is taken before any other. LockTimeoutError, OSError."""
    logs.make_folders()
    path = f"{logs.path}/{STATE_FOLDER}/{_LOCK}"
    files.open_or_create(path).close()
    with lock_for(path).held(timeout):
        yield


class _Move:
    """One move; the lock of moves is held."""

    def __init__(self, logs: LogManager, opened: TopicLogs, partition: int, number: int) -> None:
        self._logs, self._opened, self._number = logs, opened, number
        self._writer = logs.writer(opened.description.name, partition)
        self._reader = opened.reader(partition)
        self._target = opened.place_in(partition, number)

    def run(self) -> int:
        """Runs the move; returns the number of bytes copied."""
        target, folders = self._target, self._logs.log_dirs
        state = self._reader.state()
        if state.log_dir == self._number:
            return 0
        folders.check(state.log_dir, target)
        self._make_room()
        copy = FolderCopy(self._reader.place_in(state).folder, deletion.aside(target, FUTURE))
        try:
            for _ in range(_PASSES):
                if copy.follow(self._reader.state(), locked=False) < _LITTLE:
                    break
            with self._writer.hold():
                held = self._writer.log
                if held.state.flags & Flags.SUSPECT:
                    held.roll()  # What was read of this segment may be in memory only; now it is on the disk.
                copy.follow(held.state, locked=True)
                self._switch(held, copy)
        except BaseException:
            copy.remove()
            raise
        finally:
            copy.close()
        log.info("%s: moved to %s, %d bytes", target, target.folder, copy.bytes)
        return copy.bytes

    def _make_room(self) -> None:
        # Left by an earlier move that could not delete it.
        _remove_stray(self._logs, self._opened, self._target.partition, self._number)
        if files.exists_as_link(self._target.folder):
            raise InvalidConfigError(
                f"{self._target.folder} exists already, and is not the partition's. If it is of a deleted topic, "
                "`pylog clean` removes it; otherwise move it away"
            )

    def _switch(self, held: HeldLog, copy: FolderCopy) -> None:
        """Switches to the new folder; the partition's lock is held, and all of it was copied."""
        state, old, log_dir = held.state, held.place, os.path.dirname(self._target.folder)
        copy.sync_folder()
        held.lease.claim()
        files.rename(copy.folder, self._target.folder)
        files.sync_folder(log_dir)
        held.lease.save(
            held.state._replace(
                log_dir=self._number, generation=state.generation + 1, synced=state.position, reserve=state.next_offset
            ),
            durable=True,
        )
        held.find_folder()
        held.note_offsets()
        try:
            _set_aside(old)
        except OSError as error:
            log.warning("%s: its old folder %s will be removed by `pylog clean`: %s", held.place, old.folder, error)


# ---- leftovers


def _set_aside(place: PartitionPath) -> None:
    """Renames a folder that is no longer the partition's, so that it is deleted later. OSError."""
    deletion.set_aside(place)
    files.sync_folder(os.path.dirname(place.folder))


def sweep_held(logs: LogManager) -> None:
    """Deletes what moves have left, as far as possible; the lock of moves is held, if there were several log dirs."""
    topics: dict[str, TopicLogs] = {}
    for name in logs.catalog.names():
        with contextlib.suppress(PylogError):
            topics[name] = logs.topic(name)
    may_move = logs.log_dirs.had_several
    by_id = {deletion.hex_id(opened.description.topic_id): opened for opened in topics.values()}
    for number, folder in logs.log_dirs.numbered():
        try:
            names = [] if folder.problem() else files.list_folder(folder.path)
            for name in names:
                aside, match = deletion.ASIDE_NAME.fullmatch(name), PARTITION_FOLDER.fullmatch(name)
                if aside is not None and aside[1] in by_id and (may_move or aside[2] == DELETE):
                    _remove_aside(f"{folder.path}/{name}", aside[2], by_id[aside[1]], logs.clock())
                elif may_move and match is not None and match[1] in topics:
                    _remove_stray(logs, topics[match[1]], int(match[2]), number)
        except (PylogError, OSError) as error:
            log.warning("%s: leftovers of moves will be removed next time: %s", folder.path, error)


def _remove_aside(path: str, ending: str, opened: TopicLogs, now: int) -> None:
    since = files.status_of(path).st_ctime_ns // 1_000_000
    if ending == FUTURE or (ending == DELETE and now - since >= opened.config.file_delete_delay_ms):
        files.remove_folder(path)


def _remove_stray(logs: LogManager, opened: TopicLogs, partition: int, number: int) -> None:
    """Marks a folder as deleted that has a partition's name, if the partition's state names another log dir."""
    if partition >= opened.description.partitions:
        return
    place = opened.place_in(partition, number)
    loaded = state_file.read(place.state_path)
    if loaded is None or loaded.state.log_dir == number or place.owner() != place.topic_id:
        return
    # With the lock, the state is on the disk as well.
    with contextlib.suppress(UnknownTopicError), logs.writer(place.topic, partition).hold() as held:
        if held.state.log_dir != number:
            _set_aside(place)
