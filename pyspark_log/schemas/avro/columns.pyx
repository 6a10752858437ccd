# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Decodes Avro values straight into Arrow columns.

A program (resolution.py) says for each part of a value, in the order in which its writer has it, how it is stored
and which column gets it. Any bytes give a value or a reason why they are none; a value that is none leaves nothing in
the columns but a null.
"""

import pyarrow as pa

from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MIN, int32_t, int64_t, uint8_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from pyspark_log.schemas.arrow_columns cimport (
    NO_MEMORY, TOO_MUCH, Column, Columns, is_utf8, put_bit, put_fixed, put_list, put_null, put_struct, put_text, truncate
)

# What a step of a program does; resolution.py has the same numbers.
cdef enum Op:
    NULL_OP = 0
    BOOLEAN = 1
    INT = 2
    LONG = 3
    LONG_TO_FLOAT = 4
    LONG_TO_DOUBLE = 5
    FLOAT = 6
    FLOAT_TO_DOUBLE = 7
    DOUBLE = 8
    BYTES = 9
    STRING = 10
    FIXED_OP = 11
    FIXED_TO_BYTES = 12
    DECIMAL = 13
    ENUM = 14
    ARRAY = 15
    MAP = 16
    RECORD = 17
    UNION = 18
    MEMBER = 19
    DEFAULT = 20
    REFUSED = 21

# Why bytes are no value; beyond those of arrow_columns.pxd.
cdef enum Reason:
    TOO_SHORT = 3
    BAD_LENGTH = 4
    BAD_NUMBER = 5
    BAD_TEXT = 6
    BAD_BRANCH = 7
    BAD_SYMBOL = 8
    BAD_BOOLEAN = 9
    BAD_DECIMAL = 10
    LEFT_OVER = 11
    TOO_DEEP = 12
    NOT_RESOLVED = 13

cdef object BINARY = pa.binary()
cdef object ARROW_INT32 = pa.int32()

cdef dict REASONS = {
    TOO_MUCH: "a column of a batch would have more than 2 GiB",
    TOO_SHORT: "it ends too early",
    BAD_LENGTH: "a length is below 0, or beyond its end",
    BAD_NUMBER: "a number is too large for its type",
    BAD_TEXT: "a text is not UTF-8",
    BAD_BRANCH: "a union has no branch of that number",
    BAD_SYMBOL: "the reader's enum has no such symbol",
    BAD_BOOLEAN: "a boolean is neither 0 nor 1",
    BAD_DECIMAL: "a decimal has more digits than its precision",
    LEFT_OVER: "bytes are left after it",
    TOO_DEEP: "it is nested too deep",
    NOT_RESOLVED: "the writer's type does not fit the reader's",
}

cdef enum:
    # Of a part that no column gets: others have the depth of the reader's schema, which does not hold itself.
    MOST_DEPTH = 200
    DECIMAL_BYTES = 16

cdef struct Node:
    int op
    int column  # -1: it is read, and no column gets it
    # Bytes of a fixed; digits of a decimal; 1 of a number that the writer has as an int; the column of a member.
    int64_t number
    int first  # in `links`; of a decimal the bytes of its fixed, or -1
    int count

cdef struct Blob:
    const uint8_t* data
    int64_t size

cdef struct Program:
    Node* nodes
    int* links
    Blob* blobs

cdef struct Cursor:
    const uint8_t* at
    const uint8_t* end
    const Program* program
    Column* columns
    int depth


cdef inline int read_long(Cursor* cursor, int64_t* value) noexcept nogil:
    cdef uint64_t found = 0
    cdef int shift = 0
    cdef uint8_t byte
    while cursor.at < cursor.end:
        byte = cursor.at[0]
        cursor.at += 1
        if shift == 63 and byte > 1:
            return BAD_NUMBER
        found |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            value[0] = <int64_t>(found >> 1) ^ -<int64_t>(found & 1)
            return 0
        shift += 7
        if shift > 63:
            return BAD_NUMBER
    return TOO_SHORT


cdef inline int read_int(Cursor* cursor, int64_t* value) noexcept nogil:
    cdef int error = read_long(cursor, value)
    if not error and not INT32_MIN <= value[0] <= INT32_MAX:
        return BAD_NUMBER
    return error


cdef inline int read_size(Cursor* cursor, int64_t* size) noexcept nogil:
    cdef int error = read_long(cursor, size)
    if not error and not 0 <= size[0] <= cursor.end - cursor.at:
        return BAD_LENGTH
    return error


cdef int read_number(const Node* node, Cursor* cursor) noexcept nogil:
    cdef int64_t number
    cdef int32_t small
    cdef float single
    cdef double twice
    cdef int error
    cdef Column* column = &cursor.columns[node.column]
    error = read_int(cursor, &number) if node.number else read_long(cursor, &number)
    if error or node.column < 0:
        return error
    if node.op == INT:
        small = <int32_t>number
        return put_fixed(column, &small, 4)
    if node.op == LONG_TO_FLOAT:
        single = <float>number
        return put_fixed(column, &single, 4)
    if node.op == LONG_TO_DOUBLE:
        twice = <double>number
        return put_fixed(column, &twice, 8)
    return put_fixed(column, &number, 8)


cdef int read_floating(const Node* node, Cursor* cursor) noexcept nogil:
    cdef int size = 8 if node.op == DOUBLE else 4
    cdef float single
    cdef double twice
    if cursor.end - cursor.at < size:
        return TOO_SHORT
    cdef const uint8_t* at = cursor.at
    cursor.at += size
    if node.column < 0:
        return 0
    if node.op == FLOAT_TO_DOUBLE:
        memcpy(&single, at, 4)
        twice = single
        return put_fixed(&cursor.columns[node.column], &twice, 8)
    return put_fixed(&cursor.columns[node.column], at, size)


cdef int put_decimal(Column* column, const uint8_t* data, int64_t size, int digits) noexcept nogil:
    """A number in big-endian bytes as 16 little-endian ones."""
    cdef uint8_t sign = 0xFF if size and data[0] & 0x80 else 0
    cdef uint8_t turned[DECIMAL_BYTES]
    cdef uint64_t halves[2]
    cdef uint64_t limit[2]
    cdef uint64_t low, carry
    cdef int64_t place
    memset(turned, sign, DECIMAL_BYTES)
    for place in range(size):
        if place < DECIMAL_BYTES:
            turned[place] = data[size - 1 - place]
        elif data[size - 1 - place] != sign:
            return BAD_DECIMAL
    if (turned[DECIMAL_BYTES - 1] ^ sign) & 0x80:
        return BAD_DECIMAL
    memcpy(halves, turned, DECIMAL_BYTES)
    if sign:  # its absolute value
        halves[0], halves[1] = ~halves[0] + 1, ~halves[1] + (1 if halves[0] == 0 else 0)
    limit[0], limit[1] = 1, 0
    for _ in range(digits):
        low = limit[0] & 0xFFFFFFFFU
        carry = low * 10
        low = (limit[0] >> 32) * 10 + (carry >> 32)
        limit[0] = low << 32 | carry & 0xFFFFFFFFU
        limit[1] = limit[1] * 10 + (low >> 32)
    if halves[1] > limit[1] or (halves[1] == limit[1] and halves[0] >= limit[0]):
        return BAD_DECIMAL
    return put_fixed(column, turned, DECIMAL_BYTES)


cdef int read_bytes(const Node* node, Cursor* cursor) noexcept nogil:
    cdef int64_t size = node.number
    cdef int error
    if node.op == DECIMAL:
        size = node.first  # of a fixed; -1: it has its size before it
    if node.op == BYTES or node.op == STRING or (node.op == DECIMAL and size < 0):
        error = read_size(cursor, &size)
        if error:
            return error
    elif cursor.end - cursor.at < size:
        return TOO_SHORT
    cdef const uint8_t* data = cursor.at
    cursor.at += size
    if node.op == STRING and not is_utf8(data, size):
        return BAD_TEXT
    if node.column < 0:
        return 0
    if node.op == FIXED_OP:
        return put_fixed(&cursor.columns[node.column], data, <int>size)
    if node.op == DECIMAL:
        return put_decimal(&cursor.columns[node.column], data, size, <int>node.number)
    return put_text(&cursor.columns[node.column], data, size)


cdef int read_enum(const Node* node, Cursor* cursor) noexcept nogil:
    cdef int64_t index
    cdef int error = read_int(cursor, &index)
    if error:
        return error
    if not 0 <= index < node.count:
        return BAD_SYMBOL
    if node.column < 0:
        return 0
    cdef int blob = cursor.program.links[node.first + index]
    if blob < 0:
        return BAD_SYMBOL
    cdef const Blob* symbol = &cursor.program.blobs[blob]
    return put_text(&cursor.columns[node.column], symbol.data, symbol.size)


cdef int read_items(const Node* node, Cursor* cursor) noexcept nogil:
    """An array or a map: blocks of items, each block with their number before it, until one has none."""
    cdef int64_t number, size
    cdef const int* links = &cursor.program.links[node.first]
    cdef int error, part
    while True:
        error = read_long(cursor, &number)
        if error:
            return error
        if number == 0:
            return put_list(cursor.columns, node.column) if node.column >= 0 else 0
        if number < 0:
            if number == INT64_MIN:
                return BAD_LENGTH
            number = -number
            error = read_size(cursor, &size)
            if error:
                return error
        # No item takes no bytes (resolution.py).
        if number > cursor.end - cursor.at:
            return BAD_LENGTH
        while number:
            number -= 1
            for part in range(node.count):
                error = read(&cursor.program.nodes[links[part]], cursor)
                if error:
                    return error
            if node.op == MAP and node.column >= 0:
                error = put_struct(&cursor.columns[node.column + 1])
                if error:
                    return error


cdef int read_default(const Node* node, Cursor* cursor) noexcept nogil:
    """A field that the writer has not: its default, encoded as the reader would write it."""
    cdef const uint8_t* at = cursor.at
    cdef const uint8_t* end = cursor.end
    cdef const int* links = &cursor.program.links[node.first]
    cdef const Blob* blob = &cursor.program.blobs[links[1]]
    cursor.at, cursor.end = blob.data, blob.data + blob.size
    cdef int error = read(&cursor.program.nodes[links[0]], cursor)
    cursor.at, cursor.end = at, end
    return error


cdef int read_member(const Node* node, Cursor* cursor) noexcept nogil:
    """A value of a union that is a struct with a field for each type: the others are null."""
    cdef int error, child = node.column + 1
    while child < cursor.columns[node.column].after:
        if child == node.number:
            error = read(&cursor.program.nodes[cursor.program.links[node.first]], cursor)
        else:
            error = put_null(cursor.columns, child)
        if error:
            return error
        child = cursor.columns[child].after
    return put_struct(&cursor.columns[node.column])


cdef int read_union(const Node* node, Cursor* cursor) noexcept nogil:
    cdef int64_t branch
    cdef int error = read_long(cursor, &branch)
    if error:
        return error
    if not 0 <= branch < node.count:
        return BAD_BRANCH
    return read(&cursor.program.nodes[cursor.program.links[node.first + branch]], cursor)


cdef int read_record(const Node* node, Cursor* cursor) noexcept nogil:
    cdef const int* links = &cursor.program.links[node.first]
    cdef int error, part
    if cursor.depth == MOST_DEPTH:
        return TOO_DEEP
    cursor.depth += 1
    for part in range(node.count):
        error = read(&cursor.program.nodes[links[part]], cursor)
        if error:
            return error
    cursor.depth -= 1
    return put_struct(&cursor.columns[node.column]) if node.column >= 0 else 0


cdef int read_boolean(const Node* node, Cursor* cursor) noexcept nogil:
    if cursor.at == cursor.end:
        return TOO_SHORT
    cdef uint8_t byte = cursor.at[0]
    cursor.at += 1
    if byte > 1:
        return BAD_BOOLEAN
    return put_bit(&cursor.columns[node.column], byte) if node.column >= 0 else 0


cdef int read(const Node* node, Cursor* cursor) noexcept nogil:
    cdef int op = node.op
    if op == NULL_OP:
        return put_null(cursor.columns, node.column) if node.column >= 0 else 0
    if INT <= op <= LONG_TO_DOUBLE:
        return read_number(node, cursor)
    if FLOAT <= op <= DOUBLE:
        return read_floating(node, cursor)
    if BYTES <= op <= DECIMAL:
        return read_bytes(node, cursor)
    if op == UNION:
        return read_union(node, cursor)
    if op == RECORD:
        return read_record(node, cursor)
    if op == BOOLEAN:
        return read_boolean(node, cursor)
    if op == ENUM:
        return read_enum(node, cursor)
    if op == ARRAY or op == MAP:
        return read_items(node, cursor)
    if op == MEMBER:
        return read_member(node, cursor)
    if op == DEFAULT:
        return read_default(node, cursor)
    return NOT_RESOLVED


cdef class AvroProgram:
    """How values of one writer's schema are read into one reader's columns; made once, used for any number of batches.

    `nodes`: tuples of an op, a column, a number, and links, which are numbers of nodes or of blobs; the first is the
    value's own. `blobs`: symbols of enums, and defaults.
    """

    cdef Program program
    cdef list blobs

    def __cinit__(self, nodes, blobs):
        cdef int index, at = 0
        self.blobs = list(blobs)
        self.program.nodes = <Node*>calloc(len(nodes) + 1, sizeof(Node))
        self.program.links = <int*>calloc(sum(len(links) for _, _, _, links in nodes) + 1, sizeof(int))
        self.program.blobs = <Blob*>calloc(len(blobs) + 1, sizeof(Blob))
        if self.program.nodes == NULL or self.program.links == NULL or self.program.blobs == NULL:
            raise MemoryError()
        for index, (op, column, number, links) in enumerate(nodes):
            # A decimal's one link is its size.
            first = links[0] if op == DECIMAL else at
            self.program.nodes[index] = Node(op, column, number, first, len(links))
            for link in links:
                self.program.links[at] = link
                at += 1
        for index, blob in enumerate(self.blobs):
            self.program.blobs[index] = Blob(<const uint8_t*><const char*>blob, len(blob))

    def __dealloc__(self):
        free(self.program.nodes)
        free(self.program.links)
        free(self.program.blobs)


cdef int read_value(Columns columns, Cursor* cursor) noexcept nogil:
    """One value as the next row; what is none becomes a null."""
    cdef int64_t row = columns.columns[0].count
    cursor.columns, cursor.depth = columns.columns, 0
    cdef int error = read(&cursor.program.nodes[0], cursor)
    if not error and cursor.at < cursor.end:
        error = LEFT_OVER
    if error and error != NO_MEMORY:
        truncate(columns.columns, 0, row)
        if put_null(columns.columns, 0):
            return NO_MEMORY
    return error


def decode(values, Py_ssize_t prefix, programs, which, slot):
    """Decodes values into an array, in their order.

    Args:
        values: a binary array; a null stays null.
        prefix: bytes before each value that are no part of it; no value is shorter.
        programs: the programs, one for each writer's schema.
        which: an int32 array: the number of each value's program; -1: the value is not decoded, but becomes null. None:
            the first one is for all.
        slot: the columns.

    Returns:
        The array, and pairs of a row and why its value is none.
    """
    if values.type != BINARY or (which is not None and (which.type != ARROW_INT32 or len(which) < len(values))):
        raise TypeError(f"expected binary values and int32 numbers, got {values.type}")
    cdef Columns columns = Columns(slot)
    cdef int64_t row, count = len(values)
    cdef Cursor cursor
    cdef int error
    cdef list bad = []
    cdef const int32_t* edges
    cdef const int32_t* numbers
    cdef const uint8_t* data
    cdef const uint8_t* bits
    cdef int64_t begin = values.offset
    cdef const Program** known = <const Program**>calloc(len(programs) + 1, sizeof(Program*))
    if known == NULL:
        raise MemoryError()
    try:
        for index, program in enumerate(programs):
            known[<int>index] = &(<AvroProgram>program).program
        valid, edge_buffer, data_buffer = values.buffers()
        edges = <const int32_t*><uintptr_t>(edge_buffer.address if edge_buffer else 0)
        data = <const uint8_t*><uintptr_t>(data_buffer.address if data_buffer else 0)
        bits = <const uint8_t*><uintptr_t>(valid.address if valid else 0)
        numbers = <const int32_t*><uintptr_t>(which.buffers()[1].address if which is not None and count else 0)
        if numbers != NULL:
            numbers += <int64_t>which.offset
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
                    cursor.program = known[numbers[row] if numbers != NULL else 0]
                    error = read_value(columns, &cursor)
                if error:
                    with gil:
                        if error == NO_MEMORY:
                            raise MemoryError()
                        bad.append((row, REASONS[error]))
                row += 1
    finally:
        free(known)
    return columns.finish(), bad
