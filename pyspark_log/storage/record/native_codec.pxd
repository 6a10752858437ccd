# What the readers of frames share: C functions of the codecs' packages, and memory that is used again.

from libc.stdint cimport uint8_t
from libc.stdlib cimport realloc

cdef enum:
    # So many bytes are worked on without Python's lock, so that other threads can run; with fewer, giving it back and
    # asking for it again takes longer than it is worth.
    RELEASED = 65536


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


# A library of the system, by the name of its file; or the file of an extension module, which is not imported. NULL:
# there is none.
cdef void* system_library(str file) except? NULL
cdef void* module_library(str module) except? NULL

# A function of it; NULL: there is none.
cdef void* find_function(void* library, const char* name) noexcept
