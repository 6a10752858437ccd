# cython: language_level=3, boundscheck=False, wraparound=False
"""The smallest and the largest number of a column. Arrow's own function takes longer to start than a small batch has."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t


def bounds(buffer, Py_ssize_t first, Py_ssize_t count):
    """Returns the smallest and the largest of `count` int64 numbers of a buffer, from number `first` on.

    Raises:
        ValueError: there are none, or the buffer has fewer.
    """
    cdef Py_buffer view
    cdef Py_ssize_t index
    cdef int64_t number, least = INT64_MAX, most = INT64_MIN
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if count < 1 or first < 0 or (first + count) * <Py_ssize_t>sizeof(int64_t) > view.len:
            raise ValueError(f"numbers {first} to {first + count} of a buffer of {view.len} bytes")
        for index in range(first, first + count):
            number = (<const int64_t*>view.buf)[index]
            least = min(least, number)
            most = max(most, number)
    finally:
        PyBuffer_Release(&view)
    return least, most
