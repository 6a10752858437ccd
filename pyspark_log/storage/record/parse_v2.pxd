from libc.stdint cimport int32_t, int64_t, uint8_t

from pyspark_log.storage.record.headers cimport Header
from pyspark_log.storage.record.arrow_builder cimport Rows

cdef enum:
    # Length, attributes, two deltas, two lengths and a header count, of one byte each.
    SMALLEST_RECORD = 7


# Appends the records [data, end) of one batch to `rows`; returns what is wrong, and in `bad` with which.
cdef const char* read_records(
    const Header* header, const uint8_t* data, const uint8_t* end, int64_t from_offset, int64_t until_offset, Rows* rows, int32_t* bad
) noexcept nogil
