from libc.stdint cimport int32_t, int64_t, uint8_t

from pyspark_log.storage.record.headers cimport Header
from pyspark_log.storage.record.decoding.row_buffers cimport Rows

# Reads the headers [p, stop) of a record, and notes them in `rows` if they are kept; returns what is wrong, or NULL.
cdef const char* read_record_headers(
    const uint8_t* p, const uint8_t* stop, int32_t count, bint keep, Rows* rows
) noexcept nogil

# Appends the records [data, end) of one batch to `rows`; returns what is wrong, and in `bad` with which.
cdef const char* read_records(
    const Header* header, const uint8_t* data, const uint8_t* end, int64_t from_offset, int64_t until_offset, Rows* rows,
    int32_t* bad
) noexcept nogil
