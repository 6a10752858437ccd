from libc.stdint cimport int64_t, uint8_t, uint64_t

from pyspark_log.storage.record.walk cimport BatchWalk, Record


cdef struct Entry:
    uint64_t low
    uint64_t high
    int64_t next_offset  # the key's offset and 1; 0: the slot is free


cdef class OffsetMap:
    cdef Entry* entries
    cdef Py_ssize_t size  # current number of slots
    cdef Py_ssize_t room  # keys that these may hold
    cdef double load_factor
    cdef readonly Py_ssize_t slots
    cdef readonly Py_ssize_t capacity
    cdef readonly Py_ssize_t count
    cdef public int64_t latest_offset
    cdef uint64_t key_low
    cdef uint64_t key_high
    # A bit for each offset of [noted_from, noted_until): whether a later record of its key was entered.
    cdef uint8_t* replaced
    cdef int64_t noted_from
    cdef int64_t noted_until

    # Ends the notes.
    cdef void forget(self) noexcept nogil

    # Whether a record of [noted_from, noted_until) that was entered was replaced.
    cdef inline bint is_replaced(self, int64_t offset) noexcept nogil:
        cdef int64_t bit = offset - self.noted_from
        return self.replaced[bit >> 3] >> (bit & 7) & 1

    # Sets the hashes of those that have keys, and has the memory fetch their slots.
    cdef void hash_all(self, Record* records, int count) noexcept nogil

    # The offset of a hashed key; -1: it is not here.
    cdef int64_t find(self, const Record* record) noexcept nogil

    # Enters a hashed key; False: there is no room for another one.
    cdef bint put_hashed(self, const Record* record) noexcept nogil

    cdef bint put_batch(self, BatchWalk batches, int64_t from_offset, int64_t until_offset) except -1

    cdef bint grow(self) noexcept nogil

    # How far a slot is after the slot that a hash points to.
    cdef Py_ssize_t away(self, Py_ssize_t slot, uint64_t low) noexcept nogil
