"""Locks between processes and threads.

A lock is a `flock` on a file that is never renamed or replaced. Three properties that `flock` lacks
are added (the failures they prevent are in docs/internals/protocol.md):

- Turns. `flock` is not fair: a process that locks in a loop starves the others. A waiter first takes
  a second lock, the turn, then the lock itself, and then releases the turn; so no process is overtaken
  by the same one twice.
- Threads. A `flock` belongs to the open file, so two threads of a process would both hold it. Each
  process keeps one table of its locks, with a mutex each.
- Forks. A child shares its parent's open file, and would hold or release its parent's lock. In a child
  /dev/null takes the place of the inherited files (`unshared.h`), and after `os.fork` the table is reset.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import threading
import time
import weakref
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from pyspark_log.errors import LockTimeoutError
from pyspark_log.storage.fs import files
from pyspark_log.storage.fs.clock import LOCK_WAITS
from pyspark_log.storage.fs.guarded import GuardedLock

_T = TypeVar("_T")

# Dead ones are swept away at this number of entries, and then at twice the number of those that live.
_LEAST = 64
# Polling keeps timeouts possible in any thread. The first pause, in seconds, is short, as most holders release soon;
# each is twice the one before, up to the longest. The one waiter that has its turn keeps them short, so that the lock
# is not free for long. A process that has just had the lock lets others try first.
_FIRST_PAUSE = 0.00002
_LONGEST_PAUSE, _LONGEST_PAUSE_IN_TURN = 0.001, 0.0002


class Living(Generic[_T]):
    """A table of them. One thread at a time puts objects under keys of its own; any may add and iterate.

    No Python code runs when an object dies. That of the tables in `weakref` does, and a Ctrl-C that comes in it is
    lost: Python prints it as ignored, and continues.
    """

    def __init__(self) -> None:
        self._references: dict[Hashable, weakref.ref[_T]] = {}
        self._numbers = itertools.count()
        self._most = _LEAST

    def __iter__(self) -> Iterator[_T]:
        return (thing for reference in list(self._references.values()) if (thing := reference()) is not None)

    def get(self, key: Hashable) -> _T | None:
        """The object of a key; None: there is none, or it has died."""
        reference = self._references.get(key)
        return None if reference is None else reference()

    def put(self, key: Hashable, thing: _T) -> None:
        """Enters an object under a key."""
        if len(self._references) >= self._most:
            # A copy is made at once. A list of pairs is not: Python may collect garbage in between, and run other code.
            for entered, reference in self._references.copy().items():
                if reference() is None:
                    self._references.pop(entered, None)
            self._most = max(_LEAST, 2 * len(self._references))
        self._references[key] = weakref.ref(thing)

    def add(self, thing: _T) -> None:
        """Enters an object under a key that no other has had."""
        self.put(next(self._numbers), thing)


class Mutex:
    """A lock between the threads of a process, free in a forked child. Hold it by `with mutex.lock:`.

    A child has only the thread that forked, so what another thread held would never be released there. `with` takes
    the lock itself, not this object: a KeyboardInterrupt can arrive inside an `__enter__` of Python after the lock has
    been acquired, and nothing would release it again. From Python 3.14 on it can arrive right after an `__enter__` in
    C, too; as an RLock, the lock does not stop the thread that was interrupted.
    """

    def __init__(self) -> None:
        self.reset()
        _mutexes.add(self)

    def reset(self) -> None:
        """Makes the mutex free in a forked child."""
        self.lock = threading.RLock()


_mutexes = Living[Mutex]()


class FileLock(GuardedLock):
    """An exclusive lock on `path`, one object per process (see `lock_for`); not reentrant.

    Attributes:
        path: the file that is locked; it must exist. Its turn lock is `path` + ".turn".
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._main: files.File | None = None
        self._turn: files.File | None = None

    @property
    def file(self) -> files.File:
        """The locked file, open for reading and writing; the lock is held."""
        assert self._main is not None, f"{self.path} is not locked"
        return self._main

    def reset(self) -> None:
        """Makes the lock free in a forked child: forgets what the parent has locked. Closing is not unlocking."""
        super().reset()
        self.close_files()

    def close_files(self) -> None:
        """Closes what is open, which unlocks it."""
        for file in (self._main, self._turn):
            if file is not None:
                file.close()
        self._main = self._turn = None

    def lock_file(self, deadline: float, timeout: float) -> files.File:
        """Locks the file, for `acquire`."""
        try:
            while True:
                if self._main is None or self._turn is None:
                    self._main = files.open_write(self.path)
                    self._turn = files.open_or_create(self.path + ".turn")
                    self._main.unshare_at_fork()
                    self._turn.unshare_at_fork()
                pause = _LONGEST_PAUSE if self.in_a_row else _FIRST_PAUSE
                _flock(self._turn, deadline, timeout, pause, _LONGEST_PAUSE)
                _flock(self._main, deadline, timeout, _FIRST_PAUSE, _LONGEST_PAUSE_IN_TURN)
                fcntl.flock(self._turn.fd, fcntl.LOCK_UN)
                if self.is_current(self._main):
                    return self._main
                self.close_files()
        except BaseException:
            # Releases whatever was locked so far, also if a signal arrived in between.
            self.close_files()
            raise

    def may_stay_locked(self) -> bool:
        """Whether no other process waits for the lock: the first of those that wait has the turn."""
        assert self._turn is not None
        try:
            fcntl.flock(self._turn.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(self._turn.fd, fcntl.LOCK_UN)
        except OSError:
            return False  # Whatever it is: the use of the lock has ended well, and the next one reports it.
        return True


def _flock(file: files.File, deadline: float, timeout: float, pause: float, longest: float) -> None:
    began = None
    while True:
        try:
            fcntl.flock(file.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            began = began or time.monotonic()
            if timeout == 0:
                raise LockTimeoutError(f"{file.path} is locked") from None
            if time.monotonic() >= deadline:
                raise LockTimeoutError(
                    f"{file.path}: locked for {timeout} s by {_holder(file)}; if that process is stopped, "
                    "continue it or end it"
                ) from None
            time.sleep(pause)
            pause = min(2 * pause, longest)
        else:
            if began is not None:
                LOCK_WAITS.add(time.monotonic() - began)
            return


def _holder(file: files.File) -> str:
    """The process that holds the lock, by Linux's table of locks; or those that hold it since that one has ended."""
    inode = f":{os.fstat(file.fd).st_ino}"
    took = _taken_by("/proc/locks", inode)
    if took and os.path.exists(f"/proc/{took}"):
        return _described(took)
    heirs = " and ".join(_described(pid) for pid in _sharers(inode))
    if took:
        return f"process {took}, which has ended and left it to {heirs or 'a process that it had started'}"
    return heirs or "an unknown process"


def _taken_by(table: str, inode: str) -> str:
    """The id of the process that took the lock on a file; empty if the table does not have it, or cannot be read."""
    with contextlib.suppress(OSError), open(table, encoding="ascii") as lines:
        for line in lines:
            fields = line.split()
            if "FLOCK" in fields and "->" not in fields and fields[-3].endswith(inode):
                return fields[-4]
    return ""


def _sharers(inode: str) -> list[str]:
    """The ids of the processes that have the locked file open, as those inherit it that a process starts."""
    pids = []
    for pid in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else ()):
        with contextlib.suppress(OSError):  # It has ended, or it is another user's.
            if any(_taken_by(f"/proc/{pid}/fdinfo/{fd}", inode) for fd in os.listdir(f"/proc/{pid}/fdinfo")):
                pids.append(pid)
    return pids


def _described(pid: str) -> str:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as command:
        words = command.read().replace(b"\0", b" ").decode(errors="replace").strip()
        return f"process {pid} ({words})"
    return f"process {pid}"


_table = Living[FileLock]()
_table_mutex = Mutex()


def lock_for(path: str) -> FileLock:
    """Returns this process's lock object for the file `path`, which must exist when it is acquired."""
    key = os.path.realpath(path)
    with _table_mutex.lock:
        lock = _table.get(key)
        if lock is None:
            lock = FileLock(key)
            _table.put(key, lock)
        return lock


def _in_child() -> None:
    for mutex in _mutexes:
        mutex.reset()
    for lock in _table:
        lock.reset()


os.register_at_fork(after_in_child=_in_child)
