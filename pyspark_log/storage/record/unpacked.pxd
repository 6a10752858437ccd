from libc.stdint cimport int64_t, uint8_t

from pyspark_log.storage.record.headers cimport Bytes, Header
from pyspark_log.storage.record.lz4_frame cimport Memory

cdef enum:
    # So many bytes are worked on without Python's lock, so that other threads can run; with fewer, giving it back and
    # asking for it again takes longer than it is worth.
    RELEASED = 65536


# The bytes that a zstd frame says it holds, if [p, stop) is one whole frame that says it; else 0.
cdef int64_t zstd_content(const uint8_t* p, const uint8_t* stop) noexcept nogil

# Decompresses such a frame without a checksum to `room` bytes of memory, which are as many as it says; whether it did.
cdef bint read_zstd(const uint8_t* p, const uint8_t* stop, uint8_t* target, Py_ssize_t room) except -1


cdef class Unpacked:
    # The decompressed records of one batch, and then of another, in memory that is used again where that is possible.
    cdef const uint8_t* data
    cdef Py_ssize_t size
    cdef Memory memory
    cdef Bytes held  # what a library has allocated; or None

    # Decompresses the stream [p, stop) of a batch, which becomes at most `limit` bytes. CorruptRecordError,
    # BatchTooLargeError; without a place.
    cdef int load(self, const Header* h, const uint8_t* p, const uint8_t* stop, int64_t limit) except -1
