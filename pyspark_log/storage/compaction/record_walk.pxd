# Iterates over the records of one batch of any format, for the cleaner: where each is in the bytes, without columns.

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
    uint64_t hash_low  # of the key, once requested
    uint64_t hash_high


cdef struct Walk:
    Header header
    const uint8_t* at
    const uint8_t* end
    int64_t base  # the base of offsets inside a message set
    int32_t done  # records that were taken
    int32_t previous  # offset delta of the last one


# Begins with a batch whose records (decompressed) or messages are `data`; the header says how many.
cdef void begin_walk(Walk* walk, const Header* header, const uint8_t* data, const uint8_t* end) noexcept nogil

# Takes up to `most` records; `taken` is less than that only after the last one. Returns the fault of the record
# `walk.done`, or of the bytes after the last one, or NULL.
cdef const char* take_records(Walk* walk, Record* out, int most, int* taken) noexcept nogil
