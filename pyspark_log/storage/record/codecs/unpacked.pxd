from libc.stdint cimport int64_t, uint8_t

from pyspark_log.storage.record.headers cimport Bytes, Header
from pyspark_log.storage.record.codecs.memory cimport Memory

# Decompresses a zstd frame, which holds `room` bytes (`is_exact`), or as many at most. None: it is damaged, holds
# another number of bytes, or more, and another reader must say.
cdef bytes read_zstd(const uint8_t* p, const uint8_t* stop, int64_t room, bint is_exact)


cdef class Unpacked:
    # The decompressed records of one batch, and then of another, in memory that is used again where that is possible.
    cdef const uint8_t* data
    cdef Py_ssize_t size
    cdef Memory memory
    cdef Bytes held  # what a library has allocated; or None

    # Decompresses the stream [p, stop) of a batch, which becomes at most `limit` bytes. CorruptRecordError,
    # BatchTooLargeError; without a place.
    cdef int load(self, const Header* h, const uint8_t* p, const uint8_t* stop, int64_t limit) except -1
