# The fields of a record of format 2; `builder.pyx` documents their layout. Inline code only.
#
# Every number and length is checked against the end of the bytes before it is used.

from libc.stdint cimport int32_t, int64_t, uint8_t

from pyspark_log.storage.record.wire cimport read_short, read_varint, read_varlong

cdef enum:
    # Length, attributes, two deltas, two lengths and a header count, of one byte each.
    SMALLEST_RECORD = 7
    # Key length and value length of a header.
    SMALLEST_HEADER = 2
    # The most bytes that `read_short` reads.
    LONGEST_SHORT = 3
    # The same for a record up to its key: four numbers and its attributes.
    MOST_NUMBERS = 4 * LONGEST_SHORT + 1


cdef struct RecordFields:
    int64_t time_delta
    const uint8_t* key
    const uint8_t* value
    const uint8_t* headers
    const uint8_t* stop
    int32_t offset_delta
    int32_t key_length
    int32_t value_length
    int32_t header_count


cdef inline bint take_usual(const uint8_t* p, const uint8_t* end, RecordFields* record) noexcept nogil:
    # A record without headers whose numbers have up to three bytes each, and are followed by others; False: it is
    # not such a one, or damaged. Nothing is read beyond `end`, and since the record must end where its length says,
    # none of its fields is outside of it.
    cdef int32_t length, time_delta
    if end - p < MOST_NUMBERS or not read_short(&p, &length) or not 0 < length <= end - p:
        return False
    record.stop = p + length
    p += 1
    if not read_short(&p, &time_delta) or not read_short(&p, &record.offset_delta):
        return False
    if not read_short(&p, &record.key_length):
        return False
    record.time_delta = time_delta
    record.key = p
    if record.key_length > 0:
        if record.key_length > end - p:
            return False
        p += record.key_length
    if end - p < LONGEST_SHORT or not read_short(&p, &record.value_length):
        return False
    record.value = p
    if record.value_length > 0:
        if record.value_length >= end - p:
            return False
        p += record.value_length
    record.header_count = 0
    return p + 1 == record.stop and p[0] == 0


cdef inline bint pass_bytes(const uint8_t** at, const uint8_t* stop, int32_t length) noexcept nogil:
    # Moves past a key or value, of which there are no bytes if its length is negative; False: it does not end before
    # `stop`.
    if length > stop - at[0]:
        return False
    if length > 0:
        at[0] += length
    return True


cdef inline const char* take_any(const uint8_t* p, const uint8_t* end, RecordFields* record) noexcept nogil:
    # Reads a record up to its headers; returns what is wrong with it, or NULL.
    cdef const uint8_t* stop
    cdef int32_t length
    if not read_varint(&p, end, &length):
        return b"its length is damaged, or the records end too early"
    if not SMALLEST_RECORD - 1 <= length <= end - p:
        return b"its length is not inside the batch"
    stop = p + length
    p += 1
    if not read_varlong(&p, stop, &record.time_delta):
        return b"its timestamp delta is damaged"
    if not read_varint(&p, stop, &record.offset_delta):
        return b"its offset delta is damaged"
    if not read_varint(&p, stop, &record.key_length):
        return b"its key length is damaged"
    record.key = p
    if not pass_bytes(&p, stop, record.key_length):
        return b"its key length is not inside the record"
    if not read_varint(&p, stop, &record.value_length):
        return b"its value length is damaged"
    record.value = p
    if not pass_bytes(&p, stop, record.value_length):
        return b"its value length is not inside the record"
    if not read_varint(&p, stop, &record.header_count):
        return b"its header count is damaged"
    if not 0 <= record.header_count <= (stop - p) // SMALLEST_HEADER:
        return b"its header count is not inside the record"
    if record.header_count == 0 and p != stop:
        return b"it is shorter than its length says"
    record.headers = p
    record.stop = stop
    return NULL


cdef inline const uint8_t* after_time(const uint8_t* start, const uint8_t* stop) noexcept nogil:
    # What follows the timestamp delta of a record that was taken.
    cdef int32_t length
    cdef int64_t time_delta
    read_varint(&start, stop, &length)
    start += 1
    read_varlong(&start, stop, &time_delta)
    return start
