# Memory that is used again, for what is decompressed.

from libc.stdint cimport uint8_t
from libc.stdlib cimport realloc


cdef struct Memory:
    uint8_t* data  # NULL: none yet; of `malloc`
    Py_ssize_t room


cdef inline bint has_room(Memory* memory, Py_ssize_t size, Py_ssize_t limit) noexcept nogil:
    # Makes room for `size` bytes, or for more, up to `limit`.
    cdef uint8_t* grown
    if size <= memory.room:
        return True
    size = min(max(size, 2 * memory.room), limit)
    grown = <uint8_t*>realloc(memory.data, size)
    if grown == NULL:
        return False
    memory.data = grown
    memory.room = size
    return True
