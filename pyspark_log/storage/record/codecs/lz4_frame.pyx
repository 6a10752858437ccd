# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Reads lz4 frames as the clients of Kafka write them: of independent blocks, which have no checksums of their own.

cramjam decompresses the blocks, straight into memory of ours; the package lz4 copies what it has decompressed. Format:
https://github.com/lz4/lz4/blob/dev/doc/lz4_Frame_format.md
"""

from cpython.buffer cimport PyBUF_READ, PyBUF_WRITE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcpy

from pyspark_log.storage.record.codecs.memory cimport Memory, has_room

cdef enum:
    MAGIC = 0x184D2204
    VERSION = 0x40
    INDEPENDENT = 0x20
    CONTENT_SIZE = 0x08
    FLAGS_AT = 4
    CONTENT_SIZE_AT = 6  # if the flags have it; then comes the checksum
    # A block of N bytes holds at most 255 * N.
    RATIO = 255


cdef inline uint32_t load_little(const uint8_t* p) noexcept nogil:
    return p[0] | <uint32_t>p[1] << 8 | <uint32_t>p[2] << 16 | <uint32_t>p[3] << 24


cdef inline uint32_t rotated(uint32_t value, int bits) noexcept nogil:
    return value << bits | value >> (32 - bits)


cdef uint8_t checksum(const uint8_t* p, const uint8_t* end) noexcept nogil:
    # The second byte of the XXH32, with seed 0, of less than 16 bytes.
    cdef uint32_t value = 0x165667B1 + <uint32_t>(end - p)
    while end - p >= 4:
        value = rotated(value + load_little(p) * <uint32_t>0xC2B2AE3D, 17) * <uint32_t>0x27D4EB2F
        p += 4
    while p < end:
        value = rotated(value + p[0] * <uint32_t>0x165667B1, 11) * <uint32_t>0x9E3779B1
        p += 1
    value = (value ^ value >> 15) * <uint32_t>0x85EBCA77
    value = (value ^ value >> 13) * <uint32_t>0xC2B2AE3D
    return <uint8_t>((value ^ value >> 16) >> 8)


def header_checksum(bytes descriptor not None):
    """The checksum of a frame's descriptor, its header from the flags on: of less than 16 bytes."""
    cdef const uint8_t* p = descriptor
    return checksum(p, p + len(descriptor))


cdef Py_ssize_t content_size(const uint8_t* p, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t content
    if size < CONTENT_SIZE_AT + 9 or not p[FLAGS_AT] & CONTENT_SIZE or load_little(p + CONTENT_SIZE_AT + 4) != 0:
        return 0
    content = load_little(p + CONTENT_SIZE_AT)
    return content if content <= RATIO * size else 0


cdef Py_ssize_t read_frame(const uint8_t* p, Py_ssize_t size, Py_ssize_t limit, Memory* memory) except -2:
    cdef const uint8_t* end = p + size
    cdef const uint8_t* descriptor = p + FLAGS_AT
    cdef Py_ssize_t content = -1, filled = 0, most, room
    cdef uint32_t length
    cdef bint is_stored
    if size < CONTENT_SIZE_AT + 1 or load_little(p) != MAGIC:
        return -1
    # Other flags are of checksums, linked blocks and dictionaries; other sizes of blocks do not exist.
    if p[FLAGS_AT] & ~CONTENT_SIZE != VERSION | INDEPENDENT or not 0x40 <= p[5] <= 0x70 or p[5] & 0x0F:
        return -1
    most = 1 << (8 + 2 * (p[5] >> 4))
    p += CONTENT_SIZE_AT
    if descriptor[0] & CONTENT_SIZE:
        # A size of 0 can mean that it is not known.
        content = content_size(descriptor - FLAGS_AT, size)
        if not 0 < content <= limit or not has_room(memory, content, limit):
            return -1
        p += 8
    if p[0] != checksum(descriptor, p):
        return -1
    p += 1
    # Here, as it takes 2 MB.
    from cramjam import DecompressionError, lz4
    while end - p >= 4:
        length = load_little(p)
        p += 4
        if length == 0:
            return filled if filled == content or content < 0 < filled else -1
        is_stored = length >> 31 != 0
        length &= 0x7FFFFFFF
        if length > most or length > end - p:
            return -1
        room = min(most, (limit if content < 0 else content) - filled)
        if content < 0:
            room = min(room, RATIO * <Py_ssize_t>length)
            if not has_room(memory, filled + room, limit):
                return -1
        if is_stored:
            if length > room:
                return -1
            memcpy(memory.data + filled, p, length)
            filled += length
        else:
            source = PyMemoryView_FromMemory(<char*>p, length, PyBUF_READ)
            place = PyMemoryView_FromMemory(<char*>memory.data + filled, room, PyBUF_WRITE)
            try:
                filled += lz4.decompress_block_into(source, place, room)
            except DecompressionError:
                return -1
        p += length
    return -1
