# The batches of a piece of a log, one after the other, each checked and, on request, decompressed.

from libc.stdint cimport int64_t, uint8_t

from pyspark_log.storage.record.headers cimport Bytes, Header
from pyspark_log.storage.compaction.record_walk cimport Walk


cdef class BatchWalk:
    cdef Bytes source
    cdef Py_ssize_t end
    cdef Py_ssize_t position  # where the batch begins
    cdef int64_t follows  # the offset at which it must begin; -1: any
    cdef int64_t limit  # the most bytes that it may become
    cdef Header header
    cdef bint is_opened
    cdef Bytes held  # its decompressed bytes
    cdef const uint8_t* data  # its records or messages, once it is opened
    cdef const uint8_t* data_end

    # Begins with the batch at `start`.
    cdef int load(self, buffer, Py_ssize_t start, Py_ssize_t end) except -1

    # Checks the batch at `position`; False: it is incomplete. CorruptRecordError.
    cdef bint look(self) except -1

    # Decompresses it if needed. CorruptRecordError.
    cdef int open(self) except -1

    cdef int unpack(self) except -1

    # Moves past it.
    cdef void pass_by(self) noexcept

    # CorruptRecordError for the record at which a walk has stopped.
    cdef int refuse(self, const Walk* walk, const char* reason) except -1
