# cython: language_level=3
"""A file descriptor that is closed when its object is dropped, in C.

In Python that would take a `__del__`. A signal's handler can run in it, and what that raises is dropped: a Ctrl-C at
that moment would be lost.
"""

import os

cdef extern from "<unistd.h>":
    int c_close "close" (int fd) nogil

cdef extern from "early_sync.h":
    bint early_sync(int fd, const char *path, long long position, long long size) nogil

cdef extern from "unshared.h":
    ctypedef struct unshared_file:
        pass

    void c_unshare_at_fork "unshare_at_fork" (unshared_file *one, int fd) nogil
    void share_again(unshared_file *one) nogil


cdef class OpenFile:
    """The base class of `files.File`.

    Attributes:
        path: the file.
        fd: its descriptor; -1 once it is closed.
    """

    cdef readonly str path
    cdef readonly int fd
    cdef bint _is_unshared
    cdef unshared_file _unshared

    def __cinit__(self, str path not None, int fd):
        self.path = path
        self.fd = fd

    def close(self):
        """Closes the file; a second call does nothing. OSError: what was written may be lost."""
        cdef int fd = self.fd
        self._share_again()
        self.fd = -1
        if fd >= 0:
            try:
                os.close(fd)
            except InterruptedError:
                pass  # It is closed, and its number may be another file's by now.

    def unshare_at_fork(self):
        """Has each child that is forked from now on find /dev/null in place of the file: it never holds its lock."""
        if self.fd >= 0 and not self._is_unshared:
            self._is_unshared = True
            c_unshare_at_fork(&self._unshared, self.fd)

    cdef void _share_again(self) noexcept:
        if self._is_unshared:
            self._is_unshared = False
            share_again(&self._unshared)

    def write_all(self, data, long long position):
        """Writes all of `data` at `position`, unobserved. OSError: any part of it may have been written."""
        cdef Py_ssize_t done, size = len(data)
        try:
            done = os.pwrite(self.fd, data, position)
            while done < size:
                done += os.pwrite(self.fd, memoryview(data)[done:], position + done)
        except OSError as error:
            raise OSError(error.errno, error.strerror, self.path) from None

    def begin_sync(self, long long position, long long size):
        """Has the system begin to write bytes of the file to the disk, if it can be asked to: a later sync waits less.

        It does not wait, and the sync reports any error. Returns whether a sync was begun in the
        background, as it is after each 16 MiB of all files (`early_sync.h`).
        """
        cdef int fd = self.fd
        cdef bint began
        cdef bytes path = os.fsencode(self.path)
        cdef const char *c_path = path
        with nogil:
            began = early_sync(fd, c_path, position, size)
        return began

    def __dealloc__(self):
        self._share_again()
        if self.fd >= 0:
            with nogil:
                c_close(self.fd)
