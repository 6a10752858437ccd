# Reads Arrow columns by row from compiled code, without Arrow's headers. Inline code only;
# `arrow_view.View` documents the fields. A missing column is a column of nulls.

from libc.stdint cimport int32_t, int64_t, uint8_t, uintptr_t


cdef struct Column:
    bint absent
    int64_t rows
    int64_t first
    const uint8_t* validity
    const int32_t* narrow
    const int64_t* wide
    const uint8_t* data
    int64_t size


cdef inline Column open_column(object view):
    cdef Column c
    cdef uintptr_t offsets
    c.absent = view is None
    c.rows = c.first = c.size = 0
    c.validity = c.data = NULL
    c.narrow = NULL
    c.wide = NULL
    if view is not None:
        c.rows = view.rows
        c.first = view.first
        c.size = view.size
        c.validity = <const uint8_t*><uintptr_t>view.validity
        c.data = <const uint8_t*><uintptr_t>view.data
        offsets = view.offsets
        if view.wide:
            c.wide = <const int64_t*>offsets
        else:
            c.narrow = <const int32_t*>offsets
    return c


cdef inline bint is_null(const Column* c, int64_t row) noexcept nogil:
    cdef int64_t slot = c.first + row
    return c.absent or (c.validity != NULL and not c.validity[slot >> 3] >> (slot & 7) & 1)


cdef inline int64_t edge(const Column* c, int64_t row) noexcept nogil:
    # The start of that row's value; the value of the row before it ends there.
    return c.narrow[c.first + row] if c.narrow != NULL else c.wide[c.first + row]


cdef inline int64_t find(const Column* c, int64_t row, const uint8_t** value) noexcept nogil:
    # Length of the value in bytes, or -1 for null.
    cdef int64_t start
    if is_null(c, row):
        return -1
    start = edge(c, row)
    value[0] = c.data + start
    return edge(c, row + 1) - start


cdef inline bint edges_fit(const Column* c) noexcept nogil:
    # Whether all values are inside the data: checked once, so that `find` need not check.
    cdef int64_t row
    cdef bint falls = 0
    if c.absent or c.rows == 0:
        return 1
    if c.narrow != NULL:
        for row in range(c.first, c.first + c.rows):
            falls |= c.narrow[row + 1] < c.narrow[row]
    else:
        for row in range(c.first, c.first + c.rows):
            falls |= c.wide[row + 1] < c.wide[row]
    return not falls and edge(c, 0) >= 0 and edge(c, c.rows) <= c.size
