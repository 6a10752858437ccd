# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Reads the messages of formats 0 and 1 (Kafka's LegacyRecord, KIP-31 and KIP-32) into columns. Never writes them.

A message (`headers.pxd` has the layout) is single, or is a wrapper: its value is a compressed
set of messages, and its offset that of the last of them.

- Format 0: the messages of a set have their own offsets. There are no times.
- Format 1: they are numbered from 0 on, relative to the wrapper's offset, which is the last one's; cleaning leaves
  gaps. Their times are their own, or all the wrapper's if its time is that of the append.
- A wrapper with offset 0 has not been numbered by a broker (producers send it so): the offsets inside are kept.

Unlike Kafka's reader, this one reports a set that ends within a message as damaged, instead of dropping
the rest silently.
"""

from pyspark_log.storage.record import layout
from pyspark_log.errors import CorruptRecordError

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t

from pyspark_log.storage.record.headers cimport (
    MESSAGE_ATTRIBUTES_AT, MESSAGE_CRC_AT, MESSAGE_TIME_AT, SMALLEST_MESSAGE_0, SMALLEST_MESSAGE_1,
    message_checksum,
)
from pyspark_log.storage.record.decoding.row_buffers cimport clear_bit, copy_key, copy_value, time_fits
from pyspark_log.storage.record.wire cimport load_i32, load_i64, load_u32

cdef Py_ssize_t LENGTH_AT = layout.LENGTH_AT
cdef Py_ssize_t MAGIC_AT = layout.MAGIC_AT
cdef Py_ssize_t LENGTH_PREFIX = layout.LENGTH_PREFIX
cdef int CODEC_MASK = layout.CODEC_MASK
cdef int LOG_APPEND_TIME = layout.LOG_APPEND_TIME

cdef enum:
    LENGTH_SIZE = 4


cdef const char* measure(const uint8_t* p, const uint8_t* end, Py_ssize_t* size) noexcept nogil:
    """Bytes of the message at `p`, which is complete; or what is wrong with it."""
    if end - p < SMALLEST_MESSAGE_0:
        return b"its messages end within one"
    if p[MAGIC_AT] > 1:
        return b"a message inside is of another format than 0 and 1"
    size[0] = <Py_ssize_t>load_i32(p + LENGTH_AT) + LENGTH_PREFIX
    if size[0] < (SMALLEST_MESSAGE_1 if p[MAGIC_AT] else SMALLEST_MESSAGE_0):
        return b"a message inside is shorter than any message"
    if size[0] > end - p:
        return b"its messages end within one"
    return NULL


cdef const uint8_t* fields(const uint8_t* p) noexcept nogil:
    """The position of the key's length in a message."""
    return p + (SMALLEST_MESSAGE_1 if p[MAGIC_AT] else SMALLEST_MESSAGE_0) - 2 * LENGTH_SIZE


cdef bint take_field(const uint8_t** at, const uint8_t* stop, int32_t* length) noexcept nogil:
    """Move from a field's length to its bytes; False if they are incomplete. Any negative length is null."""
    if stop - at[0] < LENGTH_SIZE:
        return False
    length[0] = load_i32(at[0])
    at[0] += LENGTH_SIZE
    return length[0] <= stop - at[0]


cdef const uint8_t* wrapped_set(const uint8_t* p, const uint8_t* stop) except NULL:
    cdef int32_t length
    p = fields(p)
    if not take_field(&p, stop, &length):
        raise CorruptRecordError("the key of a compressed set of messages is not inside it")
    p += max(length, 0)
    if not take_field(&p, stop, &length) or p + max(length, 0) != stop:
        raise CorruptRecordError("the value of a compressed set of messages does not end where the set does")
    if length <= 0:
        raise CorruptRecordError("a compressed set of messages without a value")
    return p


cdef int survey(const uint8_t* data, const uint8_t* end, bint check_crcs, Header* h) except -1:
    cdef const uint8_t* p = data
    cdef const char* reason
    cdef Py_ssize_t size = 0
    cdef int64_t offset, first = 0, last = -1
    cdef int32_t count = 0
    while p < end:
        reason = measure(p, end, &size)
        if reason != NULL:
            raise CorruptRecordError(reason.decode())
        if p[MESSAGE_ATTRIBUTES_AT] & CODEC_MASK:
            raise CorruptRecordError("a compressed message inside a compressed set of messages")
        if check_crcs and message_checksum(p, size) != load_u32(p + MESSAGE_CRC_AT):
            raise CorruptRecordError(f"message {count} inside has a wrong CRC")
        offset = load_i64(p)
        if not last < offset < INT64_MAX:
            raise CorruptRecordError(f"message {count} inside has offset {offset}, after one of {last}")
        if count == 0:
            first = offset
        last = offset
        count += 1
        p += size
    if count == 0:
        raise CorruptRecordError("a compressed set without messages")
    if h.last_offset == 0:
        h.last_offset = last
    elif last > h.last_offset:
        raise CorruptRecordError(f"a set of messages up to offset {h.last_offset} holds offset {last}")
    h.count = count
    h.base_offset = h.last_offset - (last - first) if h.magic else first
    return 0


cdef const char* read_messages(
    const Header* header, const uint8_t* data, const uint8_t* end, int64_t from_offset, int64_t until_offset, Rows* rows,
    int32_t* bad
) noexcept nogil:
    cdef const uint8_t* p = data
    cdef const uint8_t* stop
    cdef const uint8_t* key
    cdef const uint8_t* value
    cdef const char* reason
    cdef bint append_time = header.magic == 1 and (header.attributes & LOG_APPEND_TIME) != 0
    # The base of the offsets inside a set of format 1; 0 for all others.
    cdef int64_t base = header.base_offset - load_i64(p)
    cdef Py_ssize_t size = 0
    cdef int32_t index, key_length = 0, value_length = 0, time_type
    cdef int64_t offset, time, row
    for index in range(header.count):
        bad[0] = index
        reason = measure(p, end, &size)
        if reason != NULL:
            return reason
        stop = p + size
        offset = base + load_i64(p)
        time, time_type = -1, -1
        if p[MAGIC_AT]:
            time = header.max_timestamp if append_time else load_i64(p + MESSAGE_TIME_AT)
            time_type = append_time if header.magic else -1
        key = fields(p)
        if not take_field(&key, stop, &key_length):
            return b"its key length is not inside the message"
        value = key + max(key_length, 0)
        if not take_field(&value, stop, &value_length):
            return b"its value length is not inside the message"
        if value + max(value_length, 0) != stop:
            return b"it is shorter than its length says"
        p = stop
        if not from_offset <= offset < until_offset:
            continue
        if not time_fits(time):
            return b"its timestamp does not fit a column of microseconds"
        row = rows.count
        rows.offset[row] = offset
        rows.time[row] = time * 1000
        rows.time_type[row] = time_type
        rows.key_edge[row + 1] = rows.key_edge[row] + max(key_length, 0)
        rows.value_edge[row + 1] = rows.value_edge[row] + max(value_length, 0)
        if key_length < 0:
            clear_bit(rows.key_valid, row)
            rows.key_nulls += 1
        elif rows.key != NULL:
            copy_key(rows.key + rows.key_edge[row], key, key_length, end)
        if value_length < 0:
            clear_bit(rows.value_valid, row)
            rows.value_nulls += 1
        elif rows.value != NULL:
            copy_value(rows.value + rows.value_edge[row], value, value_length, end)
        if rows.headers_edge != NULL:
            clear_bit(rows.headers_valid, row)
            rows.headers_nulls += 1
            rows.headers_edge[row + 1] = <int32_t>rows.header_count
        rows.count += 1
    if p != end:
        bad[0] = -1
        return b"bytes remain after the last message"
    return NULL
