# cython: language_level=3
"""Locks and context managers that no signal can leave half done.

Python runs the handlers of signals at the beginning of a function in Python, and when one in C returns to Python. So a
KeyboardInterrupt can arrive between a lock and the `try` that is to release it, or at the beginning of the function
that releases it: the lock would stay held, and the next call wait for it in vain. Here both ends of a `with` are in C,
and what they call in Python leaves the lock free if it is interrupted.
"""

import fcntl
import os
import threading
import time

from posix.stat cimport fstat, stat, struct_stat

from pyspark_log.errors import LockTimeoutError

#: How long to wait for a lock before LockTimeoutError, in seconds. A lock is held for milliseconds;
#: a lock that cannot be acquired for this long belongs to a stopped process.
DEFAULT_TIMEOUT = 60.0

cdef extern from "kept_locks.h":
    ctypedef struct kept_lock:
        pass

    long long monotonic_ns() nogil
    bint keep_lock(kept_lock *one, int fd, long long until) nogil
    bint take_kept_lock(kept_lock *one) nogil

#: How long (ns) a lock may be kept before its holder checks for waiters.
TURN = 1_000_000
#: After this many turns it is released in any case, so the checks made on acquisition run at least that often.
MOST_TURNS = 16
#: A lock is kept after this many uses, each within a turn of the one before. A process that appends only now and then
#: would gain nothing and make others wait.
USES_IN_A_ROW = 16


cdef class GuardedLock:
    """The base class of `locks.FileLock`: the lock between threads, around that between processes.

    A subclass has `path`, the file that is locked; `lock_file(deadline, timeout)`, which locks the file and returns it
    open, or raises with nothing locked; `may_stay_locked()`, whether no other process waits for the locked file; and
    `close_files()`.

    A lock that is used in a row is kept locked between two uses (`kept_locks.h`): for a millisecond, and for another
    one if nothing waits for it then, up to 16 in all. Each use checks that the path still names the locked file: a
    store's folder can be replaced by a copy at any time.

    Attributes:
        stayed: whether nothing else has had the lock since its user had it before, so that the user's knowledge of
            what is locked is still true.
        in_a_row: how often this process has locked it before, each time within a turn of the time before.
    """

    cdef bytes _encoded_path
    cdef object _mutex
    cdef object _file  # the locked one, open; also while the lock is kept
    cdef object _user
    cdef readonly bint stayed
    cdef readonly int in_a_row
    cdef bint _is_held
    cdef kept_lock _kept
    cdef long long _locked_at, _turn_began, _unlocked_at
    cdef int _waiting  # threads of this process

    def __cinit__(self, *_):
        GuardedLock.reset(self)

    def __dealloc__(self):
        # Before the file is closed, and another one gets its number.
        take_kept_lock(&self._kept)

    def reset(self):
        """Makes the lock free in a forked child, in which the thread that holds it does not run."""
        take_kept_lock(&self._kept)
        self._mutex = threading.Lock()
        self._file = self._user = None
        self._is_held = False
        self._waiting = 0

    def acquire(self, double timeout=DEFAULT_TIMEOUT, user=None):
        """Acquires the lock, waiting `timeout` seconds at most.

        Args:
            timeout: in seconds.
            user: any object, the same for each use by one user, if the lock may be kept for that user after `release`.

        Raises:
            LockTimeoutError: naming the process that holds it, if the system reports it.
            OSError: the file cannot be opened for writing.
        """
        cdef object mutex = self._mutex
        cdef double deadline = time.monotonic() + timeout
        cdef long long asked_at = monotonic_ns()
        cdef bint was_kept
        self._waiting += 1
        try:
            has_mutex = mutex.acquire(True, timeout)
        finally:
            self._waiting -= 1
        if not has_mutex:
            raise LockTimeoutError(f"{self.path}: another thread of this process has held it for {timeout} s")
        was_kept = take_kept_lock(&self._kept)
        try:
            if was_kept and not self.is_current(self._file):
                was_kept = False
                self.close_files()  # which unlocks the file
            if not was_kept:
                self.in_a_row = self.in_a_row + 1 if asked_at - self._unlocked_at < <long long>TURN else 0
                self._file = self.lock_file(deadline, timeout)
                self._locked_at = self._turn_began = monotonic_ns()
        except BaseException:
            mutex.release()
            raise
        self.stayed = was_kept and user is not None and user is self._user
        self._user = user
        self._is_held = True

    cdef bint _acquire_kept(self, user):
        """Acquires the lock if it was kept for this user since; else does nothing."""
        cdef object mutex = self._mutex
        if not mutex.acquire(False):
            return False
        try:
            if user is not None and user is self._user and take_kept_lock(&self._kept):
                if self.is_current(self._file):
                    self.stayed = self._is_held = True
                    return True
                self.close_files()
        except BaseException:
            mutex.release()
            raise
        mutex.release()
        return False

    cpdef bint is_current(self, file) except -1:
        """Whether the path still names this open file: a store's folder can be replaced by a copy of it."""
        cdef struct_stat named, opened
        if self._encoded_path is None:
            self._encoded_path = os.fsencode(self.path)
        cdef const char *c_path = self._encoded_path
        return (
            stat(c_path, &named) == 0 and fstat(file.fd, &opened) == 0
            and named.st_ino == opened.st_ino and named.st_dev == opened.st_dev
        )

    def release(self, bint may_keep=True):
        """Releases the lock; `may_keep`: or keeps it for its user, if it has one."""
        cdef long long now = monotonic_ns()
        assert self._is_held, f"{self.path} is not locked"
        self._is_held = False
        try:
            if may_keep and self._user is not None and self.in_a_row >= <int>USES_IN_A_ROW and self._keep(now):
                return
            self._unlocked_at = now
            fcntl.flock(self._file.fd, fcntl.LOCK_UN)
        except BaseException:
            self.close_files()  # Closing unlocks, too: other hosts must not wait for a lock that is not held.
            raise
        finally:
            self._mutex.release()

    cdef bint _keep(self, long long now) except -1:
        """Keeps the lock to the end of its turn, or of another one if it may have that; False: it does not."""
        cdef long long turn = <long long>TURN
        if now >= self._turn_began + turn:
            if now >= self._locked_at + turn * <int>MOST_TURNS or self._waiting or not self.may_stay_locked():
                return False
            self._turn_began = now
        self._unlocked_at = self._turn_began + turn
        return keep_lock(&self._kept, self._file.fd, self._unlocked_at)

    def held_if_kept(self, user):
        """Holds the lock in a `with` block if it was kept for that user, without waiting; gives whether it does."""
        return _HeldIfKept(self, user)

    def held(self, double timeout=DEFAULT_TIMEOUT, user=None):
        """Holds the lock in a `with` block; after an error it is not kept. Arguments and errors as `acquire`."""
        return _Held(self, timeout, user)


cdef class _Held:
    cdef GuardedLock _lock
    cdef double _timeout
    cdef object _user

    def __cinit__(self, GuardedLock lock not None, double timeout, user):
        self._lock = lock
        self._timeout = timeout
        self._user = user

    def __enter__(self):
        self._lock.acquire(self._timeout, self._user)
        return self._lock

    def __exit__(self, kind, *_):
        self._lock.release(kind is None)


cdef class _HeldIfKept:
    cdef GuardedLock _lock
    cdef object _user
    cdef bint _holds

    def __cinit__(self, GuardedLock lock not None, user):
        self._lock = lock
        self._user = user

    def __enter__(self):
        self._holds = self._lock._acquire_kept(self._user)
        return self._holds

    def __exit__(self, kind, *_):
        if self._holds:
            self._lock.release(kind is None)


def contextmanager(function):
    """As `contextlib.contextmanager`, for generators that hold a lock."""
    def start(*args, **kwargs):
        return _Managed(function(*args, **kwargs))

    start.__doc__ = function.__doc__
    start.__name__ = function.__name__
    start.__wrapped__ = function
    return start


cdef class _Managed:
    cdef object _generator

    def __cinit__(self, generator):
        self._generator = generator

    def __enter__(self):
        return next(self._generator)

    def __exit__(self, kind, value, trace):
        if value is None:
            for _ in self._generator:
                raise RuntimeError("the generator of a context manager yields more than once")
            return False
        try:
            self._generator.throw(value)
        except StopIteration as end:
            return end is not value
        except BaseException as error:
            # A generator cannot raise a StopIteration: Python makes a RuntimeError of it.
            stopped = isinstance(value, StopIteration) and isinstance(error, RuntimeError) and error.__cause__ is value
            if error is not value and not stopped:
                raise
            value.__traceback__ = trace
            return False
        raise RuntimeError("the generator of a context manager yields more than once")
