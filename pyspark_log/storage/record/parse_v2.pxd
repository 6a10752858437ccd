from libc.stdint cimport int32_t, int64_t, uint8_t

from pyspark_log.storage.record.headers cimport Header
from pyspark_log.storage.record.arrow_builder cimport Rows

cdef enum:
    # Length, attributes, two deltas, two lengths and a header count, of one byte each.
    SMALLEST_RECORD = 7


cdef struct Span:
    # One admitted batch: its records (decompressed), and the fields of its header.
    const uint8_t* data
    const uint8_t* end
    int64_t cost  # bytes in memory, without headers
    Py_ssize_t position
    int64_t offset_before  # `next_offset` of a chunk that ends before this batch
    Header header


# Appends the records of one batch to `rows`; returns what is wrong, and in `bad` with which.
cdef const char* read_records(
    const Span* span, int64_t from_offset, int64_t until_offset, Rows* rows, int32_t* bad
) noexcept nogil
