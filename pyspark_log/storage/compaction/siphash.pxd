# SipHash-2-4 with 128 bits (Aumasson and Bernstein): a keyed hash. Without the key, two inputs of one hash
# cannot be constructed, unlike for MD5 and other hashes without a key.

from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy


cdef inline uint64_t rotated(uint64_t value, int bits) noexcept nogil:
    return value << bits | value >> (64 - bits)


cdef inline void sip_rounds(uint64_t* v, int count) noexcept nogil:
    cdef int i
    for i in range(count):
        v[0] += v[1]
        v[1] = rotated(v[1], 13) ^ v[0]
        v[0] = rotated(v[0], 32)
        v[2] += v[3]
        v[3] = rotated(v[3], 16) ^ v[2]
        v[0] += v[3]
        v[3] = rotated(v[3], 21) ^ v[0]
        v[2] += v[1]
        v[1] = rotated(v[1], 17) ^ v[2]
        v[2] = rotated(v[2], 32)


# The words are those of the machine: the hash never leaves it.
cdef inline void siphash(
    uint64_t key_low, uint64_t key_high, const uint8_t* data, Py_ssize_t size, uint64_t* low, uint64_t* high
) noexcept nogil:
    cdef uint64_t v[4]
    cdef uint64_t word
    cdef Py_ssize_t at = 0
    v[0] = key_low ^ <uint64_t>0x736f6d6570736575
    v[1] = key_high ^ <uint64_t>0x646f72616e646f6d ^ 0xee
    v[2] = key_low ^ <uint64_t>0x6c7967656e657261
    v[3] = key_high ^ <uint64_t>0x7465646279746573
    while size - at >= 8:
        memcpy(&word, data + at, 8)
        v[3] ^= word
        sip_rounds(v, 2)
        v[0] ^= word
        at += 8
    word = <uint64_t>size << 56
    while size > at:
        size -= 1
        word |= <uint64_t>data[size] << (8 * (size - at))
    v[3] ^= word
    sip_rounds(v, 2)
    v[0] ^= word
    v[2] ^= 0xee
    sip_rounds(v, 4)
    low[0] = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xdd
    sip_rounds(v, 4)
    high[0] = v[0] ^ v[1] ^ v[2] ^ v[3]
