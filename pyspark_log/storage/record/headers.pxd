# What the modules that read and write record batches share.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t


cdef class Bytes:
    # A range of bytes that someone else owns, kept in place until this object goes.
    cdef Py_buffer view
    cdef const uint8_t* data
    cdef bint held


cdef enum:
    # A message of formats 0 and 1 (Kafka's LegacyRecord), where it is not laid out like a batch:
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
    Py_ssize_t size  # of the whole batch; 0: it is not all there
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


# Reads the header at `p`, of which `held` bytes can be looked at, of a log that goes on for `left` bytes;
# returns what is wrong with it, or NULL. Less than a whole batch, or the zeros of a file that was made
# longer in advance, is not wrong: the size is 0 then.
cdef const char* read_header(const uint8_t* p, Py_ssize_t held, Py_ssize_t left, Header* h) noexcept nogil

# Writes the header of a batch of format 2 of `h.size` bytes, and the CRC of what stands behind it.
cdef int write_header(uint8_t* p, const Header* h) except -1

# Compares the CRC of a whole batch with its header's; CorruptRecordError.
cdef int check_crc(const uint8_t* p, Py_ssize_t position, const Header* h) except -1

# CRC-32 of one whole message of format 0 or 1.
cdef uint32_t message_checksum(const uint8_t* p, Py_ssize_t size) except? 0

# ValueError unless that time (ms) can be the time of records.
cdef int check_append_time(int64_t time) except -1

cdef object corrupt(str reason, Py_ssize_t position, const Header* h)
