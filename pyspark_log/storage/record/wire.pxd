# The encoding of numbers in Kafka's formats: big-endian integers and zigzag varints; and the copying of short values.
# Inline code only.

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove

cdef enum:
    # Values up to that length are copied in whole blocks, which is faster than a call of `memcpy`.
    SHORT = 256
    BLOCK = 32


cdef extern from *:
    int count_leading_zeros "__builtin_clzll"(unsigned long long value) noexcept nogil


# Compilers turn these into one load or store and a byte swap.

cdef inline uint32_t load_u32(const uint8_t* p) noexcept nogil:
    return <uint32_t>p[0] << 24 | <uint32_t>p[1] << 16 | <uint32_t>p[2] << 8 | p[3]


cdef inline int16_t load_i16(const uint8_t* p) noexcept nogil:
    return <int16_t>(p[0] << 8 | p[1])


cdef inline int32_t load_i32(const uint8_t* p) noexcept nogil:
    return <int32_t>load_u32(p)


cdef inline int64_t load_i64(const uint8_t* p) noexcept nogil:
    return <int64_t>(<uint64_t>load_u32(p) << 32 | load_u32(p + 4))


cdef inline void store_i16(uint8_t* p, int16_t value) noexcept nogil:
    p[0] = <uint8_t>(value >> 8)
    p[1] = <uint8_t>value


cdef inline void store_u32(uint8_t* p, uint32_t value) noexcept nogil:
    p[0] = <uint8_t>(value >> 24)
    p[1] = <uint8_t>(value >> 16)
    p[2] = <uint8_t>(value >> 8)
    p[3] = <uint8_t>value


cdef inline void store_i32(uint8_t* p, int32_t value) noexcept nogil:
    store_u32(p, <uint32_t>value)


cdef inline void store_i64(uint8_t* p, int64_t value) noexcept nogil:
    store_u32(p, <uint32_t>(<uint64_t>value >> 32))
    store_u32(p + 4, <uint32_t>value)


cdef inline void copy_short(
    uint8_t* to, const uint8_t* to_end, const uint8_t* data, Py_ssize_t length, const uint8_t* end
) noexcept nogil:
    # Copies bytes that are mostly few. Up to a block more is read and written, where both ends leave room for it. They
    # may be moved down by a block or more.
    if length > SHORT or end - data < length + BLOCK or to_end - to < length + BLOCK:
        memmove(to, data, length)
        return
    while length > 0:
        memcpy(to, data, BLOCK)
        to += BLOCK
        data += BLOCK
        length -= BLOCK


# Varints: zigzag, then seven bits a byte, lowest first. The readers move `at` past the number and
# return 1; they return 0 if it does not end before `end`, or is longer than its type allows. Bits
# beyond the type's width are dropped, as in Kafka's ByteUtils.

cdef inline bint read_group(
    const uint8_t** at, const uint8_t* end, int most, uint64_t* result
) noexcept nogil:
    cdef const uint8_t* p = at[0]
    cdef uint64_t bits = 0
    cdef int shift = 0
    if end - p < most:
        most = <int>(end - p)
    while most > 0:
        bits |= <uint64_t>(p[0] & 0x7F) << shift
        p += 1
        if p[-1] < 0x80:
            at[0] = p
            result[0] = bits
            return 1
        shift += 7
        most -= 1
    return 0


cdef inline bint read_short(const uint8_t** at, int32_t* value) noexcept nogil:
    # A number of up to three bytes, as nearly all are; three bytes must be readable. 0: it is longer.
    cdef const uint8_t* p = at[0]
    cdef uint32_t low
    if p[0] < 0x80:
        low = p[0]
        at[0] = p + 1
    elif p[1] < 0x80:
        low = p[0] & 0x7F | <uint32_t>p[1] << 7
        at[0] = p + 2
    elif p[2] < 0x80:
        low = p[0] & 0x7F | <uint32_t>(p[1] & 0x7F) << 7 | <uint32_t>p[2] << 14
        at[0] = p + 3
    else:
        return 0
    value[0] = <int32_t>(low >> 1) ^ -<int32_t>(low & 1)
    return 1


cdef inline bint read_varint(const uint8_t** at, const uint8_t* end, int32_t* value) noexcept nogil:
    cdef uint64_t bits
    cdef uint32_t low
    if end - at[0] >= 3 and read_short(at, value):
        return 1
    if not read_group(at, end, 5, &bits):
        return 0
    low = <uint32_t>bits
    value[0] = <int32_t>(low >> 1) ^ -<int32_t>(low & 1)
    return 1


cdef inline bint read_varlong(const uint8_t** at, const uint8_t* end, int64_t* value) noexcept nogil:
    cdef uint64_t bits
    cdef int32_t few
    if end - at[0] >= 3 and read_short(at, &few):
        value[0] = few
        return 1
    if not read_group(at, end, 10, &bits):
        return 0
    value[0] = <int64_t>(bits >> 1) ^ -<int64_t>(bits & 1)
    return 1


cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)


cdef inline int varint_size(uint64_t zigzagged) noexcept nogil:
    # By comparison first, since some processors count zeros slowly.
    if zigzagged < 0x80:
        return 1
    if zigzagged < 0x4000:
        return 2
    # ceil(bits / 7)
    return ((63 - count_leading_zeros(zigzagged)) * 9 + 73) >> 6


cdef inline uint8_t* write_varint(uint8_t* p, uint64_t zigzagged) noexcept nogil:
    if zigzagged < 0x80:
        p[0] = <uint8_t>zigzagged
        return p + 1
    if zigzagged < 0x4000:
        p[0] = <uint8_t>(zigzagged | 0x80)
        p[1] = <uint8_t>(zigzagged >> 7)
        return p + 2
    while zigzagged >= 0x80:
        p[0] = <uint8_t>(zigzagged | 0x80)
        p += 1
        zigzagged >>= 7
    p[0] = <uint8_t>zigzagged
    return p + 1
