# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Kafka's messages as bytes: an interpreter of plans, one plan for a struct in a version.

The rules are those of Kafka's message generator (clients/src/main/resources/common/message/README.md of Kafka):
numbers are big-endian; a length is 2 bytes (strings) or 4 (the rest), -1 for null; in a flexible version it is an
unsigned varint of the length plus one, 0 for null, and each struct ends with its tagged fields.

A struct is a named tuple with all fields of the schema in its order; those that its version lacks have their defaults.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.object cimport Py_EQ, PyObject, PyObject_RichCompareBool
from cpython.ref cimport Py_INCREF
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove

from pyspark_log.kafka.errors import MessageError


cdef extern from *:
    """
    static PyObject *new_struct(PyObject *type, Py_ssize_t size)
    {
        PyObject *made = ((PyTypeObject *)type)->tp_alloc((PyTypeObject *)type, size);
    #if PY_VERSION_HEX >= 0x030E0000
        if (made)
            ((PyTupleObject *)made)->ob_hash = -1;
    #endif
        return made;
    }
    """
    object new_struct(object cls, Py_ssize_t size)
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL
    PyObject* PyTuple_GET_ITEM(object of, Py_ssize_t index)
    void PyTuple_SET_ITEM(object of, Py_ssize_t index, PyObject* value)
    Py_ssize_t PyTuple_GET_SIZE(object of)
    object PyTuple_New(Py_ssize_t size)
    object PyMemoryView_FromObject(object buffer)


cdef enum Kind:
    BOOL, INT8, INT16, UINT16, INT32, UINT32, INT64, FLOAT64, UUID, STRING, BYTES, RECORDS, STRUCT

#: What a field can be, by Kafka's name.
KINDS = {
    "bool": BOOL, "int8": INT8, "int16": INT16, "uint16": UINT16, "int32": INT32, "uint32": UINT32, "int64": INT64,
    "float64": FLOAT64, "uuid": UUID, "string": STRING, "bytes": BYTES, "records": RECORDS, "struct": STRUCT,
}

cdef int[13] SIZES = [1, 1, 2, 2, 4, 4, 8, 8, 16, 0, 0, 0, 0]
cdef int64_t[7] LOWEST = [0, -0x80, -0x8000, 0, -0x80000000, 0, INT64_MIN]
cdef int64_t[7] HIGHEST = [1, 0x7F, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, INT64_MAX]
# Records of this size or more are chunks of their own, and are not copied; in bytes.
cdef Py_ssize_t LARGE = 4096


cdef struct Field:
    Kind kind
    bint array
    bint nullable
    bint compact
    int tag  # -1: it is not tagged
    Py_ssize_t index


cdef class Plan:
    """How a struct is read and written in one version.

    Attributes:
        struct: the named tuple's class, whose fields are those of the schema. A call without values gives the defaults.
    """

    cdef readonly object struct
    cdef tuple defaults
    cdef Py_ssize_t least  # the size that any value has at least, in bytes
    cdef Py_ssize_t size
    cdef bint flexible
    cdef Field* fields
    cdef Py_ssize_t inline_count, tagged_count
    cdef list inner  # by index of the field: the plan of its struct, or None
    cdef tuple refused  # indexes of fields that the version lacks, which must have their defaults to be written

    def __cinit__(self, struct, inline, tagged, refused, bint flexible):
        """
        Args:
            struct: as the attribute.
            inline: the fields of this version in their order: index, kind (of KINDS), whether it is an array, whether
                it may be null, whether its length is a varint, and the plan of its struct or None.
            tagged: the tagged fields by ascending tag: the tag, and the same.
            refused: the indexes of the fields that the version lacks and whose values may not be dropped.
            flexible: whether the struct ends with tagged fields.
        """
        self.struct, self.defaults, self.flexible = struct, tuple(struct()), flexible
        self.size, self.refused = len(self.defaults), tuple(refused)
        self.inner = [None] * self.size
        self.inline_count, self.tagged_count = len(inline), len(tagged)
        self.fields = <Field*>PyMem_Malloc(max(1, self.inline_count + self.tagged_count) * sizeof(Field))
        if self.fields == NULL:
            raise MemoryError
        self.least = 1 if flexible else 0
        for position, (tag, described) in enumerate([(-1, one) for one in inline] + [(one[0], one[1:]) for one in tagged]):
            index, kind, array, nullable, compact, inner = described
            if not 0 <= index < self.size:
                raise IndexError(index)
            self.fields[position] = Field(kind, array, nullable, compact, tag, index)
            self.inner[index] = <Plan?>inner if kind == STRUCT else None
            if tag < 0:
                self.least += least_of(&self.fields[position], inner)

    def __dealloc__(self):
        PyMem_Free(self.fields)


cdef Py_ssize_t least_of(const Field* field, object inner):
    if not field.array and field.kind == STRUCT:
        return 1 if field.nullable else (<Plan>inner).least
    if not field.array and field.kind < STRING:
        return SIZES[<int>field.kind]
    if field.compact:
        return 1
    return 2 if field.kind == STRING and not field.array else 4


# ---- reading


cdef class Reader:
    cdef Py_buffer view
    cdef object buffer
    cdef bint held
    cdef const uint8_t* begin
    cdef const uint8_t* at
    cdef const uint8_t* end

    def __cinit__(self, buffer, Py_ssize_t position):
        PyObject_GetBuffer(buffer, &self.view, PyBUF_SIMPLE)
        self.held = True
        if not 0 <= position <= self.view.len:
            raise IndexError(position)
        self.begin = <const uint8_t*>self.view.buf
        self.at, self.end = self.begin + position, self.begin + self.view.len
        self.buffer = buffer

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)

    cdef int fail(self, str what) except -1:
        raise MessageError(f"byte {self.at - self.begin}: {what}")

    cdef int need(self, Py_ssize_t size) except -1:
        if self.end - self.at < size:
            self.fail(f"{size} bytes expected, {self.end - self.at} left")
        return 0

    cdef int64_t number(self, int size, bint signed) except? -77:
        cdef uint64_t value = 0
        cdef int i
        self.need(size)
        for i in range(size):
            value = value << 8 | self.at[i]
        self.at += size
        if signed and size < 8 and value >> (8 * size - 1):
            return <int64_t>value - (<int64_t>1 << 8 * size)
        return <int64_t>value

    cdef uint32_t varint(self) except? 0xFFFFFFFF:
        cdef uint64_t value = 0
        cdef int shift
        cdef uint8_t byte
        for shift in range(0, 35, 7):
            self.need(1)
            byte = self.at[0]
            self.at += 1
            value |= <uint64_t>(byte & 0x7F) << shift
            if byte < 0x80:
                if value > 0x7FFFFFFF:
                    self.fail(f"a length or tag of {value}")
                return <uint32_t>value
        self.fail("a varint of more than 5 bytes")

    cdef Py_ssize_t length(self, const Field* field, int size) except -2:
        """The length of a value, checked against what is left, but for an array's; -1: it is null."""
        cdef int64_t length = <int64_t>self.varint() - 1 if field.compact else self.number(size, True)
        if length < -1 or (length == -1 and not field.nullable):
            self.fail(f"a length of {length}" if length < -1 else "null, where a value must be")
        if not field.array and length > self.end - self.at:
            self.fail(f"{length} bytes expected, {self.end - self.at} left")
        return <Py_ssize_t>length

    cdef object double(self):
        cdef uint64_t bits = <uint64_t>self.number(8, True)
        cdef double value
        memcpy(&value, &bits, 8)
        return value

    cdef object element(self, const Field* field, Plan inner):
        """A value that is not an array."""
        cdef Py_ssize_t length
        cdef object value
        if field.kind <= INT64:
            if field.kind == BOOL:
                return self.number(1, True) != 0
            return self.number(SIZES[<int>field.kind], field.kind != UINT16 and field.kind != UINT32)
        if field.kind == STRUCT:
            return self.struct(inner)
        if field.kind == FLOAT64:
            return self.double()
        if field.kind == UUID:
            self.need(16)
            value = PyBytes_FromStringAndSize(<const char*>self.at, 16)
            self.at += 16
            return value
        length = self.length(field, 2 if field.kind == STRING else 4)
        if length < 0:
            return None
        if field.kind == STRING:
            # As Java does: what is no UTF-8 is replaced.
            value = PyUnicode_DecodeUTF8(<const char*>self.at, length, "replace")
        elif field.kind == BYTES:
            value = PyBytes_FromStringAndSize(<const char*>self.at, length)
        else:
            value = PyMemoryView_FromObject(self.buffer)[self.at - self.begin : self.at - self.begin + length]
        self.at += length
        return value

    cdef object value(self, const Field* field, Plan inner):
        cdef Py_ssize_t count, i, least
        cdef Field one
        cdef object values, element
        if not field.array:
            if field.kind == STRUCT and field.nullable and self.number(1, True) < 0:
                return None
            return self.element(field, inner)
        count = self.length(field, 4)
        if count < 0:
            return None
        one = field[0]
        one.array = one.nullable = False
        least = max(1, least_of(&one, inner))
        if count > (self.end - self.at) // least:
            self.fail(f"an array of {count} elements, with {self.end - self.at} bytes left")
        values = PyTuple_New(count)
        for i in range(count):
            put(values, i, self.element(&one, inner))
        return values

    cdef object struct(self, Plan plan):
        cdef object made = new_struct(plan.struct, plan.size)
        cdef Py_ssize_t i
        cdef Field* field
        for i in range(plan.inline_count):
            field = &plan.fields[i]
            put(made, field.index, self.value(field, <Plan>plan.inner[field.index]))
        if plan.flexible:
            self.tags(plan, made)
        for i in range(plan.size):
            if PyTuple_GET_ITEM(made, i) == NULL:
                put(made, i, plan.defaults[i])
        return made

    cdef int tags(self, Plan plan, object made) except -1:
        cdef uint32_t tag, size, _
        cdef Py_ssize_t i
        cdef Field* field
        cdef const uint8_t* outer = self.end
        for _ in range(self.varint()):
            tag, size = self.varint(), self.varint()
            self.need(size)
            field = NULL
            for i in range(plan.inline_count, plan.inline_count + plan.tagged_count):
                if plan.fields[i].tag == <int>tag:
                    field = &plan.fields[i]
            if field == NULL:
                self.at += size
                continue
            if PyTuple_GET_ITEM(made, field.index) != NULL:
                self.fail(f"tag {tag} is there twice")
            self.end = self.at + size
            put(made, field.index, self.value(field, <Plan>plan.inner[field.index]))
            if self.at != self.end:
                self.fail(f"tag {tag} has {self.end - self.at} bytes too many")
            self.end = outer
        return 0


cdef inline void put(object made, Py_ssize_t index, object value):
    Py_INCREF(value)
    PyTuple_SET_ITEM(made, index, <PyObject*>value)


def decode(Plan plan not None, buffer, Py_ssize_t position):
    """Reads a struct; returns it, and the position after it.

    Records are memoryviews of the buffer, arrays are tuples, UUIDs 16 bytes. The memory that the values take is at
    most in proportion to the buffer.

    Raises:
        MessageError: the bytes are no such struct.
    """
    cdef Reader reader = Reader(buffer, position)
    made = reader.struct(plan)
    return made, reader.at - reader.begin


# ---- writing


cdef class FileRange:
    """Records that are in a file, for a chunk of their own that is sent without being read.

    Attributes:
        file: whatever the sender takes as the file.
        position, length: in bytes.
    """

    cdef readonly object file
    cdef readonly int64_t position
    cdef readonly Py_ssize_t length

    def __init__(self, file, int64_t position, Py_ssize_t length):
        self.file, self.position, self.length = file, position, length

    def __len__(self):
        return self.length

    def __repr__(self):
        return f"FileRange({self.file!r}, {self.position}, {self.length})"


cdef class Writer:
    cdef list chunks
    cdef Py_ssize_t flushed  # bytes in the chunks
    cdef uint8_t* data
    cdef Py_ssize_t size, room

    def __cinit__(self):
        self.chunks, self.room = [], 512
        self.data = <uint8_t*>PyMem_Malloc(self.room)
        if self.data == NULL:
            raise MemoryError

    def __dealloc__(self):
        PyMem_Free(self.data)

    cdef uint8_t* extend(self, Py_ssize_t size) except NULL:
        """Where `size` more bytes go."""
        cdef uint8_t* grown
        if self.size + size > self.room:
            grown = <uint8_t*>PyMem_Realloc(self.data, max(2 * self.room, self.size + size))
            if grown == NULL:
                raise MemoryError
            self.data, self.room = grown, max(2 * self.room, self.size + size)
        self.size += size
        return self.data + self.size - size

    cdef int number(self, int64_t value, int size) except -1:
        cdef uint8_t* at = self.extend(size)
        cdef int i
        for i in range(size):
            at[i] = <uint8_t>(<uint64_t>value >> 8 * (size - 1 - i) & 0xFF)
        return 0

    cdef int varint(self, uint64_t value) except -1:
        while value >= 0x80:
            self.extend(1)[0] = <uint8_t>(value & 0x7F | 0x80)
            value >>= 7
        self.extend(1)[0] = <uint8_t>value
        return 0

    cdef int length(self, const Field* field, Py_ssize_t length, int size) except -1:
        """`length`: -1 for null."""
        if length < 0 and not field.nullable:
            raise MessageError("null, where a value must be")
        if length > (0x7FFF if size == 2 else 0x7FFFFFFF):
            raise MessageError(f"a length of {length}")
        if field.compact:
            return self.varint(<uint64_t>(length + 1))
        return self.number(length, size)

    cdef int flush(self) except -1:
        if self.size:
            self.chunks.append(PyBytes_FromStringAndSize(<char*>self.data, self.size))
            self.flushed += self.size
            self.size = 0
        return 0

    cdef int blob(self, const Field* field, object value) except -1:
        """Bytes or records."""
        cdef Py_buffer view
        if isinstance(value, FileRange):
            self.length(field, (<FileRange>value).length, 4)
            if (<FileRange>value).length:
                self.flush()
                self.chunks.append(value)
                self.flushed += (<FileRange>value).length
            return 0
        PyObject_GetBuffer(value, &view, PyBUF_SIMPLE)
        try:
            self.length(field, view.len, 4)
            if view.len < LARGE or field.kind == BYTES:
                memcpy(self.extend(view.len), view.buf, view.len)
            else:
                self.flush()
                self.chunks.append(value)
                self.flushed += view.len
        finally:
            PyBuffer_Release(&view)
        return 0

    cdef int element(self, const Field* field, Plan inner, object value) except -1:
        """Writes a value that is not an array."""
        cdef const char* text
        cdef Py_ssize_t size
        cdef int64_t number
        cdef double real
        cdef uint64_t bits
        if field.kind <= INT64:
            number = value
            if not LOWEST[<int>field.kind] <= number <= HIGHEST[<int>field.kind]:
                raise MessageError(f"{number} does not fit into {SIZES[<int>field.kind]} bytes")
            return self.number(number, SIZES[<int>field.kind])
        if field.kind == STRUCT:
            return self.struct(inner, value)
        if field.kind == FLOAT64:
            real = value
            memcpy(&bits, &real, 8)
            return self.number(<int64_t>bits, 8)
        if field.kind == UUID:
            if not isinstance(value, bytes) or len(<bytes>value) != 16:
                raise MessageError(f"{value!r} is no UUID of 16 bytes")
            memcpy(self.extend(16), PyBytes_AS_STRING(value), 16)
            return 0
        if value is None:
            return self.length(field, -1, 2 if field.kind == STRING else 4)
        if field.kind == STRING:
            if not isinstance(value, str):
                raise MessageError(f"{type(value).__name__} is no string")
            text = PyUnicode_AsUTF8AndSize(value, &size)
            self.length(field, size, 2)
            memcpy(self.extend(size), text, size)
            return 0
        return self.blob(field, value)

    cdef int value(self, const Field* field, Plan inner, object value) except -1:
        cdef Field one
        if not field.array:
            if field.kind == STRUCT and field.nullable:
                self.number(-1 if value is None else 1, 1)
                if value is None:
                    return 0
            return self.element(field, inner, value)
        if value is None:
            return self.length(field, -1, 4)
        if not isinstance(value, (tuple, list)):
            raise MessageError(f"{type(value).__name__} is no array")
        self.length(field, len(value), 4)
        one = field[0]
        one.array = one.nullable = False
        for element in value:
            self.element(&one, inner, element)
        return 0

    cdef int struct(self, Plan plan, object value) except -1:
        cdef Py_ssize_t i
        cdef Field* field
        cdef Py_ssize_t index
        if not isinstance(value, tuple) or PyTuple_GET_SIZE(value) != plan.size:
            raise MessageError(f"{type(value).__name__} is no {plan.struct.__name__}")
        for index in plan.refused:
            if not is_default(<object>PyTuple_GET_ITEM(value, index), plan.defaults[index]):
                raise MessageError(f"{plan.struct.__name__}.{plan.struct._fields[index]} is not in this version")
        index = -1
        try:
            for i in range(plan.inline_count):
                field = &plan.fields[i]
                index = field.index
                self.value(field, <Plan>plan.inner[index], <object>PyTuple_GET_ITEM(value, index))
        except (MessageError, TypeError, OverflowError, ValueError) as error:
            raise MessageError(f"{plan.struct._fields[index]}: {error}") from None
        if plan.flexible:
            self.tags(plan, value)
        return 0

    cdef int tags(self, Plan plan, object value) except -1:
        cdef Py_ssize_t i, begin = self.size
        cdef Field* field
        cdef object one
        cdef uint8_t count = 0
        self.extend(1)  # for the count: no struct has 128 tags
        for i in range(plan.inline_count, plan.inline_count + plan.tagged_count):
            field = &plan.fields[i]
            one = <object>PyTuple_GET_ITEM(value, field.index)
            if is_default(one, plan.defaults[field.index]):
                continue
            count += 1
            self.varint(field.tag)
            try:
                self.sized(field, <Plan>plan.inner[field.index], one)
            except (MessageError, TypeError, OverflowError, ValueError) as error:
                raise MessageError(f"{plan.struct._fields[field.index]}: {error}") from None
        self.data[begin] = count
        return 0

    cdef int sized(self, const Field* field, Plan inner, object value) except -1:
        """Writes a value after its size."""
        cdef Py_ssize_t begin = self.size, size, prefix
        self.value(field, inner, value)
        size = self.size - begin
        self.varint(<uint64_t>size)
        prefix = self.size - begin - size
        # The prefix comes after the value here: the two change places.
        cdef uint8_t[5] held
        memcpy(held, self.data + begin + size, prefix)
        memmove(self.data + begin + prefix, self.data + begin, size)
        memcpy(self.data + begin, held, prefix)
        return 0


cdef bint is_default(object value, object default) except -1:
    if value is default:
        return True
    if isinstance(default, tuple) and not PyTuple_GET_SIZE(default) and isinstance(value, list):
        return not value
    return PyObject_RichCompareBool(value, default, Py_EQ)


def encode(Plan header, first, Plan plan not None, value):
    """Writes a frame: its length in 4 bytes, a header (None: there is none), and a struct.

    Returns:
        The frame in chunks: bytes, and the large records and FileRanges that were given, which are not copied.

    Raises:
        MessageError: a value does not fit its field.
    """
    cdef Writer writer = Writer()
    cdef Py_ssize_t size
    cdef int i
    writer.extend(4)
    if header is not None:
        writer.struct(header, first)
    writer.struct(plan, value)
    size = writer.flushed + writer.size - 4
    if size > 0x7FFFFFFF:
        raise MessageError(f"a frame of {size} bytes")
    if not writer.chunks:
        for i in range(4):
            writer.data[i] = <uint8_t>(size >> 8 * (3 - i) & 0xFF)
        writer.flush()
        return writer.chunks
    writer.flush()
    writer.chunks[0] = int(size).to_bytes(4, "big") + writer.chunks[0][4:]
    return writer.chunks
