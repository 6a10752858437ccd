# cython: language_level=3
"""Locks and context managers that no signal can leave half done.

Python runs the handlers of signals at the beginning of a function in Python, and when one in C returns to Python. So a
KeyboardInterrupt can arrive between a lock and the `try` that is to release it, or at the beginning of the function
that releases it: the lock would stay held, and the next call wait for it in vain. Here both ends of a `with` are in C.
"""

import fcntl
import threading
import time

from pyspark_log.errors import LockTimeoutError

#: How long to wait for a lock before LockTimeoutError, in seconds. A lock is held for milliseconds;
#: one that cannot be acquired for this long belongs to a stopped process.
DEFAULT_TIMEOUT = 60.0


cdef class GuardedLock:
    """The base class of `locks.FileLock`: the lock between threads, around that between processes.

    A subclass has `lock_file(deadline, timeout)`, which locks the file and returns its descriptor, or raises with
    nothing locked; and `close_files()`.
    """

    cdef object _mutex
    cdef int _locked

    def __cinit__(self, *_):
        GuardedLock.reset(self)

    def reset(self):
        """Makes the lock free in a forked child, in which the thread that holds it does not run."""
        self._mutex = threading.Lock()
        self._locked = -1

    def acquire(self, double timeout=DEFAULT_TIMEOUT):
        """Acquires the lock, waiting `timeout` seconds at most.

        Raises:
            LockTimeoutError: naming the process that holds it, if the system reports it.
            OSError: the file cannot be opened for writing.
        """
        cdef object mutex = self._mutex
        cdef double deadline = time.monotonic() + timeout
        if not mutex.acquire(True, timeout):
            raise LockTimeoutError(f"{self.path}: another thread of this process has held it for {timeout} s")
        try:
            self._locked = self.lock_file(deadline, timeout)
        except BaseException:
            mutex.release()
            raise

    def release(self):
        """Releases the lock."""
        cdef int fd = self._locked
        assert fd >= 0, f"{self.path} is not locked"
        self._locked = -1
        try:
            fcntl.flock(fd, fcntl.LOCK_UN)
        except BaseException:
            self.close_files()  # Closing unlocks, too: other hosts must not wait for a lock that is not held.
            raise
        finally:
            self._mutex.release()

    def held(self, double timeout=DEFAULT_TIMEOUT):
        """Holds the lock in a `with` block. Raises as `acquire`."""
        return _Held(self, timeout)


cdef class _Held:
    cdef GuardedLock _lock
    cdef double _timeout

    def __cinit__(self, GuardedLock lock not None, double timeout):
        self._lock = lock
        self._timeout = timeout

    def __enter__(self):
        self._lock.acquire(self._timeout)
        return self._lock

    def __exit__(self, *_):
        self._lock.release()


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
                raise RuntimeError("the generator of a context manager goes on after its end")
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
        raise RuntimeError("the generator of a context manager goes on after its end")
