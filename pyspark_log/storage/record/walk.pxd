# The batches of a piece of a log, one after the other, each checked and, on request, decompressed; and the records of one
# batch of any format: where each is in the bytes, without columns.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from pyspark_log.storage.record.headers cimport Bytes, Header
from pyspark_log.storage.record.codecs.unpacked cimport Unpacked


cdef struct Record:
    const uint8_t* start
    const uint8_t* end
    const uint8_t* key
    int32_t key_length  # negative: it has no key
    const uint8_t* value
    int32_t value_length  # negative: it has no value
    int64_t offset
    int64_t time  # ms; -1: none
    uint64_t hash_low  # of the key, once requested
    uint64_t hash_high


cdef struct Walk:
    Header header
    const uint8_t* at
    const uint8_t* end
    int64_t base  # the base of offsets inside a message set
    int32_t done  # records that were taken
    int32_t previous  # offset delta of the last one


# Begins with a batch whose records (decompressed) or messages are `data`; the header says how many.
cdef void begin_walk(Walk* walk, const Header* header, const uint8_t* data, const uint8_t* end) noexcept nogil

# Takes up to `most` records; `taken` is less than that only after the last one. Returns the fault of the record
# `walk.done`, or of the bytes after the last one, or NULL.
cdef const char* take_records(Walk* walk, Record* out, int most, int* taken) noexcept nogil


cdef class BatchWalk:
    cdef Bytes source
    cdef Py_ssize_t end
    cdef Py_ssize_t position  # where the batch begins
    cdef int64_t follows  # the offset at which it must begin; -1: any
    cdef int64_t limit  # the most bytes that it may become
    cdef Header header
    cdef bint is_opened
    cdef Unpacked held  # its decompressed bytes; None: no batch was compressed yet
    cdef const uint8_t* data  # its records or messages, once it is opened
    cdef const uint8_t* data_end

    # Begins with the batch at `start`.
    cdef int load(self, buffer, Py_ssize_t start, Py_ssize_t end) except -1

    # Checks the batch at `position`; False: it is incomplete. CorruptRecordError.
    cdef bint peek(self) except -1

    # Decompresses it if needed. CorruptRecordError.
    cdef int open(self) except -1

    cdef int unpack(self) except -1

    # BatchTooLargeError: once it is opened, it takes more memory than it may.
    cdef int check_size(self) except -1

    # Moves past it.
    cdef void pass_by(self) noexcept

    # CorruptRecordError for the record at which a walk has stopped.
    cdef int refuse(self, const Walk* walk, const char* reason) except -1
