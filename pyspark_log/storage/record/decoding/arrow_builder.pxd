# The Arrow columns that records are read into. A kernel that uses them loads Arrow; `row_buffers` does not.

from libc.stdint cimport int32_t, int64_t, uint8_t

from pyspark_log.storage.record.decoding.row_buffers cimport Rows


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
    cdef object header_structs(self)
