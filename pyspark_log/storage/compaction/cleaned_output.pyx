# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The output of a cleaning: bytes for a segment's log, and its indexes as a writer would build them.

Where batches are dropped, an empty batch takes their offsets (gap.py says why), one for each run of dropped
batches. It keeps their leader epoch: where that changes, another empty batch begins, so that the log alone shows
where an epoch began.
"""

import struct

from pyspark_log.storage.record import batch as layout
from pyspark_log.errors import SegmentOverflowError

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from pyspark_log.storage.record.headers cimport Header, write_header

cdef Py_ssize_t HEADER_SIZE = layout.HEADER_SIZE
cdef object OFFSET_ENTRY = struct.Struct(">iI")
cdef object TIME_ENTRY = struct.Struct(">qi")

cdef enum:
    FIRST_ROOM = 1 << 20
    NO_TIMESTAMP = -1


cdef class CleanedOutput:
    """Not thread-safe.

    Args:
        base_offset: of the segment.
        index_interval: bytes of the log between two index entries.

    Attributes:
        size: bytes of the segment so far, including the current piece.
        offset_index, time_index: the indexes' entries, in the files' format.
    """

    def __cinit__(self, int64_t base_offset, int64_t index_interval):
        self.base_offset = base_offset
        self.index_interval = index_interval
        self.offset_index = bytearray()
        self.time_index = bytearray()
        self.max_timestamp = self.indexed_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self.gap_start = -1
        self.buffer = bytearray(FIRST_ROOM)
        self.data = <uint8_t*>self.buffer

    def piece(self):
        """The bytes that the last call has added, as a memoryview; valid until the next call."""
        if self.run_end > self.run_start:
            return memoryview(self.source)[self.run_start : self.run_end]
        return memoryview(self.buffer)[: self.used]

    def finish(self, int64_t until):
        """Fills the gap before `until` and adds the closing time entry; `piece` returns the added bytes."""
        self.begin_piece(None, NULL)
        self.close_gap(until)
        self.add_time_entry()

    cdef int begin_piece(self, source, const uint8_t* source_data) except -1:
        self.source = source
        self.source_data = source_data
        self.used = self.run_start = self.run_end = 0
        return 0

    cdef int drop(self, int64_t base_offset, int64_t next_offset, int32_t leader_epoch) except -1:
        if next_offset == base_offset:
            return 0
        if self.gap_start >= 0 and self.gap_epoch != leader_epoch:
            self.close_gap(base_offset)
        if self.gap_start < 0:
            self.gap_start = base_offset
            self.gap_epoch = leader_epoch
        return 0

    cdef int close_gap(self, int64_t base_offset) except -1:
        cdef Header h
        cdef uint8_t* p
        if self.gap_start < 0:
            return 0
        p = self.reserve(HEADER_SIZE)
        h.base_offset = self.gap_start
        h.last_offset = base_offset - 1
        h.last_offset_delta = <int32_t>(base_offset - 1 - self.gap_start)
        h.size = HEADER_SIZE
        h.leader_epoch = self.gap_epoch
        h.attributes = h.count = 0
        h.base_timestamp = h.max_timestamp = NO_TIMESTAMP
        h.producer_id = h.producer_epoch = h.base_sequence = -1
        write_header(p, &h)
        self.gap_start = -1
        return self.add(&h)

    cdef int keep(self, Py_ssize_t position, const Header* h) except -1:
        self.close_gap(h.base_offset)
        if self.used == 0 and (self.run_end == self.run_start or position == self.run_end):
            if self.run_end == self.run_start:
                self.run_start = position
            self.run_end = position + h.size
            return self.count(h)
        memcpy(self.reserve(h.size), self.source_data + position, h.size)
        return self.add(h)

    cdef int copy_run(self) except -1:
        """Moves the run from the source to the buffer, since something else follows."""
        cdef Py_ssize_t start = self.run_start, size = self.run_end - self.run_start
        self.run_start = self.run_end = 0
        if size:
            memcpy(self.reserve(size), self.source_data + start, size)
            self.used += size
        return 0

    cdef uint8_t* reserve(self, Py_ssize_t size) except NULL:
        cdef bytearray grown
        if self.run_end > self.run_start:
            self.copy_run()
        if self.used + size > len(self.buffer):
            grown = bytearray(max(2 * len(self.buffer), self.used + size))
            memcpy(<uint8_t*>grown, self.data, self.used)
            self.buffer = grown
            self.data = <uint8_t*>grown
        return self.data + self.used

    cdef int add(self, const Header* h) except -1:
        self.count(h)
        self.used += h.size
        return 0

    cdef int count(self, const Header* h) except -1:
        # As SegmentWriter does.
        if self.size + h.size > INT32_MAX:
            raise SegmentOverflowError(self.base_offset, f"more than {INT32_MAX} bytes")
        if h.max_timestamp > self.max_timestamp:
            self.max_timestamp = h.max_timestamp
            self.max_timestamp_offset = h.last_offset
        if self.since_entry > self.index_interval:
            self.add_time_entry()
            self.offset_index += OFFSET_ENTRY.pack(h.last_offset - self.base_offset, self.size)
            self.since_entry = 0
        self.since_entry += h.size
        self.size += h.size
        return 0

    cdef int add_time_entry(self) except -1:
        if self.max_timestamp > self.indexed_timestamp:
            self.indexed_timestamp = self.max_timestamp
            self.time_index += TIME_ENTRY.pack(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
        return 0
