# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Arrow arrays as the encoders read them."""

import pyarrow as pa

from libc.stdint cimport int32_t, uint8_t, uintptr_t


cdef Input input_of(array, int width):
    cdef Input column
    buffers = array.buffers()
    column.valid = <const uint8_t*><uintptr_t>(buffers[0].address if buffers and buffers[0] else 0)
    column.offset, column.width = array.offset, width
    column.edges, column.data = NULL, NULL
    kind = array.type
    if pa.types.is_struct(kind) or pa.types.is_null(kind):
        return column
    second = <uintptr_t>(buffers[1].address if buffers[1] else 0)
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        column.edges = <const int32_t*>second
        column.data = <const uint8_t*><uintptr_t>(buffers[2].address if buffers[2] else 0)
    elif pa.types.is_list(kind) or pa.types.is_map(kind):
        column.edges = <const int32_t*>second
    else:
        column.data = <const uint8_t*>second
    return column
