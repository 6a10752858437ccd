# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Iterates over all batches of a dense log, of any format, for the log cleaner, and over the records of a batch, a block
at a time, noting where each is.

Every number and length that comes from a batch is compared with the end of the bytes before it is used:
any bytes give records or a fault. `record/builder.pyx` describes the layout of a record of format 2,
`record/headers.pxd` that of a message of formats 0 and 1.
"""

from pyspark_log.storage.record import layout
from pyspark_log.storage.record.layout import CODECS
from pyspark_log.storage.record.compression import decompress, mend_lz4_header
from pyspark_log.errors import BatchTooLargeError, CorruptRecordError

from cpython.buffer cimport PyBUF_READ
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from pyspark_log.storage.record.headers cimport MESSAGE_TIME_AT, Bytes, Header, check_crc, corrupt, read_header
from pyspark_log.storage.record.parse_legacy cimport fields, measure, survey, take_field, wrapped_set
from pyspark_log.storage.record.parse_v2 cimport SMALLEST_RECORD
from pyspark_log.storage.record.wire cimport load_i64, read_varint, read_varlong

cdef Py_ssize_t HEADER_SIZE = layout.HEADER_SIZE
cdef int MAGIC = layout.MAGIC
cdef Py_ssize_t MAGIC_AT = layout.MAGIC_AT
cdef int CODEC_MASK = layout.CODEC_MASK
cdef int LOG_APPEND_TIME = layout.LOG_APPEND_TIME
cdef int LZ4 = CODECS.index("lz4")

cdef enum:
    # Key length and value length of a header.
    SMALLEST_HEADER = 2


cdef class BatchWalk:
    """Not for use from Python; the buffer must not change while a piece of it is loaded."""

    cdef int load(self, buffer, Py_ssize_t start, Py_ssize_t end) except -1:
        self.source = Bytes(buffer, start, end)
        self.position = start
        self.end = end
        return 0

    cdef bint look(self) except -1:
        cdef const uint8_t* p = self.source.data + self.position
        cdef Py_ssize_t left = self.end - self.position
        cdef Header* h = &self.header
        cdef const char* reason = read_header(p, left, left, h)
        if reason != NULL:
            raise corrupt(reason.decode(), self.position, h)
        if h.size == 0:
            return False
        self.is_opened = False
        check_crc(p, self.position, h)
        if h.magic < MAGIC and h.attributes & CODEC_MASK:
            # The base offset of a message set is known only once it is decompressed.
            self.open()
        if self.follows >= 0 and h.base_offset != self.follows:
            raise corrupt(f"the batch before it ends at offset {self.follows}", self.position, h)
        return True

    cdef int open(self) except -1:
        if self.is_opened:
            return 0
        try:
            self.unpack()
        except BatchTooLargeError:
            raise BatchTooLargeError(self.header.size, self.limit, self.position, self.header.base_offset) from None
        except CorruptRecordError as error:
            raise CorruptRecordError(error.reason, self.position, self.header.base_offset) from error.__cause__
        self.is_opened = True
        return 0

    cdef int unpack(self) except -1:
        cdef const uint8_t* p = self.source.data + self.position
        cdef const uint8_t* stop = p + self.header.size
        cdef int codec = self.header.attributes & CODEC_MASK
        if self.header.magic == MAGIC:
            p += HEADER_SIZE
        elif codec:
            p = wrapped_set(p, stop)
        if codec:
            stream = PyMemoryView_FromMemory(<char*>p, stop - p, PyBUF_READ)
            if self.header.magic == 0 and codec == LZ4:
                stream = mend_lz4_header(stream)
            self.held = Bytes(decompress(CODECS[codec], stream, self.limit), 0, 0)
            p = self.held.data
            stop = p + self.held.view.len
        if self.header.magic < MAGIC and codec:
            survey(p, stop, True, &self.header)
        elif self.header.magic == MAGIC and self.header.count > (stop - p) // SMALLEST_RECORD:
            raise CorruptRecordError(f"{self.header.count} records do not fit into {stop - p} bytes")
        self.data = p
        self.data_end = stop
        return 0

    cdef void pass_by(self) noexcept:
        self.follows = self.header.last_offset + 1
        self.position += self.header.size

    cdef int refuse(self, const Walk* walk, const char* reason) except -1:
        raise corrupt(
            f"record {walk.done} of {walk.header.count}: {reason.decode()}", self.position, &self.header
        )


cdef void begin_walk(Walk* walk, const Header* header, const uint8_t* data, const uint8_t* end) noexcept nogil:
    walk.header = header[0]
    walk.at = data
    walk.end = end
    walk.done = 0
    walk.previous = -1
    walk.base = header.base_offset
    if header.magic < MAGIC:
        walk.base -= load_i64(data)


cdef const char* take_records(Walk* walk, Record* out, int most, int* taken) noexcept nogil:
    cdef const char* reason
    cdef bint own = walk.header.magic == MAGIC
    taken[0] = 0
    while taken[0] < most and walk.done < walk.header.count:
        reason = take_record(walk, &out[taken[0]]) if own else take_message(walk, &out[taken[0]])
        if reason != NULL:
            return reason
        walk.done += 1
        taken[0] += 1
    if walk.done == walk.header.count and walk.at != walk.end:
        return b"bytes remain after it, the last one"
    return NULL


cdef inline const char* pass_header(const uint8_t** at, const uint8_t* stop) noexcept nogil:
    cdef int32_t length
    if not read_varint(at, stop, &length) or not 0 <= length <= stop - at[0]:
        return b"a header key's length is not inside its record"
    at[0] += length
    if not read_varint(at, stop, &length) or length > stop - at[0]:
        return b"a header value's length is not inside its record"
    if length > 0:
        at[0] += length
    return NULL


cdef inline const char* take_record(Walk* walk, Record* record) noexcept nogil:
    cdef const uint8_t* p = walk.at
    cdef const uint8_t* stop
    cdef const char* reason
    cdef int32_t length, delta, header_count
    cdef int64_t time_delta
    record.start = p
    if not read_varint(&p, walk.end, &length):
        return b"its length is damaged, or the records end too early"
    if not SMALLEST_RECORD - 1 <= length <= walk.end - p:
        return b"its length is not inside the batch"
    record.end = stop = p + length
    p += 1
    if not read_varlong(&p, stop, &time_delta):
        return b"its timestamp delta is damaged"
    record.rest = p
    if not read_varint(&p, stop, &delta):
        return b"its offset delta is damaged"
    if not walk.previous < delta <= walk.header.last_offset_delta:
        return b"its offset delta is not between those of its neighbours"
    walk.previous = delta
    record.offset = walk.base + delta
    record.time = walk.header.max_timestamp
    if not walk.header.attributes & LOG_APPEND_TIME:
        # A sum beyond 64 bits wraps, as in Kafka.
        record.time = <int64_t>(<uint64_t>walk.header.base_timestamp + <uint64_t>time_delta)
    if not read_varint(&p, stop, &record.key_length):
        return b"its key length is damaged"
    record.key = p
    if record.key_length > 0:
        if record.key_length > stop - p:
            return b"its key length is not inside the record"
        p += record.key_length
    if not read_varint(&p, stop, &length):
        return b"its value length is damaged"
    record.has_value = length >= 0
    if length > 0:
        if length > stop - p:
            return b"its value length is not inside the record"
        p += length
    if not read_varint(&p, stop, &header_count):
        return b"its header count is damaged"
    if header_count != 0:
        if not 0 < header_count <= (stop - p) // SMALLEST_HEADER:
            return b"its header count is not inside the record"
        while header_count > 0:
            reason = pass_header(&p, stop)
            if reason != NULL:
                return reason
            header_count -= 1
    if p != stop:
        return b"it is shorter than its length says"
    walk.at = stop
    return NULL


cdef inline const char* take_message(Walk* walk, Record* record) noexcept nogil:
    cdef const uint8_t* p = walk.at
    cdef const uint8_t* stop
    cdef Py_ssize_t size = 0
    cdef int32_t length
    cdef const char* reason = measure(p, walk.end, &size)
    if reason != NULL:
        return reason
    record.start = record.rest = p
    record.end = stop = p + size
    record.offset = walk.base + load_i64(p)
    record.time = -1
    if p[MAGIC_AT]:
        record.time = load_i64(p + MESSAGE_TIME_AT)
    p = fields(p)
    if not take_field(&p, stop, &record.key_length):
        return b"its key length is not inside the message"
    record.key = p
    p += max(record.key_length, 0)
    if not take_field(&p, stop, &length):
        return b"its value length is not inside the message"
    record.has_value = length >= 0
    if p + max(length, 0) != stop:
        return b"it is shorter than its length says"
    walk.at = stop
    return NULL
