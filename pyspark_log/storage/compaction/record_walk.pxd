# The records of one batch of any format, one after the other, as the cleaner looks at them: where each stands in
# the bytes, and no columns.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from pyspark_log.storage.record.headers cimport Header


cdef struct Record:
    const uint8_t* start
    const uint8_t* rest  # format 2: what stands behind its timestamp delta
    const uint8_t* end
    const uint8_t* key
    int32_t key_length  # negative: it has no key
    bint has_value
    int64_t offset
    int64_t time  # ms; -1: none
    uint64_t hash_low  # of the key, once somebody has asked for it
    uint64_t hash_high


cdef struct Walk:
    Header header
    const uint8_t* at
    const uint8_t* end
    int64_t base  # what offsets inside a set of messages are counted from
    int32_t done  # records that were taken
    int32_t previous  # offset delta of the last one


# Begins with a batch whose records (decompressed) or messages are `data`; the header says how many.
cdef void begin_walk(Walk* walk, const Header* header, const uint8_t* data, const uint8_t* end) noexcept nogil

# Takes up to `most` records; `taken` is less than that only behind the last one. Returns what is wrong with the record
# `walk.done`, or with what follows the last one, or NULL.
cdef const char* take_records(Walk* walk, Record* out, int most, int* taken) noexcept nogil
