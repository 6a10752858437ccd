"""The lease of a partition: its lock, and the state in the locked file.

The order of steps is the protocol of docs/internals/protocol.md. On a shared file system the lock can be lost without
notice: `claim` and `may_cut` handle that.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TypeVar

from pyspark_log.errors import InvalidRecordError, LockTimeoutError, ProducerError
from pyspark_log.storage.catalog import PartitionPath
from pyspark_log.storage.fs import FileLock, contextmanager, files, lock_for
from pyspark_log.storage.fs.locking import timeouts
from pyspark_log.storage.fs.mounts import is_shared
from pyspark_log.storage.log.state import state_file
from pyspark_log.storage.log.state.partition_state import Flags, PartitionState, no_state
from pyspark_log.storage.log.state.state_file import OpenState

A = TypeVar("A")
T = TypeVar("T")


class Lease:
    """The right to change one partition's log, which a process has while it holds the partition's lock.

    Attributes:
        shared: whether other hosts may change the log too: one may take over at any moment, and sees only what is
            synced.
        cut_off: whether the previous holder may have lost its lock, and may still write to the log.
    """

    def __init__(self, place: PartitionPath) -> None:
        self.shared = is_shared(os.path.dirname(place.state_path))
        self.cut_off = False
        self._place = place
        self._lock: FileLock | None = None
        self._token = object()  # the lock's user; `self` would refer to itself
        self._file: files.File | None = None  # the state file, which is the locked file
        self._open: OpenState | None = None  # the state, while the lock is held
        self._left: OpenState | None = None  # the state at the end of the last hold that ended well
        self._unsaved = False  # whether the state in memory is not the one in the file
        self._in_hand = False  # still set when the lock is acquired: the hold before ended in an error

    @contextmanager
    def hold(self, timeout: float) -> Iterator[bool]:
        """Holds the lock, with the state loaded.

        Yields:
            Whether what the holder has cached may still be right. Else it must be dropped: this is the first use; or
            the store's folder was replaced by a copy; or an error, as KeyboardInterrupt, may have come between two
            changes of what is cached.

        Raises:
            LockTimeoutError: the lock was not acquired within `timeout` seconds.
            UnknownTopicError: there is no state file.
            OSError: the state cannot be read or written.
        """
        lock = self._lock = self._lock or lock_for(self._place.state_path)
        locked = False
        try:
            # On a shared file system it can be lost unnoticed.
            with lock.held(timeout, None if self.shared else self._token):
                locked = True
                usable = not self._in_hand and lock.file is self._file
                if not usable:
                    self._file, self._left = lock.file, None
                self._in_hand = True
                try:
                    self._open = self._left if self._left and lock.stayed else self._load(lock.file)
                    self._unsaved = False
                    try:
                        yield usable
                    except (ProducerError, InvalidRecordError):
                        # Records are refused before anything is changed; what is cached took long to read.
                        self._leave()
                        raise
                    if self.state.flags & Flags.CLAIMED:
                        self.save(self.state._replace(flags=self.state.flags & ~Flags.CLAIMED), durable=False)
                    self._leave()
                finally:
                    self._open = None
        except FileNotFoundError:
            if not locked:
                raise no_state(self._place) from None
            raise

    def run_if_kept(self, action: Callable[[OpenState, A], T | None], argument: A) -> T | None:
        """Runs an action with the lock held, if it was kept since this process held it last, and that hold ended well.

        Then the state is unchanged, and all that is cached is right. (This is no context manager as `hold`
        is: a generator for each append would take a twentieth of the time of a small one.)

        Args:
            action: called with the state and `argument`.
            argument: whatever the action needs.

        Returns:
            What the action returns; None: the lock was not kept, and nothing was done.

        Raises:
            OSError: the lock's file cannot be used.
        """
        if self._lock is None:
            return None
        with self._lock.held_if_kept(self._token) as is_held:
            left = self._left
            if not is_held or self._in_hand or left is None:
                return None
            return self._run(action, left, argument)

    def run_if_as_left(self, action: Callable[[OpenState, A], T | None], argument: A) -> T | None:
        """Runs an action with the lock held, if it is free, and the state is the one that this process left.

        Arguments as `run_if_kept`. None: another process has the lock, or has changed the state since; or the action
        has returned that. What this process has cached is not taken for current then. OSError.
        """
        if self._lock is None or self.shared:
            return None
        try:
            with self._lock.held(timeouts.AT_ONCE, self._token):
                left = self._left
                if self._in_hand or left is None or self._lock.file is not self._file:
                    return None
                if not self._lock.stayed and self._load(self._lock.file) is not left:
                    # The lock may be kept for this process from now on, and the next holder must not rely on that.
                    self._left = None
                    return None
                return self._run(action, left, argument)
        except (LockTimeoutError, FileNotFoundError):
            return None

    def _run(self, action: Callable[[OpenState, A], T | None], left: OpenState, argument: A) -> T | None:
        """Runs an action on the state that this process left; the lock is held, and the state is still that."""
        self._in_hand, self._open = True, left
        try:
            result = action(left, argument)
            self._leave()
            return result
        finally:
            self._open = None

    def _leave(self) -> None:
        """Notes that the hold ended well."""
        self._left, self._in_hand = None if self._unsaved else self._open, False

    def _load(self, file: files.File) -> OpenState:
        """The state in the file; the very object that was left, if the state did not change."""
        data, left = file.pread(state_file.FILE_SIZE, 0), self._left
        return left if left is not None and left.is_in(data) else OpenState(file, state_file.decoded(file.path, data))

    # ---- what may have changed since the last hold

    @property
    def is_as_left(self) -> bool:
        """Whether the state is still what this process left: its last hold ended well, and no other process wrote."""
        return self._open is self._left

    @property
    def generation_left(self) -> int:
        """The generation of the state that this process left; -1: its last hold ended in an error, or there is none."""
        return -1 if self._left is None else self._left.stored.generation

    @property
    def log_start_left(self) -> int:
        """The log start of the state that this process left; -1: as `generation_left`."""
        return -1 if self._left is None else self._left.stored.log_start

    @property
    def state_left(self) -> PartitionState | None:
        """The state that this process left; None: as `generation_left`. Only for the thread that has just left it."""
        return None if self._left is None else self._left.moved()

    @property
    def was_kept(self) -> bool:
        """Whether the lock was kept since this process held it last: not even the files can have changed."""
        return self._lock is not None and self._lock.stayed

    # ---- the state

    @property
    def held(self) -> OpenState:
        """The partition's state and its file; the lock is held."""
        assert self._open is not None, "the partition's lock is not held"
        return self._open

    @property
    def state(self) -> PartitionState:
        """The partition's state; the lock is held, so only the caller can change it."""
        return self.held.state

    def save(self, state: PartitionState, *, durable: bool) -> None:
        """Saves `state` as the partition's state (and, if `durable`, syncs it)."""
        if self.cut_off:
            state = self.claiming(state)
        visible = state.next_offset
        if state.is_replica:
            visible = min(visible, state.high_watermark)
        if state.high_watermark != visible:
            state = state._replace(high_watermark=visible)
        self.held.store(state, durable=durable, sync=self.shared)
        self._unsaved = False

    def suspect(self) -> None:
        """Marks the active segment as one of which a sync may have failed."""
        state = self.state
        self.held.store(state._replace(seq=state.seq + 1, flags=state.flags | Flags.SUSPECT), durable=False)

    def trust(self) -> None:
        """Removes that mark from the state; the next `save` writes that."""
        loaded = self.held.loaded()
        state = loaded.state._replace(flags=loaded.state.flags & ~Flags.SUSPECT)
        self.held.set(loaded._replace(state=state))
        self._unsaved = True

    def confirm(self) -> None:
        """Syncs a state whose writer may have died between write and sync: what follows must not outlive it. OSError.

        Only the slots for durable states are meant; see `state_file.confirm`.
        """
        loaded = self.held.loaded()
        if loaded.slot >= 2:
            state_file.confirm(self._locked_file, loaded)

    def reload(self) -> None:
        """Rereads the state, after an error that left it open whether it was written."""
        self.held.set(state_file.load(self._locked_file))

    def repair_slots(self) -> None:
        """Rewrites the slots that a power loss has torn; see `state_file.rewrite_torn_slots`."""
        self.held.set(state_file.rewrite_torn_slots(self._locked_file, self.held.loaded()))

    @property
    def _locked_file(self) -> files.File:
        assert self._file is not None, "the partition's lock is not held"
        return self._file

    # ---- what a lost lock allows

    def claim(self) -> None:
        """Marks the log as being changed. Call it after opening the files and before changing any of them. OSError.

        On a shared file system a holder can lose its lock unnoticed: its host was cut off or suspended until the lock
        was given to another one. The state is in the locked file, so this write is refused then (by NFS 4 with EIO). A
        holder that loses the lock a moment later may still write to the files that it has open; but it cannot clear its
        mark, which makes the next holder continue in another segment.
        """
        if self.shared:
            self.save(self.claiming(self.state), durable=True)

    def claiming(self, state: PartitionState) -> PartitionState:
        """Returns the state that `claim` would write."""
        return state._replace(flags=state.flags | Flags.CLAIMED) if self.shared else state

    def unlink(self, path: str) -> None:
        """Deletes a file of the log by name, right after a claim: it may be another holder's by now. OSError."""
        self.claim()
        files.unlink(path)

    @property
    def may_cut(self) -> bool:
        """Whether files may be truncated, and segments replaced.

        On a shared file system only while the previous holder's leftovers are repaired: if this holder has lost its
        lock, the files belong to others. Its own leftovers are for the next holder.
        """
        return self.cut_off or not self.shared
