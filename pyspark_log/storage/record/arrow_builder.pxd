# The columns that records are read into, as compiled code fills them. Each parser of a format appends rows;
# `RowColumns` has reserved the room before, so that no row needs a check of its own.

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memmove

from pyspark_log.storage.record.wire cimport BLOCK, copy_short


cdef struct HeaderField:
    const uint8_t* key
    const uint8_t* value
    int32_t key_length
    int32_t value_length


cdef struct Rows:
    # Output columns, with room for all rows that the next batch can have, and how far they are filled.
    int64_t* offset
    int64_t* time
    int32_t* time_type
    int32_t* key_edge
    int32_t* value_edge
    uint8_t* key  # NULL: no column of keys is asked for
    uint8_t* value  # NULL: no column of values is asked for
    uint8_t* key_valid
    uint8_t* value_valid
    int64_t count
    int64_t key_nulls
    int64_t value_nulls
    # Headers are noted first and copied at the end, when their number is known.
    int32_t* headers_edge  # NULL: no column of headers is asked for
    uint8_t* headers_valid
    int64_t headers_nulls
    HeaderField* header
    int64_t header_count
    int64_t header_room
    int64_t header_limit
    bint too_many_headers  # the limit was reached


cdef inline bint time_fits(int64_t time) noexcept nogil:
    # A time in ms must fit a column of microseconds.
    return -(INT64_MAX // 1000) <= time <= INT64_MAX // 1000


cdef inline void clear_bit(uint8_t* bitmap, int64_t index) noexcept nogil:
    bitmap[index >> 3] &= <uint8_t>~(1 << (index & 7))


# Columns have room for a block after their last byte.

cdef inline void copy_key(uint8_t* to, const uint8_t* data, Py_ssize_t length, const uint8_t* end) noexcept nogil:
    copy_short(to, to + length + BLOCK, data, length, end)


cdef inline void copy_value(uint8_t* to, const uint8_t* data, Py_ssize_t length, const uint8_t* end) noexcept nogil:
    # Where values are moved down in their own column, no block may reach the bytes that are read next.
    if <size_t>(data - to) < BLOCK:
        memmove(to, data, length)
    else:
        copy_short(to, to + length + BLOCK, data, length, end)


# Notes a header of the next row; returns what is wrong, or NULL.
cdef const char* note_header(Rows* rows, const HeaderField* field) noexcept nogil


cdef class RowColumns:
    cdef Rows rows
    cdef dict buffers
    cdef int64_t row_room
    cdef Py_ssize_t byte_room

    # Has columns of keys and values, if they are asked for, and of headers, if there may be more than -1 of them.
    cdef int begin(self, int64_t rows, Py_ssize_t size, bint keys, bint values, int64_t header_limit) except -1

    # Reserves room for `rows` rows, with `size` bytes of keys and as many of values, in all.
    cdef int reserve(self, int64_t rows, Py_ssize_t size) except -1

    # How many bytes of values there are.
    cdef inline int32_t value_end(self) noexcept:
        return self.rows.value_edge[self.rows.count]

    # The filled columns by name.
    cdef dict finish(self)

    cdef uint8_t* allocate(self, str name, Py_ssize_t size) except NULL
    cdef int32_t* allocate_edges(self, str name, int64_t count) except NULL
    cdef uint8_t* allocate_bitmap(self, str name, int64_t before, int64_t count) except NULL
    cdef object taken_buffer(self, str name, Py_ssize_t size)
    cdef object bytes_column(self, str name, int32_t* edges, int64_t count, int64_t nulls)
    cdef object headers_column(self)
