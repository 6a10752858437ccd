# The columns that records are read into, as compiled code fills them. Each parser of a format appends rows;
# `RowColumns` has reserved the room before, so that no row needs a check of its own. Inline code only.

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport realloc
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


cdef inline const char* note_header(Rows* rows, const HeaderField* field) noexcept nogil:
    # Notes a header of the next row; returns what is wrong, or NULL.
    cdef int64_t room
    cdef HeaderField* grown
    if rows.header_count == rows.header_room:
        if rows.header_count >= rows.header_limit:
            rows.too_many_headers = True
            return b"there are too many headers"
        room = min(2 * rows.header_room + 64, rows.header_limit)
        grown = <HeaderField*>realloc(rows.header, room * sizeof(HeaderField))
        if grown == NULL:
            return b"there is no memory for its headers"
        rows.header = grown
        rows.header_room = room
    rows.header[rows.header_count] = field[0]
    rows.header_count += 1
    return NULL
