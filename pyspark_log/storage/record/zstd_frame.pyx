# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Reads zstd frames by the C functions of the system's library, or those in the package zstandard.

Format: RFC 8878, 3.1.1.
"""

from libc.stdint cimport INT32_MAX, int64_t, uint8_t, uint64_t

from pyspark_log.storage.record.native_codec cimport RELEASED, find_function, module_library, system_library

# The functions of zstd.h. Decompression reads and writes nothing outside of both buffers, whatever the source holds.
ctypedef void* (*CreateContext)() noexcept nogil
ctypedef size_t (*FreeContext)(void*) noexcept nogil
ctypedef size_t (*Decompress)(void*, void*, size_t, const void*, size_t) noexcept nogil

# Linux distributions have the library, since their package managers use it, and it takes a tenth less than the
# package's. Of the package's two extension modules one exports the functions.
cdef void* library = system_library("libzstd.so.1")
if library == NULL:
    library = module_library("zstandard._cffi")
cdef CreateContext create_context = <CreateContext>find_function(library, b"ZSTD_createDCtx")
cdef FreeContext free_context = <FreeContext>find_function(library, b"ZSTD_freeDCtx")
cdef Decompress decompress = <Decompress>find_function(library, b"ZSTD_decompressDCtx")
cdef bint IS_COMPLETE = create_context != NULL and free_context != NULL and decompress != NULL

cdef uint64_t MAGIC = 0xFD2FB528

cdef enum:
    # Magic number, flags, size of the window, number of a dictionary, content size; each but the first two only if the
    # flags say so. Blocks follow, each with three bytes before it, and perhaps a checksum.
    FLAGS_AT = 4
    WINDOW_AT = 5
    CHECKSUM = 0x04
    SINGLE_SEGMENT = 0x20  # no size of the window; a content size in any case
    DICTIONARY = 0x03
    REPEATED = 1  # the type of a block that is one byte
    COMPRESSED = 2
    LARGEST_BLOCK = 1 << 17  # decompressed; and not larger than the window
    LARGEST_WINDOW = 1 << 27  # `compression.decompress` reads none that is larger


cdef inline uint64_t load_little(const uint8_t* p, int count) noexcept nogil:
    cdef uint64_t value = 0
    while count > 0:
        count -= 1
        value = value << 8 | p[count]
    return value


cdef int64_t frame_room(const uint8_t* p, const uint8_t* stop, bint* is_exact) noexcept nogil:
    cdef uint64_t content = 0, block
    cdef int64_t most = 0, window = 0, largest, size
    cdef int flags, width, kind
    is_exact[0] = False
    if stop - p < 14 or load_little(p, 4) != MAGIC:
        return 0
    flags = p[FLAGS_AT]
    if flags & DICTIONARY:
        return 0
    p += WINDOW_AT
    if not flags & SINGLE_SEGMENT:
        window = (<int64_t>8 + (p[0] & 7)) << (p[0] >> 3) + 7
        p += 1
    width = 1 << (flags >> 6)
    is_exact[0] = width > 1 or flags & SINGLE_SEGMENT
    if is_exact[0]:
        content = load_little(p, width) + (256 if width == 2 else 0)
        p += width
    # Not all versions of the library refuse what is refused here.
    if flags & SINGLE_SEGMENT:
        window = <int64_t>min(content, <uint64_t>INT32_MAX)
    if window > LARGEST_WINDOW:
        return 0
    largest = min(LARGEST_BLOCK, window)
    while stop - p >= 3:
        block = load_little(p, 3)
        p += 3
        kind = block >> 1 & 3
        size = <int64_t>(block >> 3)
        if kind != COMPRESSED and size > largest:
            return 0
        most += largest if kind == COMPRESSED else size
        if kind == REPEATED:
            size = 1
        if size > stop - p:
            return 0
        p += size
        if block & 1:
            p += 4 if flags & CHECKSUM else 0
            if p != stop or most > INT32_MAX or content > <uint64_t>most:
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
        if size < RELEASED and room < 16 * RELEASED:
            written = decompress(self.context, target, room, p, size)
        else:
            with nogil:
                written = decompress(self.context, target, room, p, size)
        # An error is a number of the largest.
        return written if written <= <size_t>room else -1
