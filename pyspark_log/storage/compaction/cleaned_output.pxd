# The content of a cleaned segment: its bytes, piece by piece, and the entries of its two indexes.

from libc.stdint cimport int32_t, int64_t, uint8_t

from pyspark_log.storage.record.headers cimport Header


cdef class CleanedOutput:
    cdef readonly int64_t base_offset
    cdef readonly int64_t size  # bytes of the segment so far
    cdef readonly bytearray offset_index
    cdef readonly bytearray time_index
    cdef int64_t index_interval
    cdef int64_t since_entry
    cdef int64_t max_timestamp
    cdef int64_t max_timestamp_offset
    cdef int64_t indexed_timestamp  # of the last entry of the time index
    # Offsets without a batch so far, up to where the next batch begins.
    cdef int64_t gap_start  # -1: none
    cdef int32_t gap_epoch
    # The current piece: in a buffer of its own, or a run of unchanged batches of the source.
    cdef bytearray buffer
    cdef uint8_t* data
    cdef Py_ssize_t used
    cdef object source
    cdef const uint8_t* source_data
    cdef Py_ssize_t run_start
    cdef Py_ssize_t run_end

    # Begins a piece; batches of `source` may be used unchanged.
    cdef int begin_piece(self, source, const uint8_t* source_data) except -1

    # Notes that a batch with these offsets is dropped.
    cdef int drop(self, int64_t base_offset, int64_t next_offset, int32_t leader_epoch) except -1

    # Fills the gap before a batch that begins at `base_offset`.
    cdef int close_gap(self, int64_t base_offset) except -1

    # Adds the batch at `position` of the source, unchanged.
    cdef int keep(self, Py_ssize_t position, const Header* h) except -1

    # Reserves `size` bytes after the piece, of which `add` uses as many as its header says.
    cdef uint8_t* reserve(self, Py_ssize_t size) except NULL
    cdef int add(self, const Header* h) except -1

    cdef int copy_run(self) except -1
    cdef int count(self, const Header* h) except -1
    cdef int add_time_entry(self) except -1
