# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Scans the headers of record batches, and changes them in place.

In formats 0 and 1 every message is a batch of its own. A compressed set of messages shows its
last offset only: the others are known once it is decompressed.
"""

from zlib import crc32

from pyspark_log.storage.record import layout
from pyspark_log.storage.record.layout import CODECS, BatchHeader
from pyspark_log.storage.record.checksum import crc32c
from pyspark_log.errors import CorruptRecordError

from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport INT64_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t

from pyspark_log.storage.record.wire cimport (
    load_i16, load_i32, load_i64, load_u32, store_i16, store_i32, store_i64, store_u32,
)

# The layout of the header, as C numbers.
cdef Py_ssize_t LENGTH_AT = layout.LENGTH_AT
cdef Py_ssize_t LEADER_EPOCH_AT = layout.LEADER_EPOCH_AT
cdef Py_ssize_t MAGIC_AT = layout.MAGIC_AT
cdef Py_ssize_t CRC_AT = layout.CRC_AT
cdef Py_ssize_t ATTRIBUTES_AT = layout.ATTRIBUTES_AT
cdef Py_ssize_t LAST_OFFSET_DELTA_AT = layout.LAST_OFFSET_DELTA_AT
cdef Py_ssize_t BASE_TIMESTAMP_AT = layout.BASE_TIMESTAMP_AT
cdef Py_ssize_t MAX_TIMESTAMP_AT = layout.MAX_TIMESTAMP_AT
cdef Py_ssize_t PRODUCER_ID_AT = layout.PRODUCER_ID_AT
cdef Py_ssize_t PRODUCER_EPOCH_AT = layout.PRODUCER_EPOCH_AT
cdef Py_ssize_t BASE_SEQUENCE_AT = layout.BASE_SEQUENCE_AT
cdef Py_ssize_t COUNT_AT = layout.COUNT_AT
cdef Py_ssize_t HEADER_SIZE = layout.HEADER_SIZE
cdef Py_ssize_t LENGTH_PREFIX = layout.LENGTH_PREFIX
cdef Py_ssize_t SCAN_SIZE = layout.SCAN_SIZE
cdef int MAGIC = layout.MAGIC
cdef int CODEC_MASK = layout.CODEC_MASK
cdef int LOG_APPEND_TIME = layout.LOG_APPEND_TIME
cdef int UNKNOWN_COUNT = layout.UNKNOWN_COUNT
cdef int CODEC_COUNT = len(CODECS)
cdef int ZSTD = CODECS.index("zstd")


cdef class Bytes:
    def __cinit__(self, buffer, Py_ssize_t start, Py_ssize_t end, bint writable=False):
        PyObject_GetBuffer(buffer, &self.view, PyBUF_WRITABLE if writable else PyBUF_SIMPLE)
        self.held = True
        self.data = <const uint8_t*>self.view.buf
        if not 0 <= start <= end <= self.view.len:
            raise ValueError(f"range {start}..{end} is not inside a buffer of {self.view.len} bytes")

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)


cdef const char* read_header(const uint8_t* p, Py_ssize_t held, Py_ssize_t left, Header* h) noexcept nogil:
    cdef int32_t length
    cdef Py_ssize_t smallest
    h.size = 0
    h.base_offset = -1
    if held < SCAN_SIZE:
        return NULL
    h.base_offset = load_i64(p)
    length = load_i32(p + LENGTH_AT)
    if length == 0:
        return NULL
    if length < SMALLEST_MESSAGE_0 - LENGTH_PREFIX:
        return b"the batch length is smaller than any batch"
    h.magic = <int8_t>p[MAGIC_AT]
    if h.magic == MAGIC:
        smallest = HEADER_SIZE
    elif h.magic == 1:
        smallest = SMALLEST_MESSAGE_1
    elif h.magic == 0:
        smallest = SMALLEST_MESSAGE_0
    else:
        return b"the magic byte is that of no message format"
    if length < smallest - LENGTH_PREFIX:
        return b"the batch length is smaller than a batch header"
    if length > left - LENGTH_PREFIX or held < smallest:
        return NULL
    if h.base_offset < 0:
        return b"the base offset is negative"
    if h.magic == MAGIC:
        read_batch(p, h)
    else:
        read_message(p, h)
    if h.last_offset_delta < 0:
        return b"the last offset delta is negative"
    if h.base_offset >= INT64_MAX - h.last_offset_delta:
        return b"the last offset is beyond 64 bits"
    if (h.attributes & CODEC_MASK) >= CODEC_COUNT:
        return b"the attributes name no codec"
    if h.magic < MAGIC and (h.attributes & CODEC_MASK) == ZSTD:
        return b"zstd is no codec of formats 0 and 1"
    if h.magic == MAGIC and h.count < 0:
        return b"the record count is negative"
    h.last_offset = h.base_offset + h.last_offset_delta
    h.size = length + LENGTH_PREFIX
    return NULL


cdef inline void read_batch(const uint8_t* p, Header* h) noexcept nogil:
    h.leader_epoch = load_i32(p + LEADER_EPOCH_AT)
    h.crc = load_u32(p + CRC_AT)
    h.attributes = load_i16(p + ATTRIBUTES_AT)
    h.last_offset_delta = load_i32(p + LAST_OFFSET_DELTA_AT)
    h.base_timestamp = load_i64(p + BASE_TIMESTAMP_AT)
    h.max_timestamp = load_i64(p + MAX_TIMESTAMP_AT)
    h.producer_id = load_i64(p + PRODUCER_ID_AT)
    h.producer_epoch = load_i16(p + PRODUCER_EPOCH_AT)
    h.base_sequence = load_i32(p + BASE_SEQUENCE_AT)
    h.count = load_i32(p + COUNT_AT)


cdef inline void read_message(const uint8_t* p, Header* h) noexcept nogil:
    # Bits that its format does not define are dropped, so that they are not mistaken for those of format 2.
    h.attributes = p[MESSAGE_ATTRIBUTES_AT] & (CODEC_MASK | LOG_APPEND_TIME if h.magic else CODEC_MASK)
    h.crc = load_u32(p + MESSAGE_CRC_AT)
    h.base_timestamp = h.max_timestamp = load_i64(p + MESSAGE_TIME_AT) if h.magic else -1
    h.last_offset_delta = 0
    h.leader_epoch = h.producer_epoch = h.base_sequence = -1
    h.producer_id = -1
    h.count = UNKNOWN_COUNT if h.attributes & CODEC_MASK else 1


cdef int write_header(uint8_t* p, const Header* h) except -1:
    store_i64(p, h.base_offset)
    store_i32(p + LENGTH_AT, <int32_t>(h.size - LENGTH_PREFIX))
    store_i32(p + LEADER_EPOCH_AT, h.leader_epoch)
    p[MAGIC_AT] = <uint8_t>MAGIC
    store_i16(p + ATTRIBUTES_AT, <int16_t>h.attributes)
    store_i32(p + LAST_OFFSET_DELTA_AT, h.last_offset_delta)
    store_i64(p + BASE_TIMESTAMP_AT, h.base_timestamp)
    store_i64(p + MAX_TIMESTAMP_AT, h.max_timestamp)
    store_i64(p + PRODUCER_ID_AT, h.producer_id)
    store_i16(p + PRODUCER_EPOCH_AT, <int16_t>h.producer_epoch)
    store_i32(p + BASE_SEQUENCE_AT, h.base_sequence)
    store_i32(p + COUNT_AT, h.count)
    store_u32(p + CRC_AT, batch_checksum(p, h.size))
    return 0


cdef uint32_t batch_checksum(const uint8_t* p, Py_ssize_t size) except? 0:
    return crc32c(PyMemoryView_FromMemory(<char*>p + ATTRIBUTES_AT, size - ATTRIBUTES_AT, PyBUF_READ))


cdef uint32_t message_checksum(const uint8_t* p, Py_ssize_t size) except? 0:
    return crc32(PyMemoryView_FromMemory(<char*>p + MAGIC_AT, size - MAGIC_AT, PyBUF_READ))


cdef int check_crc(const uint8_t* p, Py_ssize_t position, const Header* h) except -1:
    cdef uint32_t computed = batch_checksum(p, h.size) if h.magic == MAGIC else message_checksum(p, h.size)
    if computed != h.crc:
        raise corrupt(f"the header says CRC {h.crc:#010x}, the bytes have {computed:#010x}", position, h)
    return 0


cdef object corrupt(str reason, Py_ssize_t position, const Header* h):
    return CorruptRecordError(reason, position, h.base_offset)


cdef object as_tuple(const Header* h, Py_ssize_t position):
    return BatchHeader(
        position, h.base_offset, h.size, h.leader_epoch, h.magic, h.crc, h.attributes, h.last_offset_delta,
        h.base_timestamp, h.max_timestamp, h.producer_id, h.producer_epoch, h.base_sequence, h.count,
    )


def scan(buffer, Py_ssize_t start, Py_ssize_t end, *, bint check_crcs=False):
    """Returns the headers of the complete batches in `buffer[start:end]`, without reading their records.

    It ends, without an error, at an incomplete batch, and at a length field of 0 (the zeros
    of a preallocated file).

    Args:
        buffer: any contiguous bytes-like object.
        start, end: the range in bytes; `start` is the start of a batch.
        check_crcs: whether to verify each batch's CRC.

    Returns:
        A list of BatchHeader; positions count from the start of the buffer.

    Raises:
        CorruptRecordError: invalid header fields or a CRC mismatch.
    """
    cdef Bytes source = Bytes(buffer, start, end)
    cdef Header h
    cdef const char* reason
    cdef list found = []
    while True:
        reason = read_header(source.data + start, end - start, end - start, &h)
        if reason != NULL:
            raise corrupt(reason.decode(), start, &h)
        if h.size == 0:
            return found
        if check_crcs:
            check_crc(source.data + start, start, &h)
        found.append(as_tuple(&h, start))
        start += h.size


def headers_in(window, Py_ssize_t position, Py_ssize_t end):
    """Returns the headers of the batches that begin in a piece of a log; only the headers need be in it.

    It ends, without an error, at a header that is not completely in the window, at a batch that would pass
    `end`, and at a length field of 0. CRCs are not checked.

    Args:
        window: the bytes of the log from `position` on, where a batch starts.
        position, end: in bytes; the log's live bytes end at `end`.

    Returns:
        A list of BatchHeader with positions in the log. Those before a bad one are returned first: the
        error comes when the bad one is the window's first.

    Raises:
        CorruptRecordError: the window's first header has invalid fields.
    """
    cdef Bytes source = Bytes(window, 0, 0)
    cdef Py_ssize_t at = 0
    cdef Header h
    cdef const char* reason
    cdef list found = []
    while at < source.view.len:
        reason = read_header(source.data + at, source.view.len - at, end - position, &h)
        if reason != NULL and not found:
            raise corrupt(reason.decode(), position, &h)
        if reason != NULL or h.size == 0:
            break
        found.append(as_tuple(&h, position))
        at += h.size
        position += h.size
    return found


cdef int read_own(const uint8_t* p, Py_ssize_t position, Py_ssize_t end, Header* h) except -1:
    """Read the header of a whole batch of the format that is written."""
    cdef const char* reason = read_header(p + position, end - position, end - position, h)
    if reason != NULL:
        raise corrupt(reason.decode(), position, h)
    if h.size == 0:
        raise corrupt("the batch is not all there", position, h)
    if h.magic != MAGIC:
        raise corrupt(f"message format {h.magic} is read, but never changed", position, h)
    return 0


def assign_offsets(buffer, Py_ssize_t start, Py_ssize_t end, int64_t base_offset, int32_t leader_epoch):
    """Assigns consecutive offsets and a leader epoch to the batches in `buffer[start:end]`, in place.

    The CRC covers neither field. Nothing is changed if an error is raised.

    Args:
        buffer: a writable contiguous buffer.
        start, end: the range in bytes; it must hold complete batches of format 2 only.
        base_offset: offset of the first record of the first batch.
        leader_epoch: the epoch for every header.

    Returns:
        The offset after the last batch.

    Raises:
        CorruptRecordError: the range is not a chain of complete batches.
        ValueError: the offsets would be negative or pass 64 bits.
    """
    cdef Bytes target = Bytes(buffer, start, end, writable=True)
    cdef uint8_t* p = <uint8_t*>target.data
    cdef Header h
    cdef Py_ssize_t position = start
    cdef int64_t offset = base_offset
    if base_offset < 0:
        raise ValueError(f"base offset {base_offset} is negative")
    while position < end:
        read_own(p, position, end, &h)
        if offset >= INT64_MAX - h.last_offset_delta:
            raise ValueError(f"base offset {base_offset} leads beyond 64 bits")
        offset += h.last_offset_delta + 1
        position += h.size
    position, offset = start, base_offset
    while position < end:
        store_i64(p + position, offset)
        store_i32(p + position + LEADER_EPOCH_AT, leader_epoch)
        offset += <int64_t>load_i32(p + position + LAST_OFFSET_DELTA_AT) + 1
        position += load_i32(p + position + LENGTH_AT) + LENGTH_PREFIX
    return offset


def set_log_append_time(buffer, Py_ssize_t start, Py_ssize_t end, int64_t log_append_time):
    """Sets the append time of the batches in `buffer[start:end]`, in place, and updates their CRCs.

    It becomes the time of all their records (timestamp type LogAppendTime); the time stored in each record
    is not changed, as in Kafka's brokers. Nothing is changed if an error is raised.

    Args:
        buffer: a writable contiguous buffer.
        start, end: the range in bytes; it must hold complete batches of format 2 only.
        log_append_time: ms since the epoch.

    Raises:
        CorruptRecordError: the range is not a chain of complete batches, or a CRC is wrong: a new CRC would
            hide that.
        ValueError: a time that no record can have.
    """
    cdef Bytes target = Bytes(buffer, start, end, writable=True)
    cdef uint8_t* p = <uint8_t*>target.data
    cdef Header h
    cdef Py_ssize_t position = start
    check_append_time(log_append_time)
    while position < end:
        read_own(p, position, end, &h)
        check_crc(p + position, position, &h)
        position += h.size
    position = start
    while position < end:
        read_own(p, position, end, &h)
        h.attributes |= LOG_APPEND_TIME
        h.max_timestamp = log_append_time
        write_header(p + position, &h)
        position += h.size


cdef int check_append_time(int64_t time) except -1:
    if not 0 <= time <= INT64_MAX // 1000:
        raise ValueError(f"append time {time} ms is outside 0 to {INT64_MAX // 1000}")
    return 0
