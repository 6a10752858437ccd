# Shared by the modules that read and write record batches.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t


cdef class Bytes:
    # A range of bytes that another object owns, kept in place as long as this object exists.
    cdef Py_buffer view
    cdef const uint8_t* data
    cdef bint held


cdef enum:
    # A message of formats 0 and 1 (Kafka's LegacyRecord), where its layout differs from a batch's:
    #
    #     offset int64 | length int32 | CRC-32 uint32 of all that follows | magic int8 | attributes int8
    #     | timestamp int64 (format 1 only) | key length int32 | key | value length int32 | value
    MESSAGE_CRC_AT = 12
    MESSAGE_ATTRIBUTES_AT = 17
    MESSAGE_TIME_AT = 18
    SMALLEST_MESSAGE_0 = 26
    SMALLEST_MESSAGE_1 = 34


cdef struct Header:
    int64_t base_offset
    int64_t last_offset
    Py_ssize_t size  # of the whole batch; 0: it is incomplete
    int32_t leader_epoch
    int magic
    uint32_t crc
    int attributes
    int32_t last_offset_delta
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    int producer_epoch
    int32_t base_sequence
    int32_t count


# Reads the header at `p`, of which `held` bytes are available, of a log that has `left` bytes from there on;
# returns what is wrong with it, or NULL. An incomplete batch, or the zeros of a preallocated
# file, is not wrong: the size is 0 then.
cdef const char* read_header(const uint8_t* p, Py_ssize_t held, Py_ssize_t left, Header* h) noexcept nogil

# Writes the header of a batch of format 2 of `h.size` bytes, and the CRC of the bytes after it.
cdef int write_header(uint8_t* p, const Header* h) except -1

# Verifies the CRC of a complete batch; CorruptRecordError.
cdef int check_crc(const uint8_t* p, Py_ssize_t position, const Header* h) except -1

# CRC-32 of one complete message of format 0 or 1.
cdef uint32_t message_checksum(const uint8_t* p, Py_ssize_t size) except? 0

# ValueError unless that time (ms) can be the time of records.
cdef int check_append_time(int64_t time) except -1

cdef object corrupt(str reason, Py_ssize_t position, const Header* h)
