# The arrays that an encoder reads, by their buffers.

from libc.stdint cimport int32_t, int64_t, uint8_t


cdef struct Input:
    const uint8_t* valid
    const uint8_t* data
    const int32_t* edges
    int64_t offset
    int width


cdef inline bint is_null(const Input* column, int64_t row) noexcept nogil:
    row += column.offset
    return column.valid != NULL and not column.valid[row >> 3] & (1 << (row & 7))


# The buffers of an array, which must outlive what is returned.
cdef Input input_of(array, int width)
