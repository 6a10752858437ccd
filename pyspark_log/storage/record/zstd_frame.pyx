# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Reads zstd frames by the C functions of the package zstandard. Format: RFC 8878, 3.1.1."""

from libc.stdint cimport INT32_MAX, int64_t, uint8_t, uint64_t

from pyspark_log.storage.record.native_codec cimport RELEASED, find_function

# The functions of zstd.h. Decompression reads and writes nothing outside of both buffers, whatever the source holds.
ctypedef void* (*CreateContext)() noexcept nogil
ctypedef size_t (*FreeContext)(void*) noexcept nogil
ctypedef size_t (*Decompress)(void*, void*, size_t, const void*, size_t) noexcept nogil

# The package's other extension module has the same functions, but does not export them.
cdef str MODULE = "zstandard._cffi"
cdef CreateContext create_context = <CreateContext>find_function(MODULE, b"ZSTD_createDCtx")
cdef FreeContext free_context = <FreeContext>find_function(MODULE, b"ZSTD_freeDCtx")
cdef Decompress decompress = <Decompress>find_function(MODULE, b"ZSTD_decompressDCtx")
cdef bint IS_COMPLETE = create_context != NULL and free_context != NULL and decompress != NULL

cdef uint64_t MAGIC = 0xFD2FB528

cdef enum:
    # Magic number, flags, size of the window, number of a dictionary, content size; each but the first two only if the
    # flags say so. Blocks follow, each with three bytes before it, and perhaps a checksum.
    SINGLE_SEGMENT = 0x20  # no size of the window; a content size in any case
    DICTIONARY = 0x03
    REPEATED = 1  # the type of a block that is one byte
    LARGEST_BLOCK = 1 << 17  # decompressed


cdef inline uint64_t load_little(const uint8_t* p, int count) noexcept nogil:
    cdef uint64_t value = 0
    while count > 0:
        count -= 1
        value = value << 8 | p[count]
    return value


cdef int64_t frame_room(const uint8_t* p, const uint8_t* stop, bint* is_exact) noexcept nogil:
    cdef uint64_t content = 0, block
    cdef int64_t most = 0
    cdef int flags, width
    is_exact[0] = False
    if stop - p < 14 or load_little(p, 4) != MAGIC:
        return 0
    flags = p[FLAGS_AT]
    if flags & DICTIONARY:
        return 0
    p += FLAGS_AT + (1 if flags & SINGLE_SEGMENT else 2)
    width = 1 << (flags >> 6)
    is_exact[0] = width > 1 or flags & SINGLE_SEGMENT
    if is_exact[0]:
        content = load_little(p, width) + (256 if width == 2 else 0)
        p += width
    while stop - p >= 3:
        block = load_little(p, 3)
        p += 3
        width = 1 if (block >> 1 & 3) == REPEATED else <int>(block >> 3)
        if width > stop - p:
            return 0
        p += width
        most += LARGEST_BLOCK
        if block & 1:
            p += 4 if flags & CHECKSUM else 0
            if p != stop or content > <uint64_t>INT32_MAX:
                return 0
            return <int64_t>content if is_exact[0] else most
    return 0


cdef class ZstdReader:
    def __cinit__(self):
        self.context = create_context() if IS_COMPLETE else NULL

    def __dealloc__(self):
        if self.context != NULL:
            free_context(self.context)

    cdef Py_ssize_t read(self, const uint8_t* p, Py_ssize_t size, uint8_t* target, Py_ssize_t room) noexcept:
        cdef size_t written
        if self.context == NULL:
            return -1
        if size < RELEASED:
            written = decompress(self.context, target, room, p, size)
        else:
            with nogil:
                written = decompress(self.context, target, room, p, size)
        # An error is a number of the largest.
        return written if written <= <size_t>room else -1
