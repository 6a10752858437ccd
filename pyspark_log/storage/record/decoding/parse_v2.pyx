# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Reads the records of a batch of format 2 into columns; `builder` documents the layout of a record.

Every number and length from a batch is checked against the end of the bytes before it is used:
any bytes give rows or a reason why not.
"""

from pyspark_log.storage.record import layout

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint64_t

from pyspark_log.storage.record.headers cimport Header
from pyspark_log.storage.record.decoding.row_buffers cimport (
    HeaderField, Rows, clear_bit, copy_key, copy_value, note_header, time_fits,
)
from pyspark_log.storage.record.decoding.record_fields cimport RecordFields, pass_bytes, take_any, take_usual
from pyspark_log.storage.record.wire cimport read_varint

cdef int LOG_APPEND_TIME = layout.LOG_APPEND_TIME

cdef const char* read_record_headers(
    const uint8_t* p, const uint8_t* stop, int32_t count, bint keep, Rows* rows
) noexcept nogil:
    cdef HeaderField field
    cdef const char* reason
    cdef int32_t left
    for left in range(count):
        if not read_varint(&p, stop, &field.key_length):
            return b"a header key's length is damaged"
        if not 0 <= field.key_length <= stop - p:
            return b"a header key's length is not inside its record"
        field.key = p
        p += field.key_length
        if not read_varint(&p, stop, &field.value_length):
            return b"a header value's length is damaged"
        field.value = p
        if not pass_bytes(&p, stop, field.value_length):
            return b"a header value's length is not inside its record"
        if keep:
            reason = note_header(rows, &field)
            if reason != NULL:
                return reason
    if p != stop:
        return b"it is shorter than its length says"
    return NULL


cdef const char* read_records(
    const Header* header, const uint8_t* data, const uint8_t* end, int64_t from_offset, int64_t until_offset, Rows* rows,
    int32_t* bad
) noexcept nogil:
    cdef const uint8_t* p = data
    cdef const char* reason = NULL
    cdef int64_t base_offset = header.base_offset
    cdef int64_t base_timestamp = header.base_timestamp
    cdef int64_t max_timestamp = header.max_timestamp
    cdef bint append_time = (header.attributes & LOG_APPEND_TIME) != 0
    cdef int32_t last_delta = header.last_offset_delta
    cdef int32_t records = header.count
    cdef int32_t index = 0, previous = -1
    cdef RecordFields record, other
    cdef int64_t offset, time
    # Local copies, since a compiler must assume that written bytes could be the struct itself.
    cdef int64_t row = rows.count, first_row = rows.count
    cdef int64_t* out_offset = rows.offset
    cdef int64_t* out_time = rows.time
    cdef int32_t* out_type = rows.time_type
    cdef int32_t* out_key_edge = rows.key_edge
    cdef int32_t* out_value_edge = rows.value_edge
    cdef uint8_t* out_key = rows.key
    cdef uint8_t* out_value = rows.value
    cdef int32_t key_end = out_key_edge[row]
    cdef int32_t value_end = out_value_edge[row]
    cdef int64_t header_start = 0
    cdef int64_t key_nulls = 0, value_nulls = 0, headers_nulls = 0
    cdef bint want_headers = rows.headers_edge != NULL
    cdef bint keep, is_usual
    # What holds for all records of most batches is checked once: all are in the range, and the short time delta of a
    # usual record, which has no headers, leads to no time that does not fit.
    cdef bint all_kept = from_offset <= base_offset and header.last_offset < until_offset
    cdef bint near_times = -(INT64_MAX // 2000) < base_timestamp < INT64_MAX // 2000
    cdef bint is_plain = all_kept and near_times and not append_time and not want_headers

    for index in range(records):
        is_usual = take_usual(p, end, &record)
        if not is_usual:
            reason = take_any(p, end, &other)
            if reason != NULL:
                break
            record.time_delta = other.time_delta
            record.key = other.key
            record.value = other.value
            record.headers = other.headers
            record.stop = other.stop
            record.offset_delta = other.offset_delta
            record.key_length = other.key_length
            record.value_length = other.value_length
            record.header_count = other.header_count
        p = record.stop
        # Kafka's brokers accept no other order, and a range of offsets could not be served with it.
        if not previous < record.offset_delta <= last_delta:
            reason = b"its offset delta is not between those of its neighbours"
            break
        previous = record.offset_delta
        offset = base_offset + record.offset_delta
        if is_plain and is_usual:
            time = base_timestamp + record.time_delta
        else:
            keep = all_kept or from_offset <= offset < until_offset
            if want_headers:
                header_start = rows.header_count
            if record.header_count != 0:
                reason = read_record_headers(
                    record.headers, record.stop, record.header_count, keep and want_headers, rows
                )
                if reason != NULL:
                    break
            if not keep:
                continue
            # A sum that overflows 64 bits wraps, as in Kafka, and is then out of range.
            time = max_timestamp
            if not append_time:
                time = <int64_t>(<uint64_t>base_timestamp + <uint64_t>record.time_delta)
            if not time_fits(time):
                reason = b"its timestamp does not fit a column of microseconds"
                break
        out_offset[row] = offset
        out_time[row] = time * 1000
        if record.key_length > 0 and out_key != NULL:
            copy_key(out_key + key_end, record.key, record.key_length, end)
            key_end += record.key_length
        elif record.key_length < 0:
            clear_bit(rows.key_valid, row)
            key_nulls += 1
        if record.value_length > 0 and out_value != NULL:
            copy_value(out_value + value_end, record.value, record.value_length, end)
            value_end += record.value_length
        elif record.value_length < 0:
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
    bad[0] = index
    if reason != NULL:
        return reason
    if p != end:
        bad[0] = -1
        return b"bytes remain after the last record"
    while first_row < row:
        out_type[first_row] = append_time
        first_row += 1
    rows.count = row
    rows.key_nulls += key_nulls
    rows.value_nulls += value_nulls
    rows.headers_nulls += headers_nulls
    return NULL
