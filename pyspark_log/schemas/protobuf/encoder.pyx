# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Encodes Arrow columns as Protobuf messages, by the programs that decode them (program.py).

A field that is null is left out, and so is one without presence that is 0 or empty, as other writers do it.
"""

import pyarrow as pa

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memmove, strlen, strncmp

from pyspark_log.schemas.arrow_columns cimport NO_MEMORY, TOO_MUCH, Columns, put_null, put_text
from pyspark_log.schemas.arrow_input cimport Input, input_of, is_null
from pyspark_log.schemas.protobuf.columns cimport (
    BOOL, BYTES, DOUBLE, DURATION, ENUM, FIXED32, FIXED64, FLOAT, INT32, MESSAGE, SFIXED32, SINT32, SINT64, STRING,
    TIMESTAMP, UINT32, UINT64, Enum, Field, Message, Program, ProtobufProgram, wire_of
)
from pyspark_log.schemas.slots import slot_of
from pyspark_log.storage.record.codecs.memory cimport Memory, has_room

# Why a row is not encoded; beyond those of arrow_columns.pxd.
cdef enum Reason:
    NULL_ITEM = 3
    NO_SYMBOL = 4
    BAD_SIGN = 5

cdef dict REASONS = {
    TOO_MUCH: "the values of a batch have more than 2 GiB",
    NULL_ITEM: "an item of a list or a map is null, which Protobuf has not",
    NO_SYMBOL: "the schema's enum has no such name",
    BAD_SIGN: "a number is below 0, or too large for its type",
}

cdef int64_t MOST_BYTES = 1 << 31
cdef int64_t MICROS = 1000000
cdef object BINARY_SLOT = slot_of(pa.binary())

cdef struct Writer:
    Program* program
    Input* inputs
    Memory memory
    int64_t size
    int failed  # the number of the field that has refused a value


cdef inline int put(Writer* writer, const void* data, int64_t size) noexcept nogil:
    if not has_room(&writer.memory, writer.size + size, MOST_BYTES):
        return NO_MEMORY
    memcpy(writer.memory.data + writer.size, data, size)
    writer.size += size
    return 0


cdef int fill_varint(uint8_t* encoded, uint64_t rest) noexcept nogil:
    cdef int size = 0
    while rest > 0x7F:
        encoded[size] = rest & 0x7F | 0x80
        rest >>= 7
        size += 1
    encoded[size] = <uint8_t>rest
    return size + 1


cdef int put_varint(Writer* writer, uint64_t value) noexcept nogil:
    cdef uint8_t encoded[10]
    return put(writer, encoded, fill_varint(encoded, value))


cdef int put_size(Writer* writer, int64_t begin) noexcept nogil:
    """Puts the size of what was written since `begin` before it."""
    cdef uint8_t encoded[10]
    cdef int64_t size = writer.size - begin
    cdef int room = fill_varint(encoded, size)
    if not has_room(&writer.memory, writer.size + room, MOST_BYTES):
        return NO_MEMORY
    memmove(writer.memory.data + begin + room, writer.memory.data + begin, size)
    memcpy(writer.memory.data + begin, encoded, room)
    writer.size += room
    return 0


cdef int number_of(const Writer* writer, const Field* field, const Input* column, int64_t at, uint64_t* bits) noexcept nogil:
    """The bits of a number as they are written; of a float its own."""
    cdef int kind = field.kind
    cdef int64_t number
    cdef uint32_t four
    if kind == BOOL:
        bits[0] = (column.data[at >> 3] >> (at & 7)) & 1
        return 0
    if kind == UINT64 or kind == FIXED64:
        if (<const uint64_t*>column.data)[2 * at + 1]:
            return BAD_SIGN
        bits[0] = (<const uint64_t*>column.data)[2 * at]
        return 0
    if kind == FLOAT:
        memcpy(&four, column.data + 4 * at, 4)
        bits[0] = four
        return 0
    if kind == INT32 or kind == SFIXED32 or kind == SINT32:
        number = (<const int32_t*>column.data)[at]
    else:
        number = (<const int64_t*>column.data)[at]
    if (kind == UINT32 or kind == FIXED32) and not 0 <= number <= 0xFFFFFFFFU:
        return BAD_SIGN
    bits[0] = <uint64_t>number
    if kind == SINT32 or kind == SINT64:
        bits[0] = (<uint64_t>number << 1) ^ <uint64_t>(number >> 63)
    return 0


cdef int symbol_of(const Enum* names, const Input* column, int64_t at, uint64_t* bits) noexcept nogil:
    cdef const char* text = <const char*>column.data + column.edges[at]
    cdef size_t size = column.edges[at + 1] - column.edges[at]
    cdef int index
    for index in range(names.count):
        if strlen(names.symbols[index].name) == size and not strncmp(names.symbols[index].name, text, size):
            bits[0] = <uint64_t>names.symbols[index].number
            return 0
    return NO_SYMBOL


cdef int put_bits(Writer* writer, int kind, uint64_t bits) noexcept nogil:
    if wire_of(kind) == 0:
        return put_varint(writer, bits)
    return put(writer, &bits, 4 if wire_of(kind) == 5 else 8)


cdef int write_time(Writer* writer, int kind, int64_t micros) noexcept nogil:
    """A Timestamp or Duration: seconds and nanoseconds, each left out if it is 0."""
    cdef int64_t seconds = micros // MICROS, rest = micros % MICROS
    cdef int64_t begin = writer.size
    cdef int error = 0
    if rest < 0 and kind == TIMESTAMP:
        seconds, rest = seconds - 1, rest + MICROS
    if seconds:
        error = put_varint(writer, 8) or put_varint(writer, <uint64_t>seconds)
    if rest and not error:
        error = put_varint(writer, 16) or put_varint(writer, <uint64_t>(rest * 1000))
    return error or put_size(writer, begin)


cdef int write_sized(Writer* writer, const Field* field, int column, int64_t row) noexcept nogil:
    """A text, a message or a time, with its size before it."""
    cdef const Input* given = &writer.inputs[column]
    cdef int64_t at = row + given.offset, begin = writer.size
    cdef int error
    if field.kind == MESSAGE:
        error = write_message(writer, field.message, row)
        return error or put_size(writer, begin)
    if field.kind >= TIMESTAMP:
        return write_time(writer, field.kind, (<const int64_t*>given.data)[at])
    error = put_varint(writer, given.edges[at + 1] - given.edges[at])
    return error or put(writer, given.data + given.edges[at], given.edges[at + 1] - given.edges[at])


cdef int write_repeated(Writer* writer, const Field* field, int64_t row) noexcept nogil:
    cdef const Input* column = &writer.inputs[field.column]
    cdef const Input* items = &writer.inputs[field.column + 1]
    cdef int64_t item, begin
    cdef uint64_t bits = 0
    cdef int error
    row += column.offset
    if column.edges[row + 1] == column.edges[row]:
        return 0
    if field.kind > DOUBLE:
        for item in range(column.edges[row], column.edges[row + 1]):
            if is_null(items, item):
                return NULL_ITEM
            error = put_varint(writer, field.number << 3 | 2) or write_sized(writer, field, field.column + 1, item)
            if error:
                return error
        return 0
    error = put_varint(writer, field.number << 3 | 2)
    begin = writer.size
    for item in range(column.edges[row], column.edges[row + 1]):
        if error:
            return error
        if is_null(items, item):
            return NULL_ITEM
        if field.kind == ENUM:
            error = symbol_of(&writer.program.enums[field.symbols], items, item + items.offset, &bits)
        else:
            error = number_of(writer, field, items, item + items.offset, &bits)
        error = error or put_bits(writer, field.kind, bits)
    return error or put_size(writer, begin)


cdef int write_field(Writer* writer, const Field* field, int64_t row) noexcept nogil:
    cdef const Input* column = &writer.inputs[field.column]
    cdef int64_t at = row + column.offset
    cdef uint64_t bits = 0
    cdef int error
    if field.repeated:
        return write_repeated(writer, field, row)
    if field.kind > DOUBLE:
        if not field.presence and (field.kind == STRING or field.kind == BYTES) and (
            column.edges[at + 1] == column.edges[at]
        ):
            return 0
        return put_varint(writer, field.number << 3 | 2) or write_sized(writer, field, field.column, row)
    if field.kind == ENUM:
        error = symbol_of(&writer.program.enums[field.symbols], column, at, &bits)
    else:
        error = number_of(writer, field, column, at, &bits)
    if error or (not field.presence and not bits):
        return error
    return put_varint(writer, field.number << 3 | wire_of(field.kind)) or put_bits(writer, field.kind, bits)


cdef int write_message(Writer* writer, int number, int64_t row) noexcept nogil:
    cdef const Message* message = &writer.program.messages[number]
    cdef const Field* field
    cdef int index, error
    for index in range(message.first, message.first + message.count):
        field = &writer.program.fields[index]
        if is_null(&writer.inputs[field.column], row):
            continue
        error = write_field(writer, field, row)
        if error:
            if writer.failed < 0:
                writer.failed = index
            return error
    return 0


def encode(ProtobufProgram program, arrays, int64_t count, bytes prefix):
    """Encodes rows; a null in the first column is null.

    Args:
        program: the messages.
        arrays: for each column its array and its width in bytes; None: a column that has no values of its own.
        count: how many rows.
        prefix: what is before each value.

    Returns:
        A binary array; or, if a row is none, its number, the place of the field that refused it, and why.
    """
    cdef Columns out = Columns(BINARY_SLOT)
    cdef Writer writer
    cdef int64_t row
    cdef int error = 0, index
    cdef const char* begin = prefix
    cdef int64_t begin_size = len(prefix)
    writer.memory.data, writer.memory.room, writer.failed = NULL, 0, -1
    writer.program = &program.program
    writer.inputs = <Input*>calloc(len(arrays) + 1, sizeof(Input))
    if writer.inputs == NULL:
        raise MemoryError()
    try:
        for index, given in enumerate(arrays):
            if given is not None:
                writer.inputs[index] = input_of(given[0], given[1])
        with nogil:
            for row in range(count):
                if is_null(&writer.inputs[0], row):
                    error = put_null(out.columns, 0)
                else:
                    writer.size = 0
                    error = put(&writer, begin, begin_size) or write_message(&writer, 0, row)
                    if not error:
                        error = put_text(&out.columns[0], writer.memory.data, writer.size)
                if error:
                    break
    finally:
        free(writer.inputs)
        free(writer.memory.data)
    if error == NO_MEMORY:
        raise MemoryError()
    if error:
        return row, writer.failed, REASONS[error]
    return out.finish()
