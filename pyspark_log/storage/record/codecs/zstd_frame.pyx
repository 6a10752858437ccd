# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Reads how many bytes a zstd frame holds, or can hold at most.

Format: RFC 8878, 3.1.1.
"""

from libc.stdint cimport INT32_MAX, int64_t, uint8_t, uint64_t

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
    LARGEST_WINDOW = 1 << 27  # `compression.contexts` reads none that is larger


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
