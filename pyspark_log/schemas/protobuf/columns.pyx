# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Decodes Protobuf messages straight into Arrow columns.

A program (program.py) has the fields of each message, and which column gets each. Fields that it lacks are
skipped. Of a field that is there several times the last one counts. Any bytes give a message or a reason why they are
none; what is none leaves nothing in the columns but a null.

https://protobuf.dev/programming-guides/encoding/
"""

import pyarrow as pa

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, strlen

from pyspark_log.schemas.arrow_columns cimport (
    NO_MEMORY, TOO_MUCH, Column, Columns, is_utf8, put_bit, put_fixed, put_list, put_null, put_struct, put_text, truncate
)

# Why bytes are no message; beyond those of arrow_columns.pxd.
cdef enum Reason:
    TOO_SHORT = 3
    BAD_LENGTH = 4
    BAD_NUMBER = 5
    BAD_TEXT = 6
    BAD_WIRE = 7
    TWICE = 8
    BAD_TIME = 9
    TOO_DEEP = 10
    OTHER_MESSAGE = 11

cdef object BINARY = pa.binary()
cdef object ARROW_INT32 = pa.int32()

cdef dict REASONS = {
    TOO_MUCH: "a column of a batch would have more than 2 GiB",
    TOO_SHORT: "it ends too early",
    BAD_LENGTH: "a length is beyond its end",
    BAD_NUMBER: "a number has more than 64 bits",
    BAD_TEXT: "a text is not UTF-8",
    BAD_WIRE: "a field has a wire type that there is not, or the number 0",
    TWICE: "a message within it is there twice",
    BAD_TIME: "a Timestamp is not between the years 1 and 9999, or a Duration is too long",
    TOO_DEEP: "groups are nested too deep",
    OTHER_MESSAGE: "it is another message of its schema's file",
}

cdef enum:
    MOST_GROUPS = 100
    MICROS = 1000000
    NANOS = 1000000000

# Of a Timestamp: the years 1 to 9999; and the longest Duration (google/protobuf/timestamp.proto, duration.proto).
cdef int64_t FIRST_SECOND = -62_135_596_800
cdef int64_t LAST_SECOND = 253_402_300_799
cdef int64_t MOST_SECONDS = 315_576_000_000

cdef struct Cursor:
    const uint8_t* at
    const uint8_t* end

cdef inline int read_varint(Cursor* cursor, uint64_t* value) noexcept nogil:
    cdef uint64_t number = 0
    cdef int shift = 0
    cdef uint8_t byte
    while cursor.at < cursor.end:
        byte = cursor.at[0]
        cursor.at += 1
        number |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            value[0] = number
            return 0
        shift += 7
        if shift > 63:
            return BAD_NUMBER
    return TOO_SHORT


cdef inline int64_t zigzag(uint64_t number) noexcept nogil:
    return <int64_t>(number >> 1) ^ -<int64_t>(number & 1)


cdef int read_raw(Cursor* cursor, int wire, uint64_t* bits, const uint8_t** data, int64_t* size) noexcept nogil:
    """The value of a field, of any wire type but that of a group."""
    cdef uint64_t length
    cdef int error
    cdef uint32_t four
    if wire == VARINT:
        return read_varint(cursor, bits)
    if wire == SIZED:
        error = read_varint(cursor, &length)
        if error:
            return error
        if length > <uint64_t>(cursor.end - cursor.at):
            return BAD_LENGTH
        data[0], size[0] = cursor.at, <int64_t>length
        cursor.at += length
        return 0
    if wire != FOUR and wire != EIGHT:
        return BAD_WIRE
    if cursor.end - cursor.at < (4 if wire == FOUR else 8):
        return TOO_SHORT
    if wire == FOUR:
        memcpy(&four, cursor.at, 4)
        bits[0] = four
        cursor.at += 4
    else:
        memcpy(bits, cursor.at, 8)
        cursor.at += 8
    return 0


cdef int skip(Cursor* cursor, uint64_t tag) noexcept nogil:
    """A field that no column gets; a group with all that is in it."""
    cdef uint64_t open_groups[MOST_GROUPS]
    cdef uint64_t bits
    cdef const uint8_t* data
    cdef int64_t size
    cdef int depth = 0, error, wire
    while True:
        wire = tag & 7
        if wire == GROUP:
            if depth == MOST_GROUPS:
                return TOO_DEEP
            open_groups[depth] = tag >> 3
            depth += 1
        elif wire == END_GROUP:
            if not depth or open_groups[depth - 1] != tag >> 3:
                return BAD_WIRE
            depth -= 1
        else:
            error = read_raw(cursor, wire, &bits, &data, &size)
            if error:
                return error
        if not depth:
            return 0
        error = read_varint(cursor, &tag)
        if error:
            return error


cdef int put_number(const Field* field, Column* column, uint64_t bits) noexcept nogil:
    cdef int32_t small
    cdef int64_t number
    cdef uint64_t halves[2]
    cdef int kind = field.kind
    if kind == BOOL:
        return put_bit(column, bits != 0)
    if kind == INT32 or kind == SFIXED32 or kind == SINT32:
        small = <int32_t>zigzag(bits & 0xFFFFFFFFU) if kind == SINT32 else <int32_t>bits
        return put_fixed(column, &small, 4)
    if kind == UINT32 or kind == FIXED32:
        number = <int64_t>(bits & 0xFFFFFFFFU)
        return put_fixed(column, &number, 8)
    if kind == UINT64 or kind == FIXED64:
        halves[0], halves[1] = bits, 0
        return put_fixed(column, halves, 16)
    if kind == FLOAT:
        return put_fixed(column, &bits, 4)
    number = zigzag(bits) if kind == SINT64 else <int64_t>bits
    return put_fixed(column, &number, 8)


cdef int put_symbol(const Enum* names, Column* column, uint64_t bits) noexcept nogil:
    """The name of an enum's number; a number without one as text."""
    cdef char digits[16]
    cdef int index
    cdef int32_t number = <int32_t>bits
    for index in range(names.count):
        if names.symbols[index].number == number:
            return put_text(
                column, <const uint8_t*>names.symbols[index].name, <int64_t>strlen(names.symbols[index].name)
            )
    snprintf(digits, 16, "%d", number)
    return put_text(column, <const uint8_t*>digits, <int64_t>strlen(digits))


cdef int put_time(Column* column, int kind, const uint8_t* data, int64_t size) noexcept nogil:
    """A Timestamp or Duration in microseconds: field 1 has seconds, field 2 nanoseconds."""
    cdef Cursor cursor
    cdef uint64_t tag, bits
    cdef int64_t seconds = 0, nanos = 0
    cdef int error
    cursor.at, cursor.end = data, data + size
    while cursor.at < cursor.end:
        error = read_varint(&cursor, &tag)
        if error:
            return error
        if tag != 8 and tag != 16:
            error = skip(&cursor, tag) if tag >> 3 else BAD_WIRE
        else:
            error = read_varint(&cursor, &bits)
            if tag == 8:
                seconds = <int64_t>bits
            else:
                nanos = <int32_t>bits
        if error:
            return error
    if not FIRST_SECOND <= seconds <= LAST_SECOND and kind == TIMESTAMP:
        return BAD_TIME
    if not -MOST_SECONDS <= seconds <= MOST_SECONDS or not -NANOS < nanos < NANOS:
        return BAD_TIME
    # Down to the microsecond, also before 1970; but a duration towards zero.
    seconds = seconds * MICROS + (nanos - 999 if nanos < 0 and kind == TIMESTAMP else nanos) // 1000
    return put_fixed(column, &seconds, 8)


cdef int put_value(
    Program* program, const Field* field, int number, uint64_t bits, const uint8_t* data, int64_t size
) noexcept nogil:
    """One value of a field into column `number`."""
    cdef Column* column = &program.columns[number]
    if field.kind == ENUM:
        return put_symbol(&program.enums[field.symbols], column, bits)
    if field.kind <= DOUBLE:
        return put_number(field, column, bits)
    if field.kind == MESSAGE:
        return read_message(program, field.message, data, size)
    if field.kind >= TIMESTAMP:
        return put_time(column, field.kind, data, size)
    if field.kind == STRING and not is_utf8(data, size):
        return BAD_TEXT
    return put_text(column, data, size)


cdef int read_repeated(Program* program, const Field* field, Cursor* cursor, int wire) noexcept nogil:
    """A value of a repeated field; or several, packed. The child of its column gets them."""
    cdef uint64_t bits = 0
    cdef const uint8_t* data = NULL
    cdef int64_t size = 0
    cdef Cursor packed
    cdef int error = read_raw(cursor, wire, &bits, &data, &size)
    if error or wire == wire_of(field.kind):
        return error or put_value(program, field, field.column + 1, bits, data, size)
    packed.at, packed.end = data, data + size
    while packed.at < packed.end:
        error = read_raw(&packed, wire_of(field.kind), &bits, &data, &size)
        if error:
            return error
        error = put_value(program, field, field.column + 1, bits, NULL, 0)
        if error:
            return error
    return 0


cdef int read_field(Program* program, Message* message, Field* field, Cursor* cursor, int wire) noexcept nogil:
    cdef int index
    if field.repeated:
        return read_repeated(program, field, cursor, wire)
    if field.seen and field.kind >= MESSAGE:
        return TWICE
    if field.oneof >= 0:
        for index in range(message.first, message.first + message.count):
            if program.fields[index].oneof == field.oneof:
                program.fields[index].seen = False
    field.seen = True
    return read_raw(cursor, wire, &field.bits, &field.data, &field.size)


cdef int put_fields(Program* program, Message* message) noexcept nogil:
    """What was found, once all of a message is read."""
    cdef int index, error
    cdef Field* field
    for index in range(message.first, message.first + message.count):
        field = &program.fields[index]
        if field.repeated:
            error = put_list(program.columns, field.column)
        elif field.seen:
            field.seen = False
            error = put_value(program, field, field.column, field.bits, field.data, field.size)
        elif field.presence:
            error = put_null(program.columns, field.column)
        else:
            error = put_value(program, field, field.column, 0, NULL, 0)
        if error:
            return error
    return put_struct(&program.columns[message.column])


cdef int read_message(Program* program, int number, const uint8_t* data, int64_t size) noexcept nogil:
    cdef Message* message = &program.messages[number]
    cdef Cursor cursor
    cdef uint64_t tag
    cdef Field* field
    cdef int error, index, tried, next_one = 0
    for index in range(message.first, message.first + message.count):
        program.fields[index].seen = False
    cursor.at, cursor.end = data, data + size
    while cursor.at < cursor.end:
        error = read_varint(&cursor, &tag)
        if error:
            return error
        if not tag >> 3 or tag >> 3 > 0x1FFFFFFF:
            return BAD_WIRE
        # Most writers have the fields in order.
        index = next_one
        field = NULL
        for tried in range(message.count):
            if index >= message.count:
                index = 0
            if program.fields[message.first + index].number == <int>(tag >> 3):
                field = &program.fields[message.first + index]
                next_one = index if field.repeated else index + 1
                break
            index += 1
        if field != NULL and (
            wire_of(field.kind) == <int>(tag & 7) or (field.repeated and tag & 7 == SIZED and field.kind <= DOUBLE)
        ):
            error = read_field(program, message, field, &cursor, tag & 7)
        else:
            if field == NULL:
                program.unknown = <int>(tag >> 3)
            error = skip(&cursor, tag)
        if error:
            return error
    return put_fields(program, message)


cdef void note_unknown(Program* program) noexcept nogil:
    """Counts a value that has a field which no column gets."""
    cdef int index
    program.left_out += 1
    for index in range(MOST_UNKNOWN):
        if program.unknowns[index] == 0:
            program.unknowns[index] = program.unknown
        if program.unknowns[index] == program.unknown:
            return


cdef class ProtobufProgram:
    """The fields of messages, and their columns; the first message is the value.

    `messages`: pairs of a column and its fields, which are tuples of the attributes of Field up to `symbols`.
    `enums`: dicts of number and name.
    """

    def __cinit__(self, messages, enums):
        cdef int at = 0, index, count
        self.names = []
        self.number = len(enums)
        self.program.messages = <Message*>calloc(len(messages) + 1, sizeof(Message))
        self.program.fields = <Field*>calloc(sum(len(fields) for _, fields in messages) + 1, sizeof(Field))
        self.program.enums = <Enum*>calloc(len(enums) + 1, sizeof(Enum))
        if self.program.messages == NULL or self.program.fields == NULL or self.program.enums == NULL:
            raise MemoryError()
        for index, (column, fields) in enumerate(messages):
            self.program.messages[index] = Message(at, len(fields), column)
            for number, kind, place, message, oneof, repeated, presence, symbols in fields:
                self.program.fields[at] = Field(
                    number, kind, place, message, oneof, repeated, presence, symbols, False, 0, NULL, 0
                )
                at += 1
        for index, symbols in enumerate(enums):
            self.program.enums[index].symbols = <Symbol*>calloc(len(symbols) + 1, sizeof(Symbol))
            if self.program.enums[index].symbols == NULL:
                raise MemoryError()
            count = 0
            for number, name in symbols.items():
                encoded = name.encode()
                self.names.append(encoded)
                self.program.enums[index].symbols[count] = Symbol(number, <const char*>encoded)
                count += 1
            self.program.enums[index].count = count

    def left_out(self):
        """How many values so far had fields that no message of the program has, and the numbers of such fields."""
        return self.program.left_out, tuple(number for number in self.program.unknowns if number)

    def __dealloc__(self):
        cdef int index
        free(self.program.messages)
        free(self.program.fields)
        if self.program.enums != NULL:
            for index in range(self.number):
                free(self.program.enums[index].symbols)
        free(self.program.enums)


cdef int read_place(Cursor* cursor, const int64_t* place, int64_t depth) noexcept nogil:
    """The place of the message in its file, after Confluent's five bytes: how many numbers, and these; 0: the first."""
    cdef uint64_t number
    cdef int64_t index
    cdef int error = read_varint(cursor, &number)
    if error:
        return error
    if number == 0:
        return 0 if depth == 1 and place[0] == 0 else OTHER_MESSAGE
    if zigzag(number) != depth:
        return OTHER_MESSAGE
    for index in range(depth):
        error = read_varint(cursor, &number)
        if error:
            return error
        if zigzag(number) != place[index]:
            return OTHER_MESSAGE
    return 0


def decode(values, Py_ssize_t prefix, which, ProtobufProgram program, place, slot):
    """Decodes values into an array, in their order.

    Args:
        values: a binary array; a null stays null.
        prefix: bytes before each value that are no part of it; no value is shorter.
        which: an int32 array: a value with a number below 0 is not decoded, but becomes null. None: all are.
        program: the messages.
        place: the numbers that each value has after its prefix, at most eight; empty: it has none.
        slot: the columns.

    Returns:
        The array, and pairs of a row and why its value is none.
    """
    if values.type != BINARY or (which is not None and (which.type != ARROW_INT32 or len(which) < len(values))):
        raise TypeError(f"expected binary values and int32 numbers, got {values.type}")
    cdef Columns columns = Columns(slot)
    cdef int64_t row, count = len(values), begin = values.offset, depth = len(place)
    cdef int64_t numbers_in_place[8]
    cdef Cursor cursor
    cdef int error
    cdef list bad = []
    for index, number in enumerate(place):
        numbers_in_place[<int>index] = number
    valid, edge_buffer, data_buffer = values.buffers()
    cdef const int32_t* edges = <const int32_t*><uintptr_t>(edge_buffer.address if edge_buffer else 0)
    cdef const uint8_t* data = <const uint8_t*><uintptr_t>(data_buffer.address if data_buffer else 0)
    cdef const uint8_t* bits = <const uint8_t*><uintptr_t>(valid.address if valid else 0)
    cdef const int32_t* numbers = NULL
    if which is not None and count:
        numbers = <const int32_t*><uintptr_t>which.buffers()[1].address + <int64_t>which.offset
    program.program.columns = columns.columns
    row = 0
    with nogil:
        while row < count:
            if (bits != NULL and not bits[(begin + row) >> 3] & (1 << ((begin + row) & 7))) or (
                numbers != NULL and numbers[row] < 0
            ):
                error = put_null(columns.columns, 0)
            else:
                cursor.at = data + edges[begin + row] + prefix
                cursor.end = data + edges[begin + row + 1]
                program.program.unknown = 0
                error = read_place(&cursor, numbers_in_place, depth) if depth else 0
                if not error:
                    error = read_message(&program.program, 0, cursor.at, cursor.end - cursor.at)
                    if program.program.unknown and not error:
                        note_unknown(&program.program)
                if error and error != NO_MEMORY:
                    truncate(columns.columns, 0, row)
                    if put_null(columns.columns, 0):
                        error = NO_MEMORY
            if error:
                with gil:
                    if error == NO_MEMORY:
                        raise MemoryError()
                    bad.append((row, REASONS[error]))
            row += 1
    return columns.finish(), bad
