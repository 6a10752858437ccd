"""The lease of a partition: its lock, and the state in the locked file.

The order of steps is the protocol of docs/protocol.md. On a shared file system the lock can be lost without notice:
`claim` and `may_cut` handle that.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NoReturn

from pyspark_log.errors import InvalidRecordError, ProducerError
from pyspark_log.storage.catalog import LogDir, LogDirs, PartitionPath
from pyspark_log.storage.fs import FileLock, contextmanager, files, is_shared, lock_for
from pyspark_log.storage.log import state_file
from pyspark_log.storage.log.missing import no_state
from pyspark_log.storage.log.state_file import Flags, OpenState, PartitionState


class Lease:
    """The right to change one partition's log, which a process has while it holds the partition's lock.

    Attributes:
        place: the partition; its folder is current while the lock is held.
        shared: whether other hosts may write to it too.
    """

    def __init__(self, place: PartitionPath, log_dirs: LogDirs) -> None:
        self.place = place
        # Another host may take over at any moment, and sees only what is synced.
        self.shared = is_shared(os.path.dirname(place.state_path))
        self._log_dirs = log_dirs
        self._log_dir: LogDir = log_dirs.at(0)
        self._lock: FileLock | None = None
        self._token = object()  # the lock's user; `self` would refer to itself
        self._state_file: files.File | None = None
        self._open: OpenState | None = None  # the state, while the lock is held
        self._left: OpenState | None = None  # the state at the end of the last hold that ended well
        self._unsaved = False  # whether the state in memory is not the one in the file
        self._in_hand = False  # still set when the lock is acquired: the hold before ended in an error
        self._seen = (-1, -1)  # generation and sequence number of the state to which all cached data belongs
        self._cut_off = False  # whether the previous holder may have lost its lock, and may still write to the log

    @contextmanager
    def _locked(self, timeout: float) -> Iterator[FileLock]:
        """Holds the lock, with the state loaded. Raises as `LogWriter.hold` does."""
        lock = self._lock = self._lock or lock_for(self.place.state_path)
        locked = False
        try:
            # On a shared file system it can be lost unnoticed.
            with lock.held(timeout, None if self.shared else self._token):
                locked = True
                if self._in_hand or lock.file is not self._state_file:
                    # First use; or the store's folder was replaced by a copy: what is cached belongs to other
                    # files. Or an error, as KeyboardInterrupt, may have come between two changes of the cached.
                    self.forget_all()
                    self._state_file, self._left = lock.file, None
                self._in_hand = True
                try:
                    self._open = self._left if self._left and lock.stayed else self._load(lock.file)
                    self._unsaved = False
                    try:
                        yield lock
                    except (ProducerError, InvalidRecordError):
                        # Records are refused before anything is changed; what is cached took long to read.
                        self._leave()
                        raise
                    if self.state.flags & Flags.CLAIMED:
                        self.save(self.state._replace(flags=self.state.flags & ~Flags.CLAIMED), durable=False)
                    self._leave()
                finally:
                    self._open = None
        except FileNotFoundError as error:
            if not locked:
                raise no_state(self.place) from None
            self.fail(error)
        except OSError as error:
            self.fail(error)

    def _leave(self) -> None:
        """Notes that the hold ended well."""
        self._left, self._in_hand = None if self._unsaved else self._open, False

    def _load(self, file: files.File) -> OpenState:
        """The state in the file; the one that was left, if it still is that one."""
        known = self._left.loaded() if self._left else None
        found = state_file.load(file, known)
        return self._left if self._left and found is known else OpenState(file, found)

    def forget_all(self) -> None:
        """Drops what is cached of files that were replaced."""
        raise NotImplementedError

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
        if self._cut_off:
            state = self.claiming(state)
        if state.high_watermark != state.next_offset:
            # There is one copy of the log, so all of it is visible.
            state = state._replace(high_watermark=state.next_offset)
        self.held.store(state, durable=durable, sync=self.shared)
        self._unsaved = False
        self._note_seen()

    def move_end(self, next_offset: int, position: int) -> None:
        """Moves the log end, not durably, where no other host writes; the rest of the state stays.

        Raises:
            OSError: readers may have seen it, or not.
        """
        held = self.held
        held.move_end(next_offset, position)
        self._seen = (held.stored.generation, held.seq)

    def _note_seen(self) -> None:
        state = self.state
        self._seen = (state.generation, state.seq)

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
        return self._cut_off or not self.shared

    def mend_slots(self) -> None:
        """Rewrites the slots that a power loss has torn; see `state_file.rewrite_torn_slots`."""
        assert self._lock is not None
        self.held.set(state_file.rewrite_torn_slots(self._lock.file, self.held.loaded()))

    def suspect(self) -> None:
        """Marks the active segment as one of which a sync may have failed."""
        self.held.store(self.state._replace(flags=self.state.flags | Flags.SUSPECT), durable=False)
        self._note_seen()

    def trust(self) -> None:
        """Removes that mark from the state; the next `save` writes that."""
        state = self.state._replace(flags=self.state.flags & ~Flags.SUSPECT)
        self.held.set(self.held.loaded()._replace(state=state))
        self._unsaved = True

    def whereabouts(self) -> PartitionPath:
        """Where the partition is now; its lock need not be held. LogDirOfflineError, LogDamagedError, OSError."""
        loaded = state_file.read(self.place.state_path)
        if loaded is None:
            return self.place  # Its topic is deleted, which taking the lock reports.
        return self.place.in_log_dir(self._log_dirs.check(loaded.state.log_dir, self.place).path)

    def fail(self, error: OSError) -> NoReturn:
        """Raises a system error; as LogDirOfflineError if it means that the log dir has failed."""
        explained = self._log_dirs.explained(error, self.place)
        if explained is error:
            raise error
        raise explained from error
