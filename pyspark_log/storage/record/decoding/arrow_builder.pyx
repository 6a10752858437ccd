# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The Arrow columns that records are read into: their buffers, before and after they are filled."""

import pyarrow as pa

from libc.stdint cimport int32_t, int64_t, uint8_t, uintptr_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from pyspark_log.storage.record.decoding.row_buffers cimport HeaderField, Rows, clear_bit
from pyspark_log.storage.record.wire cimport BLOCK

cdef object BINARY = pa.binary()
cdef object STRING = pa.string()
cdef object INT32 = pa.int32()
cdef object INT64 = pa.int64()
cdef object TIMESTAMP = pa.timestamp("us", tz="UTC")
cdef object HEADER_TYPE = pa.struct([("key", pa.string()), ("value", pa.binary())])
cdef object HEADERS_TYPE = pa.list_(HEADER_TYPE)
cdef object NO_HEADERS = pa.array([], HEADER_TYPE)


cdef class RowColumns:
    """Columns of received records while they are built: allocated, filled by a parser, finished."""

    def __cinit__(self):
        memset(&self.rows, 0, sizeof(Rows))
        self.buffers = {}

    def __dealloc__(self):
        free(self.rows.header)

    cdef int begin(
        self, int64_t rows, Py_ssize_t size, bint keys, bint values, int64_t header_limit
    ) except -1:
        if keys:
            self.rows.key = self.allocate("key", size + BLOCK)
        if values:
            self.rows.value = self.allocate("value", size + BLOCK)
        self.byte_room = size
        if header_limit >= 0:
            self.rows.headers_edge = self.allocate_edges("headers_edge", 0)
            self.rows.header_limit = header_limit
        self.row_room = -1
        return self.reserve(rows, size)

    cdef int reserve(self, int64_t count, Py_ssize_t size) except -1:
        cdef Rows* rows = &self.rows
        cdef int64_t before = self.row_room
        if count > before:
            self.row_room = count = max(count, 2 * before)
            rows.offset = <int64_t*>self.allocate("offset", count * sizeof(int64_t))
            rows.time = <int64_t*>self.allocate("time", count * sizeof(int64_t))
            rows.time_type = <int32_t*>self.allocate("time_type", count * sizeof(int32_t))
            rows.key_edge = self.allocate_edges("key_edge", count)
            rows.value_edge = self.allocate_edges("value_edge", count)
            rows.key_valid = self.allocate_bitmap("key_valid", before, count)
            rows.value_valid = self.allocate_bitmap("value_valid", before, count)
            if rows.headers_edge != NULL:
                rows.headers_edge = self.allocate_edges("headers_edge", count)
                rows.headers_valid = self.allocate_bitmap("headers_valid", before, count)
        if size > self.byte_room:
            # For all bytes of the batches twice, since it is not known what part of them is keys. Pages that are not
            # written to cost nothing.
            self.byte_room = size = max(size, 2 * self.byte_room)
            if rows.key != NULL:
                rows.key = self.allocate("key", size + BLOCK)
            if rows.value != NULL:
                rows.value = self.allocate("value", size + BLOCK)
        return 0

    cdef uint8_t* allocate(self, str name, Py_ssize_t size) except NULL:
        """A buffer of Arrow's memory pool, which reuses the same pages; an existing buffer is enlarged."""
        buffer = self.buffers.get(name)
        # At least one byte, so that there is an address.
        if buffer is None:
            self.buffers[name] = buffer = pa.allocate_buffer(size + 1, resizable=True)
        else:
            buffer.resize(size + 1, shrink_to_fit=False)
        return <uint8_t*><uintptr_t>buffer.address

    cdef int32_t* allocate_edges(self, str name, int64_t count) except NULL:
        cdef int32_t* edges = <int32_t*>self.allocate(name, (count + 1) * sizeof(int32_t))
        edges[0] = 0
        return edges

    cdef uint8_t* allocate_bitmap(self, str name, int64_t before, int64_t count) except NULL:
        """All bits are set beyond the room that there was before; -1: there was none."""
        cdef Py_ssize_t held = before // 8 + 1 if before >= 0 else 0
        cdef uint8_t* bitmap = self.allocate(name, count // 8 + 1)
        memset(bitmap + held, 0xFF, count // 8 + 1 - held)
        return bitmap

    cdef object taken_buffer(self, str name, Py_ssize_t size):
        """The buffer, truncated to its filled part."""
        buffer = self.buffers[name]
        buffer.resize(size, shrink_to_fit=True)
        return buffer

    cdef object bytes_column(self, str name, int32_t* edges, int64_t count, int64_t nulls):
        return pa.Array.from_buffers(
            BINARY, count,
            [
                self.buffers[name + "_valid"] if nulls else None,
                self.buffers[name + "_edge"],
                self.taken_buffer(name, edges[count]),
            ],
            nulls,
        )

    cdef dict finish(self):
        cdef Rows* rows = &self.rows
        buffers = self.buffers
        columns = {
            "offset": pa.Array.from_buffers(INT64, rows.count, [None, buffers["offset"]], 0),
            "timestamp": pa.Array.from_buffers(TIMESTAMP, rows.count, [None, buffers["time"]], 0),
            "timestampType": pa.Array.from_buffers(INT32, rows.count, [None, buffers["time_type"]], 0),
        }
        if rows.key != NULL:
            columns["key"] = self.bytes_column("key", rows.key_edge, rows.count, rows.key_nulls)
        if rows.value != NULL:
            columns["value"] = self.bytes_column("value", rows.value_edge, rows.count, rows.value_nulls)
        if rows.headers_edge != NULL:
            columns["headers"] = self.headers_column()
        return columns

    cdef object headers_column(self):
        cdef Rows* rows = &self.rows
        return pa.Array.from_buffers(
            HEADERS_TYPE, rows.count,
            [self.buffers["headers_valid"] if rows.headers_nulls else None, self.buffers["headers_edge"]],
            rows.headers_nulls, children=[self.header_structs() if rows.header_count else NO_HEADERS],
        )

    cdef object header_structs(self):
        cdef Rows* rows = &self.rows
        cdef int64_t index, count = rows.header_count
        cdef Py_ssize_t key_bytes = 0, value_bytes = 0
        cdef int64_t nulls = 0
        cdef int32_t* key_edge = self.allocate_edges("header_key_edge", count)
        cdef int32_t* value_edge = self.allocate_edges("header_value_edge", count)
        cdef uint8_t* value_valid = self.allocate_bitmap("header_value_valid", -1, count)
        for index in range(count):
            key_bytes += rows.header[index].key_length
            key_edge[index + 1] = <int32_t>key_bytes
            if rows.header[index].value_length >= 0:
                value_bytes += rows.header[index].value_length
            else:
                clear_bit(value_valid, index)
                nulls += 1
            value_edge[index + 1] = <int32_t>value_bytes
        cdef uint8_t* key = self.allocate("header_key", key_bytes)
        cdef uint8_t* value = self.allocate("header_value", value_bytes)
        for index in range(count):
            memcpy(key + key_edge[index], rows.header[index].key, rows.header[index].key_length)
            if rows.header[index].value_length > 0:
                memcpy(value + value_edge[index], rows.header[index].value, rows.header[index].value_length)
        keys = as_text(self.bytes_column("header_key", key_edge, count, 0))
        values = self.bytes_column("header_value", value_edge, count, nulls)
        return pa.StructArray.from_arrays([keys, values], fields=list(HEADER_TYPE))


cdef object as_text(keys):
    """Header keys as strings. Invalid UTF-8 becomes U+FFFD, as in Kafka's clients."""
    try:
        return keys.cast(STRING)  # validates, copies nothing
    except pa.ArrowInvalid:
        return pa.array([key.decode("utf-8", "replace") for key in keys.to_pylist()], STRING)
