# Arrow columns of any nesting while they are filled, value by value. No Python object is touched: a kernel that fills
# them can release the GIL.

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset

# What a column stores; slots.py has the same numbers.
cdef enum Kind:
    NULLS = 0
    BITS = 1
    FIXED = 2
    TEXT = 3
    LIST = 4
    STRUCT = 5

cdef enum Refusal:
    NO_MEMORY = 1
    TOO_MUCH = 2

cdef struct Column:
    int kind
    int width  # bytes of a value that is FIXED
    int after  # the number of the next column that is no part of this one; the first child has the number after its own
    int64_t count
    int64_t room
    uint8_t* data  # FIXED: values; BITS: bits; TEXT: bytes
    int64_t data_room
    int32_t* edges  # TEXT, LIST: where each value begins, and where the last one ends
    uint8_t* valid  # NULL: no value is null; bits beyond `count` are set
    int64_t nulls

# Makes room for one more value at least.
cdef int grow(Column* column) noexcept nogil

# Makes room for bytes of TEXT.
cdef int grow_data(Column* column, int64_t size) noexcept nogil

# Appends a null; to a struct's children, too.
cdef int put_null(Column* columns, int number) noexcept nogil

# Drops the values from `count` on, and what was appended to the parts of an unfinished one.
cdef void truncate(Column* columns, int number, int64_t count) noexcept nogil


cdef inline int put_fixed(Column* column, const void* value, int width) noexcept nogil:
    if column.count == column.room and grow(column):
        return NO_MEMORY
    memcpy(column.data + column.count * width, value, width)
    column.count += 1
    return 0


cdef inline int put_bit(Column* column, bint value) noexcept nogil:
    if column.count == column.room and grow(column):
        return NO_MEMORY
    cdef uint8_t mask = 1 << (column.count & 7)
    if value:
        column.data[column.count >> 3] |= mask
    else:
        column.data[column.count >> 3] &= ~mask
    column.count += 1
    return 0


cdef inline int put_text(Column* column, const uint8_t* text, int64_t size) noexcept nogil:
    if column.count == column.room and grow(column):
        return NO_MEMORY
    cdef int64_t begin = column.edges[column.count]
    if begin + size > INT32_MAX:
        return TOO_MUCH
    if begin + size > column.data_room and grow_data(column, begin + size):
        return NO_MEMORY
    memcpy(column.data + begin, text, size)
    column.edges[column.count + 1] = <int32_t>(begin + size)
    column.count += 1
    return 0


# Ends a list: its items are those appended to its child since the one before it.
cdef inline int put_list(Column* columns, int number) noexcept nogil:
    cdef Column* column = &columns[number]
    cdef int64_t end = columns[number + 1].count
    if column.count == column.room and grow(column):
        return NO_MEMORY
    if end > INT32_MAX:
        return TOO_MUCH
    column.edges[column.count + 1] = <int32_t>end
    column.count += 1
    return 0


# Ends a struct, whose children have their values.
cdef inline int put_struct(Column* column) noexcept nogil:
    if column.count == column.room and grow(column):
        return NO_MEMORY
    column.count += 1
    return 0


# Whether bytes are UTF-8.
cdef bint is_utf8(const uint8_t* text, int64_t size) noexcept nogil


cdef class Columns:
    cdef Column* columns
    cdef int number
    cdef object root

    # The finished array.
    cdef object finish(self)
    cdef object buffer(self, void* data, int64_t size)
