# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The memory of Arrow columns while they are filled, and the arrays that they become, without a copy."""

import pyarrow as pa

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

cdef enum:
    LEAST_ROOM = 64


cdef int grow(Column* column) noexcept nogil:
    cdef int64_t room = max(2 * column.room, LEAST_ROOM)
    cdef void* grown
    if column.kind == FIXED or column.kind == BITS:
        grown = realloc(column.data, room * column.width if column.kind == FIXED else room // 8)
        if grown == NULL:
            return NO_MEMORY
        column.data = <uint8_t*>grown
    if column.kind == TEXT or column.kind == LIST:
        grown = realloc(column.edges, (room + 1) * sizeof(int32_t))
        if grown == NULL:
            return NO_MEMORY
        column.edges = <int32_t*>grown
        if not column.room:
            column.edges[0] = 0
    if column.valid != NULL:
        grown = realloc(column.valid, room // 8)
        if grown == NULL:
            return NO_MEMORY
        column.valid = <uint8_t*>grown
        memset(column.valid + column.room // 8, 0xFF, (room - column.room) // 8)
    column.room = room
    return 0


cdef int grow_data(Column* column, int64_t size) noexcept nogil:
    size = max(size, 2 * column.data_room)
    cdef void* grown = realloc(column.data, size)
    if grown == NULL:
        return NO_MEMORY
    column.data = <uint8_t*>grown
    column.data_room = size
    return 0


cdef int put_null(Column* columns, int number) noexcept nogil:
    cdef Column* column = &columns[number]
    cdef int child = number + 1
    if column.count == column.room and grow(column):
        return NO_MEMORY
    if column.kind == NULLS:
        column.count += 1
        return 0
    if column.valid == NULL:
        column.valid = <uint8_t*>realloc(NULL, column.room // 8)
        if column.valid == NULL:
            return NO_MEMORY
        memset(column.valid, 0xFF, column.room // 8)
    if column.kind == FIXED:
        memset(column.data + column.count * column.width, 0, column.width)
    elif column.kind == TEXT or column.kind == LIST:
        column.edges[column.count + 1] = column.edges[column.count]
    elif column.kind == STRUCT:
        while child < column.after:
            if put_null(columns, child):
                return NO_MEMORY
            child = columns[child].after
    column.valid[column.count >> 3] &= ~(1 << (column.count & 7))
    column.nulls += 1
    column.count += 1
    return 0


cdef void truncate(Column* columns, int number, int64_t count) noexcept nogil:
    cdef Column* column = &columns[number]
    cdef int child = number + 1
    cdef int64_t row
    if column.valid != NULL:
        for row in range(count, column.count):
            if not column.valid[row >> 3] & (1 << (row & 7)):
                column.valid[row >> 3] |= 1 << (row & 7)
                column.nulls -= 1
    column.count = min(column.count, count)
    if column.kind == LIST:
        truncate(columns, child, column.edges[column.count] if column.room else 0)
    elif column.kind == STRUCT:
        while child < column.after:
            truncate(columns, child, count)
            child = columns[child].after


cdef bint is_utf8(const uint8_t* text, int64_t size) noexcept nogil:
    cdef int64_t at = 0
    cdef uint64_t eight
    cdef int more, first, point
    while at < size:
        while at + 8 <= size:
            memcpy(&eight, text + at, 8)
            if eight & 0x8080808080808080U:
                break
            at += 8
        if at == size:
            break
        first = text[at]
        at += 1
        if first < 0x80:
            continue
        # The smallest code point of this length is checked below, so that no shorter form has another spelling.
        more = 1 if 0xC2 <= first < 0xE0 else 2 if 0xE0 <= first < 0xF0 else 3 if 0xF0 <= first < 0xF5 else 0
        if not more or at + more > size:
            return False
        point = first & (0x3F >> more)
        for _ in range(more):
            if text[at] & 0xC0 != 0x80:
                return False
            point = point << 6 | text[at] & 0x3F
            at += 1
        if (more == 2 and (point < 0x800 or 0xD800 <= point < 0xE000)) or (
            more == 3 and (point < 0x10000 or point > 0x10FFFF)
        ):
            return False
    return True


cdef class Columns:
    """The columns of one slot and of its parts (slots.py). Their memory is freed with the last array that uses it."""

    def __cinit__(self, root):
        self.root = root
        layout = root.flat()
        self.number = len(layout)
        self.columns = <Column*>calloc(self.number, sizeof(Column))
        if self.columns == NULL:
            raise MemoryError()
        for index, slot in enumerate(layout):
            self.columns[index].kind = slot.kind
            self.columns[index].width = slot.width
            self.columns[index].after = slot.after
            if grow(&self.columns[index]):
                raise MemoryError()

    def __dealloc__(self):
        cdef int index
        if self.columns == NULL:
            return
        for index in range(self.number):
            free(self.columns[index].data)
            free(self.columns[index].edges)
            free(self.columns[index].valid)
        free(self.columns)

    cdef object finish(self):
        return self.array(self.root)

    def array(self, slot):
        """The array of a slot; nothing may be appended after it."""
        cdef Column* column = &self.columns[<int>slot.number]
        valid = self.buffer(column.valid, (column.count + 7) // 8) if column.nulls else None
        children = [self.array(child) for child in slot.children]
        if column.kind == NULLS:
            return pa.nulls(column.count)
        if column.kind == STRUCT:
            buffers = [valid]
        elif column.kind == LIST:
            buffers = [valid, self.buffer(column.edges, (column.count + 1) * sizeof(int32_t))]
        elif column.kind == TEXT:
            edges = self.buffer(column.edges, (column.count + 1) * sizeof(int32_t))
            buffers = [valid, edges, self.buffer(column.data, column.edges[column.count])]
        elif column.kind == BITS:
            buffers = [valid, self.buffer(column.data, (column.count + 7) // 8)]
        else:
            buffers = [valid, self.buffer(column.data, column.count * column.width)]
        return pa.Array.from_buffers(slot.type, column.count, buffers, column.nulls, children=children or None)

    cdef object buffer(self, void* data, int64_t size):
        return pa.foreign_buffer(<uintptr_t>data, size, self) if data != NULL else pa.py_buffer(b"")
