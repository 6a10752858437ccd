# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Encodes Arrow columns as Avro values.

A program (encoding.py) says for each part of a value, in the order of its schema, which column has it. The columns
have the types that the schema has in Arrow, so all that can go wrong is a value: a null, a symbol, a decimal.
"""

import pyarrow as pa

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from pyspark_log.schemas.arrow_columns cimport NO_MEMORY, TOO_MUCH, Columns, put_null, put_text
from pyspark_log.schemas.arrow_input cimport Input, input_of, is_null
from pyspark_log.schemas.slots import slot_of
from pyspark_log.storage.record.codecs.memory cimport Memory, has_room

# What a step of a program does; encoding.py has the same numbers.
cdef enum Op:
    NOTHING = 0
    BOOLEAN = 1
    NUMBER32 = 2
    NUMBER64 = 3
    PLAIN = 4
    TEXT = 5
    FIXED = 6
    DECIMAL = 7
    ENUM = 8
    ARRAY = 9
    MAP = 10
    RECORD = 11
    OPTIONAL = 12
    MEMBERS = 13
    DEFAULT = 14

# Why a row is not encoded; beyond those of arrow_columns.pxd.
cdef enum Reason:
    NULL_VALUE = 3
    NO_SYMBOL = 4
    TOO_LARGE = 5

cdef dict REASONS = {
    TOO_MUCH: "the values of a batch have more than 2 GiB",
    NULL_VALUE: "it is null, which the schema does not allow",
    NO_SYMBOL: "the schema's enum has no such symbol",
    TOO_LARGE: "the decimal does not fit the schema's fixed",
}

cdef int64_t MOST_BYTES = 1 << 31
cdef object BINARY_SLOT = slot_of(pa.binary())

cdef struct Step:
    int op
    int column
    int64_t number  # bytes of a fixed or of a decimal's, -1: it has its size before it; the branch of a null, -1: none
    int first
    int count

cdef struct Blob:
    const uint8_t* data
    int64_t size

cdef struct Writer:
    Step* steps
    int* links
    Blob* blobs
    Input* inputs
    Memory memory
    int64_t size
    int failed  # the step that has refused a value


cdef inline int put(Writer* writer, const void* data, int64_t size) noexcept nogil:
    if not has_room(&writer.memory, writer.size + size, MOST_BYTES):
        return NO_MEMORY
    memcpy(writer.memory.data + writer.size, data, size)
    writer.size += size
    return 0


cdef int put_long(Writer* writer, int64_t value) noexcept nogil:
    cdef uint64_t rest = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    cdef uint8_t encoded[10]
    cdef int size = 0
    while rest > 0x7F:
        encoded[size] = rest & 0x7F | 0x80
        rest >>= 7
        size += 1
    encoded[size] = <uint8_t>rest
    return put(writer, encoded, size + 1)


cdef int put_sized(Writer* writer, const uint8_t* data, int64_t size) noexcept nogil:
    return put_long(writer, size) or put(writer, data, size)


cdef int put_decimal(Writer* writer, const uint8_t* data, int64_t size) noexcept nogil:
    """16 little-endian bytes as the fewest big-endian ones, or as `size` of them."""
    cdef uint8_t turned[16]
    cdef int at, error, first = 0
    for at in range(16):
        turned[at] = data[15 - at]
    cdef uint8_t sign = 0xFF if turned[0] & 0x80 else 0
    while first < 15 and turned[first] == sign and not (turned[first + 1] ^ sign) & 0x80:
        first += 1
    if size < 0:
        return put_sized(writer, turned + first, 16 - first)
    if 16 - first > size:
        return TOO_LARGE
    for at in range(size - (16 - first)):
        error = put(writer, &sign, 1)
        if error:
            return error
    return put(writer, turned + first, 16 - first)


cdef int write_scalar(Writer* writer, const Step* step, int64_t row) noexcept nogil:
    cdef const Input* column = &writer.inputs[step.column]
    cdef int64_t at = row + column.offset
    cdef uint8_t bit
    cdef int index
    cdef const uint8_t* text
    cdef int64_t size
    if is_null(column, row):
        return NULL_VALUE
    if step.op == BOOLEAN:
        bit = (column.data[at >> 3] >> (at & 7)) & 1
        return put(writer, &bit, 1)
    if step.op == NUMBER32:
        return put_long(writer, (<const int32_t*>column.data)[at])
    if step.op == NUMBER64:
        return put_long(writer, (<const int64_t*>column.data)[at])
    if step.op == PLAIN or step.op == FIXED:
        return put(writer, column.data + at * column.width, column.width)
    if step.op == DECIMAL:
        return put_decimal(writer, column.data + at * 16, step.number)
    text, size = column.data + column.edges[at], column.edges[at + 1] - column.edges[at]
    if step.op == TEXT:
        return put_sized(writer, text, size)
    for index in range(step.count):
        if writer.blobs[writer.links[step.first + index]].size == size and not memcmp(
            writer.blobs[writer.links[step.first + index]].data, text, size
        ):
            return put_long(writer, index)
    return NO_SYMBOL


cdef int write_items(Writer* writer, const Step* step, int64_t row) noexcept nogil:
    cdef const Input* column = &writer.inputs[step.column]
    cdef int error, part
    cdef int64_t item
    if is_null(column, row):
        return NULL_VALUE
    row += column.offset
    if column.edges[row + 1] > column.edges[row]:
        error = put_long(writer, column.edges[row + 1] - column.edges[row])
        if error:
            return error
        for item in range(column.edges[row], column.edges[row + 1]):
            for part in range(step.count):
                error = write(writer, writer.links[step.first + part], item)
                if error:
                    return error
    return put_long(writer, 0)


cdef int write_members(Writer* writer, const Step* step, int64_t row) noexcept nogil:
    """A union of several types: the first field of a struct that is not null. Links are pairs of a branch and a step."""
    cdef int index, link
    if not is_null(&writer.inputs[step.column], row):
        for index in range(step.first, step.first + step.count, 2):
            link = writer.links[index + 1]
            if not is_null(&writer.inputs[writer.steps[link].column], row):
                return put_long(writer, writer.links[index]) or write(writer, link, row)
    return put_long(writer, step.number) if step.number >= 0 else NULL_VALUE


cdef int write(Writer* writer, int number, int64_t row) noexcept nogil:
    cdef const Step* step = &writer.steps[number]
    cdef int error = 0, part
    cdef const int* links = &writer.links[step.first]
    if step.op == RECORD:
        error = NULL_VALUE if is_null(&writer.inputs[step.column], row) else 0
        for part in range(step.count):
            if error:
                break
            error = write(writer, links[part], row)
    elif step.op == OPTIONAL:
        if is_null(&writer.inputs[step.column], row):
            error = put_long(writer, step.number)
        else:
            error = put_long(writer, links[0]) or write(writer, links[1], row)
    elif step.op == MEMBERS:
        error = write_members(writer, step, row)
    elif step.op == ARRAY or step.op == MAP:
        error = write_items(writer, step, row)
    elif step.op == DEFAULT:
        error = put(writer, writer.blobs[links[0]].data, writer.blobs[links[0]].size)
    elif step.op != NOTHING:
        error = write_scalar(writer, step, row)
    if error and writer.failed < 0:
        writer.failed = number
    return error


cdef class AvroEncoder:
    """Encodes rows by a program; `steps` and `blobs` as those of an AvroProgram."""

    cdef Writer writer
    cdef list blobs

    def __cinit__(self, steps, blobs):
        cdef int index, at = 0
        self.blobs = list(blobs)
        self.writer.steps = <Step*>calloc(len(steps) + 1, sizeof(Step))
        self.writer.links = <int*>calloc(sum(len(links) for _, _, _, links in steps) + 1, sizeof(int))
        self.writer.blobs = <Blob*>calloc(len(blobs) + 1, sizeof(Blob))
        if self.writer.steps == NULL or self.writer.links == NULL or self.writer.blobs == NULL:
            raise MemoryError()
        for index, (op, column, number, links) in enumerate(steps):
            self.writer.steps[index] = Step(op, column, number, at, len(links))
            for link in links:
                self.writer.links[at] = link
                at += 1
        for index, blob in enumerate(self.blobs):
            self.writer.blobs[index] = Blob(<const uint8_t*><const char*>blob, len(blob))

    def __dealloc__(self):
        free(self.writer.steps)
        free(self.writer.links)
        free(self.writer.blobs)
        free(self.writer.memory.data)

    def encode(self, arrays, int64_t count, bytes prefix, null_rows):
        """Encodes rows.

        Args:
            arrays: for each column its array and its width in bytes; None: a column that has no values of its own.
            count: how many rows.
            prefix: what is before each value.
            null_rows: whether a null in the first column is a null, and no value.

        Returns:
            A binary array; or, if a row is none, its number, the number of the step that refused it, and why.
        """
        cdef Columns out = Columns(BINARY_SLOT)
        cdef int64_t row
        cdef int error = 0, index
        cdef bint nulls = null_rows
        cdef const char* begin = prefix
        cdef int64_t begin_size = len(prefix)
        cdef Input* inputs = <Input*>calloc(len(arrays) + 1, sizeof(Input))
        if inputs == NULL:
            raise MemoryError()
        try:
            for index, given in enumerate(arrays):
                if given is not None:
                    inputs[index] = input_of(given[0], given[1])
            self.writer.inputs, self.writer.failed = inputs, -1
            with nogil:
                for row in range(count):
                    if nulls and is_null(&inputs[0], row):
                        error = put_null(out.columns, 0)
                    else:
                        self.writer.size = 0
                        error = put(&self.writer, begin, begin_size) or write(&self.writer, 0, row)
                        if not error:
                            error = put_text(&out.columns[0], self.writer.memory.data, self.writer.size)
                    if error:
                        break
        finally:
            free(inputs)
        if error == NO_MEMORY:
            raise MemoryError()
        if error:
            return row, self.writer.failed, REASONS[error]
        return out.finish()
