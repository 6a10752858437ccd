from libc.stdint cimport int64_t, uint8_t

# How many bytes of room a zstd frame needs, if [p, stop) is one whole frame without a dictionary; else 0. The frame says
# it (`is_exact`), or as many bytes are the most that it can hold.
cdef int64_t frame_room(const uint8_t* p, const uint8_t* stop, bint* is_exact) noexcept nogil
