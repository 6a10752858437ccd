# cython: language_level=3
"""One call at a time in another thread, while the caller continues.

In C as `guarded.pyx`, and for the same reason: a KeyboardInterrupt must not end the wait for a call that is under way.
What such a call changes is allowed by a lock, and the caller releases the lock afterwards.
"""

import _thread


cdef class Background:
    """Runs calls in a thread, in their order. For one `with` block, whose end waits for the last."""

    cdef object _call
    cdef object _error
    cdef object _go
    cdef object _done
    cdef bint _started
    cdef bint _runs

    def __cinit__(self, *_):
        self._go = _thread.allocate_lock()
        self._done = _thread.allocate_lock()
        self._go.acquire()
        self._done.acquire()

    def begin(self, function, *arguments):
        """Calls the function in the thread, after the call before it. Raises the error of that one."""
        self._settle()
        if not self._started:
            try:
                _thread.start_new_thread(self._run, ())
            except RuntimeError:
                function(*arguments)  # The system gives this process no more threads.
                return
            self._started = True
        self._call = function, arguments
        self._runs = True
        self._go.release()

    cdef int _settle(self) except -1:
        if self._runs:
            self._done.acquire()
            self._runs = False
        error, self._error = self._error, None
        if error is not None:
            raise error
        return 0

    def _run(self):
        while True:
            self._go.acquire()
            if self._call is None:
                return
            function, arguments = self._call
            try:
                function(*arguments)
            except BaseException as error:
                self._error = error
            finally:
                self._call = function = arguments = None
                self._done.release()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        interrupt = None
        while self._runs:
            try:
                self._done.acquire()
                self._runs = False
            except BaseException as error:
                interrupt = error
        if self._started:
            self._go.release()
        error, self._error = self._error, None
        if interrupt is not None:
            raise interrupt
        if kind is None and error is not None:
            raise error
