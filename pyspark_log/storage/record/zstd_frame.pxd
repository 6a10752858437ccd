from libc.stdint cimport int64_t, uint8_t

# How many bytes of room a zstd frame needs, if [p, stop) is one whole frame without a dictionary; else 0. The frame says
# it (`is_exact`), or as many bytes are the most that it can hold.
cdef int64_t frame_room(const uint8_t* p, const uint8_t* stop, bint* is_exact) noexcept nogil


cdef class ZstdReader:
    # Decompresses frames; not by two threads at once.
    cdef void* context

    # Decompresses such a frame to `room` bytes of memory. Returns how many it holds; -1: it is damaged, holds more, or
    # neither library has the functions, and another reader must say.
    cdef Py_ssize_t read(self, const uint8_t* p, Py_ssize_t size, uint8_t* target, Py_ssize_t room) noexcept
