# The messages of a program, for the kernels that decode and encode them.

from libc.stdint cimport int64_t, uint8_t, uint64_t

from pyspark_log.schemas.arrow_columns cimport Column

# How a field is stored; program.py has the same numbers.
cdef enum Kind:
    BOOL = 0
    INT32 = 1
    SINT32 = 2
    UINT32 = 3
    INT64 = 4
    SINT64 = 5
    UINT64 = 6
    ENUM = 7
    FIXED32 = 8
    SFIXED32 = 9
    FLOAT = 10
    FIXED64 = 11
    SFIXED64 = 12
    DOUBLE = 13
    STRING = 14
    BYTES = 15
    MESSAGE = 16
    TIMESTAMP = 17
    DURATION = 18

cdef enum Wire:
    VARINT = 0
    EIGHT = 1
    SIZED = 2
    GROUP = 3
    END_GROUP = 4
    FOUR = 5

cdef struct Field:
    int number
    int kind
    int column
    int message  # of MESSAGE: its number
    int oneof  # fields of one oneof have one number; -1: in none
    bint repeated
    bint presence  # without a value it is null, else 0 or empty
    int symbols  # of ENUM: the number of its names
    # What was found of it; a message does not hold itself, so each is read once at a time.
    bint seen
    uint64_t bits
    const uint8_t* data
    int64_t size

cdef struct Message:
    int first
    int count
    int column

cdef struct Symbol:
    int64_t number
    const char* name

cdef struct Enum:
    Symbol* symbols
    int count

cdef enum:
    MOST_UNKNOWN = 16

cdef struct Program:
    Message* messages
    Field* fields
    Enum* enums
    Column* columns
    int unknown  # a field of the current value that the program has not; 0: there is none
    int64_t left_out  # how many values had such fields
    int[MOST_UNKNOWN] unknowns  # the numbers of such fields; 0: no more


# 0: a number of any size, 1: eight bytes, 2: its size before it, 5: four bytes.
cdef inline int wire_of(int kind) noexcept nogil:
    return VARINT if kind <= ENUM else FOUR if kind <= FLOAT else EIGHT if kind <= DOUBLE else SIZED


cdef class ProtobufProgram:
    cdef Program program
    cdef int number
    cdef list names
