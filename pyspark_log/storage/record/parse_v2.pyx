# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Reads the records of a batch of format 2 into columns; `builder` documents the layout of a record.

Every number and length from a batch is checked against the end of the bytes before it is used:
any bytes give rows or a reason why not.
"""

from pyspark_log.storage.record import layout

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from pyspark_log.storage.record.arrow_builder cimport HeaderField, Rows, clear_bit, copy_value, note_header, time_fits
from pyspark_log.storage.record.wire cimport read_varint, read_varlong

cdef int LOG_APPEND_TIME = layout.LOG_APPEND_TIME

cdef enum:
    # Key length and value length of a header.
    SMALLEST_HEADER = 2


cdef const char* read_record_headers(
    const uint8_t** at, const uint8_t* stop, int32_t count, bint keep, Rows* rows
) noexcept nogil:
    cdef HeaderField field
    cdef const char* reason
    cdef int32_t left
    for left in range(count):
        if not read_varint(at, stop, &field.key_length):
            return b"a header key's length is damaged"
        if not 0 <= field.key_length <= stop - at[0]:
            return b"a header key's length is not inside its record"
        field.key = at[0]
        at[0] += field.key_length
        if not read_varint(at, stop, &field.value_length):
            return b"a header value's length is damaged"
        field.value = at[0]
        if field.value_length > stop - at[0]:
            return b"a header value's length is not inside its record"
        if field.value_length > 0:
            at[0] += field.value_length
        if keep:
            reason = note_header(rows, &field)
            if reason != NULL:
                return reason
    return NULL


cdef const char* read_records(
    const Span* span, int64_t from_offset, int64_t until_offset, Rows* rows, int32_t* bad
) noexcept nogil:
    cdef const uint8_t* p = span.data
    cdef const uint8_t* end = span.end
    cdef const uint8_t* stop
    cdef const uint8_t* key
    cdef const uint8_t* value
    cdef const char* reason
    cdef int64_t base_offset = span.header.base_offset
    cdef int64_t base_timestamp = span.header.base_timestamp
    cdef int64_t max_timestamp = span.header.max_timestamp
    cdef bint append_time = (span.header.attributes & LOG_APPEND_TIME) != 0
    cdef int32_t last_delta = span.header.last_offset_delta
    cdef int32_t records = span.header.count
    cdef int32_t index, length, offset_delta, key_length, value_length, header_count, previous = -1
    cdef int64_t offset, time, time_delta
    # Local copies, since a compiler must assume that written bytes could be the struct itself.
    cdef int64_t row = rows.count
    cdef int64_t* out_offset = rows.offset
    cdef int64_t* out_time = rows.time
    cdef int32_t* out_type = rows.time_type
    cdef int32_t* out_key_edge = rows.key_edge
    cdef int32_t* out_value_edge = rows.value_edge
    cdef uint8_t* out_key = rows.key
    cdef uint8_t* out_value = rows.value
    cdef int32_t key_end = out_key_edge[row]
    cdef int32_t value_end = out_value_edge[row]
    cdef int64_t header_start
    cdef int64_t key_nulls = 0, value_nulls = 0, headers_nulls = 0
    cdef bint want_headers = rows.headers_edge != NULL
    cdef bint keep

    for index in range(records):
        bad[0] = index
        if not read_varint(&p, end, &length):
            return b"its length is damaged, or the records end too early"
        if not SMALLEST_RECORD - 1 <= length <= end - p:
            return b"its length is not inside the batch"
        stop = p + length
        p += 1
        if not read_varlong(&p, stop, &time_delta):
            return b"its timestamp delta is damaged"
        if not read_varint(&p, stop, &offset_delta):
            return b"its offset delta is damaged"
        # Kafka's brokers accept no other order, and a range of offsets could not be served with it.
        if not previous < offset_delta <= last_delta:
            return b"its offset delta is not between those of its neighbours"
        previous = offset_delta
        if not read_varint(&p, stop, &key_length):
            return b"its key length is damaged"
        key = p
        if key_length > 0:
            if key_length > stop - p:
                return b"its key length is not inside the record"
            p += key_length
        if not read_varint(&p, stop, &value_length):
            return b"its value length is damaged"
        value = p
        if value_length > 0:
            if value_length > stop - p:
                return b"its value length is not inside the record"
            p += value_length
        if not read_varint(&p, stop, &header_count):
            return b"its header count is damaged"
        offset = base_offset + offset_delta
        keep = from_offset <= offset < until_offset
        header_start = rows.header_count
        if header_count != 0:
            if not 0 < header_count <= (stop - p) // SMALLEST_HEADER:
                return b"its header count is not inside the record"
            reason = read_record_headers(&p, stop, header_count, keep and want_headers, rows)
            if reason != NULL:
                return reason
        if p != stop:
            return b"it is shorter than its length says"
        if not keep:
            continue
        # A sum that overflows 64 bits wraps, as in Kafka, and is then out of range.
        time = max_timestamp if append_time else <int64_t>(<uint64_t>base_timestamp + <uint64_t>time_delta)
        if not time_fits(time):
            return b"its timestamp does not fit a column of microseconds"
        out_offset[row] = offset
        out_time[row] = time * 1000
        out_type[row] = append_time
        if key_length > 0 and out_key != NULL:
            copy_value(out_key + key_end, key, key_length, end)
            key_end += key_length
        elif key_length < 0:
            clear_bit(rows.key_valid, row)
            key_nulls += 1
        if value_length > 0 and out_value != NULL:
            copy_value(out_value + value_end, value, value_length, end)
            value_end += value_length
        elif value_length < 0:
            clear_bit(rows.value_valid, row)
            value_nulls += 1
        if want_headers:
            if rows.header_count == header_start:
                clear_bit(rows.headers_valid, row)
                headers_nulls += 1
            rows.headers_edge[row + 1] = <int32_t>rows.header_count
        row += 1
        out_key_edge[row] = key_end
        out_value_edge[row] = value_end
    if p != end:
        bad[0] = -1
        return b"bytes remain after the last record"
    rows.count = row
    rows.key_nulls += key_nulls
    rows.value_nulls += value_nulls
    rows.headers_nulls += headers_nulls
    return NULL
