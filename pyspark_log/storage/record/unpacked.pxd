from libc.stdint cimport int64_t, uint8_t

from pyspark_log.storage.record.headers cimport Bytes, Header
from pyspark_log.storage.record.native_codec cimport Memory

# Decompresses a zstd frame to `room` bytes of memory, which are as many as it says it holds (`is_exact`), or more.
# Returns how many it holds; -1: it is damaged, holds more, or another reader must say.
cdef Py_ssize_t read_zstd(
    const uint8_t* p, const uint8_t* stop, uint8_t* target, Py_ssize_t room, bint is_exact
) except -2


cdef class Unpacked:
    # The decompressed records of one batch, and then of another, in memory that is used again where that is possible.
    cdef const uint8_t* data
    cdef Py_ssize_t size
    cdef Memory memory
    cdef Bytes held  # what a library has allocated; or None

    # Decompresses the stream [p, stop) of a batch, which becomes at most `limit` bytes. CorruptRecordError,
    # BatchTooLargeError; without a place.
    cdef int load(self, const Header* h, const uint8_t* p, const uint8_t* stop, int64_t limit) except -1
