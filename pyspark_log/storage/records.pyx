# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Record batches of format 2: from Arrow columns to bytes and back.

The unit of work is a column. No Python object is made for a record, and no loop over records or
batches runs in Python. Every number and length that comes from a batch is compared with the end of
the bytes before it is used: any bytes give rows or a CorruptRecordError.

The record (Kafka's DefaultRecord, KIP-98; all but `attributes` are zigzag varints):

    length | attributes int8 (0) | timestamp delta | offset delta | key length | key
    | value length | value | header count | headers: key length, key, value length, value

A length of -1 is null. The length of the record counts what follows it.
"""

import pyarrow as pa

from pyspark_log.storage import batch as layout
from pyspark_log.storage.arrow_views import bytes_view, fixed_view, list_view, struct_view
from pyspark_log.storage.batch import CODECS, HEADER, BatchHeader
from pyspark_log.storage.checksum import crc32c
from pyspark_log.storage.compression import check_codec, compress, decompress
from pyspark_log.storage.errors import CorruptRecordError, InvalidRecordError, RecordTooLargeError

from cpython.buffer cimport (
    PyBUF_CONTIG_RO, PyBUF_FORMAT, PyBUF_READ, PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release,
    PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.ref cimport Py_INCREF, Py_XDECREF, PyObject
from libc.stdint cimport (
    INT64_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t,
)
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from pyspark_log.storage.columns cimport Column, edge, edges_fit, find, is_null, open_column
from pyspark_log.storage.wire cimport (
    load_i16, load_i32, load_i64, load_u32, read_varint, read_varlong, store_i16, store_i32, store_i64,
    store_u32, varint_size, write_varint, zigzag,
)

#: Bytes of records that one batch may hold once it is decompressed. It bounds the memory that a
#: reader needs, and keeps every column far below the 2 GiB that Arrow's 32-bit offsets reach.
MAX_BATCH_BYTES = 512 * 1024 * 1024

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
cdef int TRANSACTIONAL = layout.TRANSACTIONAL
cdef int CONTROL = layout.CONTROL
cdef int CODEC_COUNT = len(CODECS)

cdef object MAX_BATCH = MAX_BATCH_BYTES
cdef Py_ssize_t MAX_CHUNK = MAX_BATCH_BYTES

cdef enum:
    # A message of format 0 is the smallest entry that a log can hold.
    SMALLEST_LENGTH = 14
    # Length, attributes, two deltas, two lengths and a header count, of one byte each.
    SMALLEST_RECORD = 7
    # Key length and value length of a header.
    SMALLEST_HEADER = 2
    # Short values are copied as one block of this size, whatever their length.
    BLOCK = 16

# A time in ms must fit a column of microseconds.
cdef int64_t MAX_TIME = INT64_MAX // 1000

cdef object BINARY = pa.binary()
cdef object STRING = pa.string()
cdef object INT32 = pa.int32()
cdef object INT64 = pa.int64()
cdef object TIMES = (pa.int64(), pa.timestamp("ms"))
cdef object TIMESTAMP = pa.timestamp("us", tz="UTC")
cdef object HEADER_TYPE = pa.struct([("key", pa.string()), ("value", pa.binary())])
cdef object HEADERS_TYPE = pa.list_(HEADER_TYPE)


cdef extern from *:
    # Not in Cython's own declarations: this one takes a reference that the caller manages.
    int resize_bytes "_PyBytes_Resize"(PyObject** bytes, Py_ssize_t size) except -1


cdef class _Bytes:
    """A range of bytes that someone else owns, kept in place until this object goes."""

    cdef Py_buffer view
    cdef const uint8_t* data
    cdef bint held

    def __cinit__(self, buffer, Py_ssize_t start, Py_ssize_t end, bint writable=False):
        PyObject_GetBuffer(buffer, &self.view, PyBUF_WRITABLE if writable else PyBUF_SIMPLE)
        self.held = True
        self.data = <const uint8_t*>self.view.buf
        if not 0 <= start <= end <= self.view.len:
            raise ValueError(f"range {start}..{end} is not inside a buffer of {self.view.len} bytes")

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)


cdef uint32_t _checksum(const uint8_t* data, Py_ssize_t size) except? 0:
    return crc32c(PyMemoryView_FromMemory(<char*>data, size, PyBUF_READ))


# ---------------------------------------------------------------------------------------------------
# Headers

cdef struct Header:
    int64_t base_offset
    int64_t last_offset
    Py_ssize_t size  # 0: the batch is not all there
    uint32_t crc
    int attributes
    int64_t base_timestamp
    int64_t max_timestamp
    int32_t last_offset_delta
    int32_t count


cdef const char* _read_header(const uint8_t* p, Py_ssize_t available, Header* h) noexcept nogil:
    """Read the header at `p`; returns what is wrong with it, or NULL.

    Less than a whole batch, or the zeros of a file that was made longer in advance, is not wrong: the
    size is 0 then.
    """
    cdef int32_t length
    h.size = 0
    h.base_offset = -1
    if available < SCAN_SIZE:
        return NULL
    h.base_offset = load_i64(p)
    length = load_i32(p + LENGTH_AT)
    if length == 0:
        return NULL
    if length < SMALLEST_LENGTH:
        return b"the batch length is smaller than any batch"
    if p[MAGIC_AT] != MAGIC:
        if p[MAGIC_AT] < MAGIC:
            return b"message formats 0 and 1 are not supported"
        return b"the magic byte is that of no message format"
    if length < HEADER_SIZE - LENGTH_PREFIX:
        return b"the batch length is smaller than a batch header"
    if length > available - LENGTH_PREFIX:
        return NULL
    h.crc = load_u32(p + CRC_AT)
    h.attributes = load_i16(p + ATTRIBUTES_AT)
    h.last_offset_delta = load_i32(p + LAST_OFFSET_DELTA_AT)
    h.base_timestamp = load_i64(p + BASE_TIMESTAMP_AT)
    h.max_timestamp = load_i64(p + MAX_TIMESTAMP_AT)
    h.count = load_i32(p + COUNT_AT)
    if h.base_offset < 0:
        return b"the base offset is negative"
    if h.last_offset_delta < 0:
        return b"the last offset delta is negative"
    if h.base_offset >= INT64_MAX - h.last_offset_delta:
        return b"the last offset is beyond 64 bits"
    if (h.attributes & CODEC_MASK) >= CODEC_COUNT:
        return b"the attributes name no codec"
    if h.count < 0:
        return b"the record count is negative"
    h.last_offset = h.base_offset + h.last_offset_delta
    h.size = length + LENGTH_PREFIX
    return NULL


cdef object _corrupt(str reason, Py_ssize_t position, const Header* h):
    return CorruptRecordError(reason, position, h.base_offset)


cdef int _check_crc(const uint8_t* p, Py_ssize_t position, const Header* h) except -1:
    cdef uint32_t computed = _checksum(p + ATTRIBUTES_AT, h.size - ATTRIBUTES_AT)
    if computed != h.crc:
        raise _corrupt(f"the header says CRC {h.crc:#010x}, the bytes have {computed:#010x}", position, h)
    return 0


def scan(buffer, Py_ssize_t start, Py_ssize_t end, *, bint check_crcs=False):
    """Headers of the whole batches in `buffer[start:end]`, without looking at their records.

    It ends, without an error, at a batch that is not all there, and at a length field of 0 (the zeros
    of a file that was made longer in advance).

    Args:
        buffer: any contiguous bytes-like object.
        start, end: the range in bytes; `start` is the start of a batch.
        check_crcs: whether to compare each batch's CRC-32C.

    Returns:
        A list of BatchHeader; positions count from the start of the buffer.

    Raises:
        CorruptRecordError: a header that makes no sense, or a wrong CRC.
    """
    cdef _Bytes source = _Bytes(buffer, start, end)
    cdef Header h
    cdef const char* reason
    cdef list found = []
    while True:
        reason = _read_header(source.data + start, end - start, &h)
        if reason != NULL:
            raise _corrupt(reason.decode(), start, &h)
        if h.size == 0:
            return found
        if check_crcs:
            _check_crc(source.data + start, start, &h)
        base, _, *rest = HEADER.unpack(source.data[start : start + HEADER_SIZE])
        found.append(BatchHeader(start, base, h.size, *rest))
        start += h.size


def stamp(buffer, Py_ssize_t start, Py_ssize_t end, int64_t base_offset, int32_t leader_epoch):
    """Give the batches in `buffer[start:end]` consecutive offsets and a leader epoch, in place.

    The CRC covers neither field. Nothing is changed if an error is raised.

    Args:
        buffer: a writable contiguous buffer.
        start, end: the range in bytes; it must hold whole batches only.
        base_offset: offset of the first record of the first batch.
        leader_epoch: the epoch that goes into every header.

    Returns:
        The offset behind the last batch.

    Raises:
        CorruptRecordError: the range is no chain of whole batches.
        ValueError: the offsets would be negative or pass 64 bits.
    """
    cdef _Bytes target = _Bytes(buffer, start, end, writable=True)
    cdef uint8_t* p = <uint8_t*>target.data
    cdef Header h
    cdef Py_ssize_t position = start
    cdef int64_t offset = base_offset
    cdef const char* reason
    if base_offset < 0:
        raise ValueError(f"base offset {base_offset} is negative")
    while position < end:
        reason = _read_header(p + position, end - position, &h)
        if reason != NULL:
            raise _corrupt(reason.decode(), position, &h)
        if h.size == 0:
            raise _corrupt("the batch is not all there", position, &h)
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


# ---------------------------------------------------------------------------------------------------
# Writing

cdef class RecordColumns:
    """Columns of records to be written, seen as raw memory; keeps them alive.

    All checks happen here, once for each column, so that nothing is refused half-way.

    Args:
        key, value: binary or string in any of Arrow's layouts; None or the null type: all null.
        timestamp: int64 or timestamp in ms; a null is `now`, -1 is "no time".
        headers: list<struct<key: string, value: binary>>; a null list is no headers.
        now: ms since the epoch.

    Raises:
        InvalidRecordError: a wrong type, columns of different lengths, a time below -1 or beyond what
            microseconds can hold, a header without a key.
    """

    cdef readonly Py_ssize_t num_rows
    cdef Column key
    cdef Column value
    cdef Column time
    cdef Column headers
    cdef Column header
    cdef Column header_key
    cdef Column header_value
    cdef int64_t now
    cdef list views

    def __init__(self, key, value, timestamp, headers, int64_t now):
        lengths = {len(column) for column in (key, value, timestamp, headers) if column is not None}
        if len(lengths) != 1:
            raise InvalidRecordError(f"the columns must have one length, not {sorted(lengths)}")
        self.num_rows = lengths.pop()
        self.now = now
        self.views = []
        self.key = self.open_bytes(key, "key")
        self.value = self.open_bytes(value, "value")
        view = None if timestamp is None else fixed_view(timestamp, "timestamp", TIMES)
        self.views.append(view)
        self.time = open_column(view)
        self.open_headers(headers)
        self.check_times()

    cdef Column open_bytes(self, array, str name) except *:
        view = None if array is None else bytes_view(array, name)
        self.views.append(view)
        cdef Column column = open_column(view)
        if not edges_fit(&column):
            raise InvalidRecordError(f"column {name}: its offsets do not fit its data")
        return column

    cdef int open_headers(self, array) except -1:
        self.headers = open_column(None)
        if array is None or pa.types.is_null(array.type):
            return 0
        view = list_view(array, "headers")
        kind = array.type.value_type
        if not pa.types.is_struct(kind) or sorted(field.name for field in kind) != ["key", "value"]:
            raise InvalidRecordError(
                f"column headers must be list<struct<key: string, value: binary>>, not {array.type}"
            )
        structs = array.values
        keys = structs.field("key")
        if not (pa.types.is_string(keys.type) or pa.types.is_large_string(keys.type)
                or pa.types.is_string_view(keys.type)):
            raise InvalidRecordError(f"a header's key must be string, not {keys.type}")
        header_view = struct_view(structs, "headers")
        self.views += [view, header_view]
        self.headers = open_column(view)
        self.header = open_column(header_view)
        self.header_key = self.open_bytes(keys, "headers.key")
        self.header_value = self.open_bytes(structs.field("value"), "headers.value")
        if not edges_fit(&self.headers):
            raise InvalidRecordError("column headers: its offsets do not fit its data")
        cdef int64_t row, index
        for row in range(self.num_rows):
            if is_null(&self.headers, row):
                continue
            for index in range(edge(&self.headers, row), edge(&self.headers, row + 1)):
                if is_null(&self.header, index) or is_null(&self.header_key, index):
                    raise InvalidRecordError(f"row {row} has a header without a key")
        return 0

    cdef int check_times(self) except -1:
        cdef int64_t row, time
        for row in range(self.num_rows):
            time = _time_of(self, row)
            if not -1 <= time <= MAX_TIME:
                raise InvalidRecordError(
                    f"row {row} has timestamp {time} ms, outside -1 (none) to {MAX_TIME}"
                )
        return 0


cdef inline int64_t _time_of(RecordColumns columns, int64_t row) noexcept nogil:
    if is_null(&columns.time, row):
        return columns.now
    return (<const int64_t*>columns.time.data)[columns.time.first + row]


cdef inline int64_t _headers_size(RecordColumns columns, int64_t row, int64_t* count) noexcept nogil:
    """Bytes of the headers of a row without their count, which goes to `count`."""
    cdef int64_t index, first, stop, length, size = 0
    cdef const uint8_t* unused
    count[0] = 0
    if is_null(&columns.headers, row):
        return 0
    first, stop = edge(&columns.headers, row), edge(&columns.headers, row + 1)
    count[0] = stop - first
    for index in range(first, stop):
        length = find(&columns.header_key, index, &unused)
        size += varint_size(zigzag(length)) + length
        length = find(&columns.header_value, index, &unused)
        size += varint_size(zigzag(length)) + (length if length > 0 else 0)
    return size


cdef inline uint8_t* _write_bytes(uint8_t* p, const uint8_t* data, int64_t length) noexcept nogil:
    p = write_varint(p, zigzag(length))
    if length > 0:
        memcpy(p, data, length)
        p += length
    return p


cdef inline uint8_t* _write_headers(RecordColumns columns, int64_t row, uint8_t* p) noexcept nogil:
    cdef int64_t index, length
    cdef const uint8_t* data = NULL
    for index in range(edge(&columns.headers, row), edge(&columns.headers, row + 1)):
        length = find(&columns.header_key, index, &data)
        p = _write_bytes(p, data, length)
        length = find(&columns.header_value, index, &data)
        p = _write_bytes(p, data, length)
    return p


cdef enum Stop:
    ALL_TAKEN, BATCH_FULL, NEEDS_ROOM, NO_SUCH_ROW, TOO_LARGE


cdef class BatchBuilder:
    """One record batch in the making; takes rows of any number of RecordColumns. Not thread-safe.

    Args:
        batch_size: bytes of uncompressed records at which a batch is full. A larger record makes a
            batch of its own.
        max_message_bytes: the largest batch, in bytes with its header, after compression.
        codec: one of `batch.CODECS`.
        level: the codec's level; None for Kafka's default.

    Attributes:
        count: records in the batch so far.
        size: their bytes, before compression and without the header.

    Raises:
        InvalidConfigError: an unknown codec or level.
    """

    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t size
    cdef Py_ssize_t batch_size
    cdef Py_ssize_t max_message_bytes
    cdef object codec
    cdef object level
    # The batch grows inside the bytes object that `seal` returns, so that it is never copied.
    # Nobody else sees the object before that. Its records start behind the room for the header.
    cdef PyObject* target
    cdef uint8_t* data
    cdef Py_ssize_t capacity
    cdef Py_ssize_t usual
    cdef int64_t base_timestamp
    cdef int64_t max_timestamp

    def __cinit__(self):
        self.target = NULL

    def __init__(self, Py_ssize_t batch_size, Py_ssize_t max_message_bytes, str codec="none", level=None):
        check_codec(codec, level)
        self.batch_size = min(batch_size, MAX_CHUNK)
        self.max_message_bytes = max_message_bytes
        self.codec = codec
        self.level = level
        self.usual = HEADER_SIZE + 1024
        self.clear()

    def __dealloc__(self):
        Py_XDECREF(self.target)

    cdef void clear(self):
        self.count = self.size = 0
        self.base_timestamp = self.max_timestamp = -1

    cdef int reserve(self, Py_ssize_t more) except -1:
        """Make room for `more` bytes behind the records."""
        cdef Py_ssize_t needed = HEADER_SIZE + self.size + more
        cdef Py_ssize_t wanted
        if needed <= self.capacity:
            return 0
        # By doubling, but a batch of the usual kind never needs more than its full size.
        wanted = max(2 * self.capacity, self.usual)
        wanted = max(min(wanted, HEADER_SIZE + self.batch_size), needed)
        self.capacity = 0
        if self.target == NULL:
            fresh = PyBytes_FromStringAndSize(NULL, wanted)
            Py_INCREF(fresh)
            self.target = <PyObject*>fresh
            del fresh
        else:
            try:
                resize_bytes(&self.target, wanted)
            except MemoryError:
                self.clear()  # the records are gone with the bytes object
                raise
        self.data = <uint8_t*>PyBytes_AS_STRING(<object>self.target)
        self.capacity = wanted
        return 0

    def append(self, RecordColumns columns not None, rows, Py_ssize_t lo, Py_ssize_t hi):
        """Take rows until the batch is full.

        Args:
            columns: the records.
            rows: an int32 buffer of row numbers, of which [lo, hi) are meant; None means the rows
                [lo, hi) themselves.
            lo, hi: see `rows`.

        Returns:
            How many were taken: all, or as many as fit into `batch_size`. The first record of a batch
            always fits.

        Raises:
            RecordTooLargeError: a single record of more than MAX_BATCH_BYTES.
            IndexError: a row that is not there.
        """
        cdef Py_buffer view
        cdef const int32_t* picked = NULL
        cdef Py_ssize_t length = columns.num_rows
        if rows is not None:
            PyObject_GetBuffer(rows, &view, PyBUF_CONTIG_RO | PyBUF_FORMAT)
            picked = <const int32_t*>view.buf
            length = view.len // <Py_ssize_t>sizeof(int32_t)
        try:
            if rows is not None and (view.format == NULL or view.format[0] != c"i" or view.format[1] != 0):
                raise TypeError("rows must be a buffer of format 'i'")
            if not 0 <= lo <= hi <= length:
                raise IndexError(f"rows {lo}..{hi} of {length}")
            return self.take(columns, picked, lo, hi) - lo
        finally:
            if rows is not None:
                PyBuffer_Release(&view)

    cdef Py_ssize_t take(
        self, RecordColumns columns, const int32_t* picked, Py_ssize_t lo, Py_ssize_t hi
    ) except -1:
        """Take rows from `lo` on; returns the first one that was not taken."""
        cdef Py_ssize_t needed = 0
        cdef Stop stop
        while True:
            with nogil:
                stop = self.write(columns, picked, &lo, hi, &needed)
            if stop == NEEDS_ROOM:
                self.reserve(needed)
            elif stop == NO_SUCH_ROW:
                raise IndexError(f"row {picked[lo]} of {columns.num_rows}")
            elif stop == TOO_LARGE:
                raise RecordTooLargeError(
                    f"a record of {needed} bytes is more than the {MAX_CHUNK} bytes that a batch can hold"
                )
            else:
                return lo

    cdef Stop write(
        self, RecordColumns columns, const int32_t* picked, Py_ssize_t* at, Py_ssize_t hi, Py_ssize_t* needed
    ) noexcept nogil:
        """Write rows from `at` on, which moves along; says why it stopped."""
        cdef Py_ssize_t index = at[0]
        cdef Py_ssize_t size = self.size
        cdef Py_ssize_t count = self.count
        cdef Py_ssize_t room = self.capacity - HEADER_SIZE
        cdef Py_ssize_t num_rows = columns.num_rows
        cdef Py_ssize_t batch_size = self.batch_size
        cdef uint8_t* records = self.data + HEADER_SIZE
        cdef int64_t base = self.base_timestamp
        cdef int64_t latest = self.max_timestamp
        cdef bint with_headers = not columns.headers.absent
        cdef const uint8_t* key = NULL
        cdef const uint8_t* value = NULL
        cdef int64_t row, time, delta, key_length, value_length, headers_length, body, total
        cdef int64_t header_count = 0
        cdef uint8_t* p
        cdef Stop stop = ALL_TAKEN
        while index < hi:
            row = picked[index] if picked != NULL else index
            if not 0 <= row < num_rows:
                stop = NO_SUCH_ROW
                break
            time = _time_of(columns, row)
            delta = 0 if count == 0 else time - base
            key_length = find(&columns.key, row, &key)
            value_length = find(&columns.value, row, &value)
            headers_length = _headers_size(columns, row, &header_count) if with_headers else 0
            body = (
                1 + varint_size(zigzag(delta)) + varint_size(zigzag(count))
                + varint_size(zigzag(key_length)) + (key_length if key_length > 0 else 0)
                + varint_size(zigzag(value_length)) + (value_length if value_length > 0 else 0)
                + varint_size(zigzag(header_count)) + headers_length
            )
            total = varint_size(zigzag(body)) + body
            if count > 0 and size + total > batch_size:
                stop = BATCH_FULL
                break
            if total > MAX_CHUNK:
                needed[0] = total
                stop = TOO_LARGE
                break
            if size + total > room:
                needed[0] = total
                stop = NEEDS_ROOM
                break
            if count == 0:
                base = latest = time
            elif time > latest:
                latest = time
            p = write_varint(records + size, zigzag(body))
            p[0] = 0
            p = write_varint(p + 1, zigzag(delta))
            p = write_varint(p, zigzag(count))
            p = _write_bytes(p, key, key_length)
            p = _write_bytes(p, value, value_length)
            p = write_varint(p, zigzag(header_count))
            if header_count > 0:
                _write_headers(columns, row, p)
            size += total
            count += 1
            index += 1
        at[0] = index
        self.size, self.count = size, count
        self.base_timestamp, self.max_timestamp = base, latest
        return stop

    def seal(
        self, *, int64_t base_offset=0, int32_t leader_epoch=-1, int64_t producer_id=-1,
        int16_t producer_epoch=-1, int32_t base_sequence=-1, bint transactional=False, bint control=False,
    ):
        """The batch as bytes: compressed, with its header and CRC-32C. The builder is empty afterwards.

        Args:
            base_offset: offset of its first record; the others follow without gaps.
            leader_epoch: -1 for none.
            producer_id, producer_epoch, base_sequence: of an idempotent producer; -1 for none.
            transactional, control: attribute bits.

        Raises:
            RecordTooLargeError: the batch is larger than `max_message_bytes`. Its records are gone.
            ValueError: there are no records.
        """
        cdef Py_ssize_t size
        cdef int attributes = CODECS.index(self.codec)
        cdef uint8_t* p
        if self.count == 0:
            raise ValueError("a batch needs at least one record")
        try:
            result = self.compressed() if attributes else self.uncompressed()
            size = len(result)
            if size > self.max_message_bytes:
                raise RecordTooLargeError(
                    f"a batch of {self.count} record(s) has {size} bytes, but max.message.bytes allows "
                    f"{self.max_message_bytes}: raise max.message.bytes of the topic"
                    + ("" if self.count == 1 else " or lower batch.size")
                )
            if transactional:
                attributes |= TRANSACTIONAL
            if control:
                attributes |= CONTROL
            p = <uint8_t*>PyBytes_AS_STRING(result)
            store_i64(p, base_offset)
            store_i32(p + LENGTH_AT, <int32_t>(size - LENGTH_PREFIX))
            store_i32(p + LEADER_EPOCH_AT, leader_epoch)
            p[MAGIC_AT] = <uint8_t>MAGIC
            store_i16(p + ATTRIBUTES_AT, <int16_t>attributes)
            store_i32(p + LAST_OFFSET_DELTA_AT, <int32_t>(self.count - 1))
            store_i64(p + BASE_TIMESTAMP_AT, self.base_timestamp)
            store_i64(p + MAX_TIMESTAMP_AT, self.max_timestamp)
            store_i64(p + PRODUCER_ID_AT, producer_id)
            store_i16(p + PRODUCER_EPOCH_AT, producer_epoch)
            store_i32(p + BASE_SEQUENCE_AT, base_sequence)
            store_i32(p + COUNT_AT, <int32_t>self.count)
            store_u32(p + CRC_AT, _checksum(p + ATTRIBUTES_AT, size - ATTRIBUTES_AT))
            return result
        finally:
            self.clear()

    cdef bytes uncompressed(self):
        """The bytes object that the batch grew in, cut to its size; the builder lets go of it."""
        cdef PyObject* target = self.target
        # The next batch will be about as large; room that it does not need would be given back each time.
        self.usual = HEADER_SIZE + self.size + self.size // 4
        self.target = NULL
        self.capacity = 0
        resize_bytes(&target, HEADER_SIZE + self.size)
        result = <bytes>target
        Py_XDECREF(target)
        return result

    cdef bytes compressed(self):
        """Room for a header, and the compressed records behind it."""
        records = PyMemoryView_FromMemory(<char*>self.data + HEADER_SIZE, self.size, PyBUF_READ)
        cdef _Bytes payload = _Bytes(compress(self.codec, records, self.level), 0, 0)
        result = PyBytes_FromStringAndSize(NULL, HEADER_SIZE + payload.view.len)
        memcpy(PyBytes_AS_STRING(result) + HEADER_SIZE, payload.data, payload.view.len)
        return result


# ---------------------------------------------------------------------------------------------------
# Reading

cdef struct Span:
    # One batch that was admitted: its records (decompressed), and what its header says of them.
    const uint8_t* data
    const uint8_t* end
    Py_ssize_t position
    int64_t offset_before  # `next_offset` of a chunk that ends before this batch
    Header header


cdef struct HeaderField:
    const uint8_t* key
    const uint8_t* value
    int32_t key_length
    int32_t value_length


cdef struct Rows:
    # Output columns, with room for all rows that the batches can give, and how far they are filled.
    int64_t* offset
    int64_t* time
    int32_t* time_type
    int32_t* key_edge
    int32_t* value_edge
    uint8_t* key
    uint8_t* value
    uint8_t* key_valid
    uint8_t* value_valid
    int64_t count
    int64_t key_nulls
    int64_t value_nulls
    # Headers are noted first and copied at the end, when it is known how many there are.
    int32_t* headers_edge  # NULL: nobody wants them
    uint8_t* headers_valid
    int64_t headers_nulls
    HeaderField* header
    int64_t header_count
    int64_t header_room


cdef inline void _clear_bit(uint8_t* bitmap, int64_t index) noexcept nogil:
    bitmap[index >> 3] &= <uint8_t>~(1 << (index & 7))


cdef inline void _copy(
    uint8_t* to, const uint8_t* data, Py_ssize_t length, const uint8_t* end
) noexcept nogil:
    # Columns have room for a block behind their last byte; the source may not.
    if length <= BLOCK and end - data >= BLOCK:
        memcpy(to, data, BLOCK)
    else:
        memcpy(to, data, length)


cdef const char* _read_headers(
    const uint8_t** at, const uint8_t* stop, int32_t count, bint keep, Rows* rows
) noexcept nogil:
    cdef HeaderField field
    cdef HeaderField* grown
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
            if rows.header_count == rows.header_room:
                rows.header_room = 2 * rows.header_room + 64
                grown = <HeaderField*>realloc(rows.header, rows.header_room * sizeof(HeaderField))
                if grown == NULL:
                    return b"there is no memory for its headers"
                rows.header = grown
            rows.header[rows.header_count] = field
            rows.header_count += 1
    return NULL


cdef const char* _read_records(
    const Span* span, int64_t from_offset, int64_t until_offset, Rows* rows, int32_t* bad
) noexcept nogil:
    """Append the records of one batch to `rows`; returns what is wrong, and in `bad` with which."""
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
    # Local copies, since bytes that are written could otherwise be the struct itself to a compiler.
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
        # Kafka's brokers admit no other order, and a range of offsets could not be served with it.
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
            reason = _read_headers(&p, stop, header_count, keep and want_headers, rows)
            if reason != NULL:
                return reason
        if p != stop:
            return b"it is shorter than its length says"
        if not keep:
            continue
        # A sum that leaves 64 bits wraps, as it does in Kafka, and is then out of range.
        time = max_timestamp if append_time else <int64_t>(<uint64_t>base_timestamp + <uint64_t>time_delta)
        if not -MAX_TIME <= time <= MAX_TIME:
            return b"its timestamp does not fit a column of microseconds"
        out_offset[row] = offset
        out_time[row] = time * 1000
        out_type[row] = append_time
        if key_length > 0:
            _copy(out_key + key_end, key, key_length, end)
            key_end += key_length
        elif key_length < 0:
            _clear_bit(rows.key_valid, row)
            key_nulls += 1
        if value_length > 0:
            _copy(out_value + value_end, value, value_length, end)
            value_end += value_length
        elif value_length < 0:
            _clear_bit(rows.value_valid, row)
            value_nulls += 1
        if want_headers:
            if rows.header_count == header_start:
                _clear_bit(rows.headers_valid, row)
                headers_nulls += 1
            rows.headers_edge[row + 1] = <int32_t>rows.header_count
        row += 1
        out_key_edge[row] = key_end
        out_value_edge[row] = value_end
    if p != end:
        bad[0] = -1
        return b"bytes remain behind the last record"
    rows.count = row
    rows.key_nulls += key_nulls
    rows.value_nulls += value_nulls
    rows.headers_nulls += headers_nulls
    return NULL


cdef const char* _read_spans(
    const Span* spans, Py_ssize_t count, int64_t from_offset, int64_t until_offset, Rows* rows,
    Py_ssize_t* done, int32_t* bad
) noexcept nogil:
    """Append the records of batches to `rows`, up to a bad one; `done` tells how many were good."""
    cdef const char* reason
    cdef int64_t header_count
    done[0] = 0
    while done[0] < count:
        header_count = rows.header_count
        reason = _read_records(&spans[done[0]], from_offset, until_offset, rows, bad)
        if reason != NULL:
            rows.header_count = header_count
            return reason
        done[0] += 1
    return NULL


cdef class Chunk:
    """What `decode` made of some batches.

    Attributes:
        columns: key, value (binary), offset (int64), timestamp (timestamp[us, UTC]), timestampType
            (int32: 0 created, 1 appended), and headers if they were asked for.
        num_rows: length of the columns.
        position: where the last batch that was consumed ends, in bytes from the start of the buffer.
        next_offset: the offset behind that batch; what was asked for, if there was none.
        follows: what the next call is to be given as `follows`: the offset behind the last batch, passed
            over or not.
    """

    cdef readonly dict columns
    cdef readonly Py_ssize_t num_rows
    cdef readonly Py_ssize_t position
    cdef readonly int64_t next_offset
    cdef readonly int64_t follows


cdef class _Decoder:
    """The state of one call of `decode`: first batches are admitted, then their records are read."""

    cdef _Bytes source
    cdef Py_ssize_t start
    cdef Py_ssize_t position
    cdef int64_t next_offset
    cdef int64_t from_offset
    cdef int64_t until_offset
    cdef int64_t follows  # the offset behind the last batch, or -1
    cdef bint dense
    cdef bint check_crcs
    cdef list kept  # decompressed streams that spans point into
    cdef Span* spans
    cdef Py_ssize_t span_count
    cdef Py_ssize_t span_room
    cdef Py_ssize_t taken  # bytes of records admitted
    cdef int64_t capacity  # rows admitted
    cdef Rows rows
    cdef dict buffers

    def __cinit__(self):
        self.spans = NULL
        memset(&self.rows, 0, sizeof(Rows))

    def __dealloc__(self):
        free(self.spans)
        free(self.rows.header)

    cdef int admit_all(self, Py_ssize_t end, Py_ssize_t max_bytes) except -1:
        cdef Header h
        cdef const char* reason
        while self.span_count == 0 or self.taken < max_bytes:
            reason = _read_header(self.source.data + self.position, end - self.position, &h)
            if reason != NULL:
                if self.position > self.start:
                    return 0
                raise _corrupt(reason.decode(), self.position, &h)
            if h.size == 0:
                return 0
            if self.dense and self.follows >= 0 and h.base_offset != self.follows:
                if self.position > self.start:
                    return 0
                raise _corrupt(f"the batch before it ends at offset {self.follows}", self.position, &h)
            if h.base_offset >= self.until_offset:
                return 0
            if h.last_offset >= self.from_offset:
                try:
                    if not self.admit(&h):
                        return 0
                except CorruptRecordError as error:
                    if self.position > self.start:
                        return 0
                    raise CorruptRecordError(error.reason, self.position, h.base_offset) from error.__cause__
                self.next_offset = h.last_offset + 1
            self.follows = h.last_offset + 1
            self.position += h.size
        return 0

    cdef bint admit(self, const Header* h) except -1:
        """Check one batch and note where its records are; False if it is too much for this chunk."""
        cdef const uint8_t* p = self.source.data + self.position
        cdef const uint8_t* data = p + HEADER_SIZE
        cdef Py_ssize_t size = h.size - HEADER_SIZE
        cdef int codec = h.attributes & CODEC_MASK
        cdef Span* span
        if self.check_crcs:
            _check_crc(p, self.position, h)
        if h.attributes & CONTROL:
            return True
        if codec:
            stream = PyMemoryView_FromMemory(<char*>data, size, PyBUF_READ)
            held = _Bytes(decompress(CODECS[codec], stream, MAX_BATCH), 0, 0)
            data = held.data
            size = held.view.len
        elif size > MAX_CHUNK:
            raise CorruptRecordError(f"{size} bytes of records are more than the {MAX_CHUNK} of a batch")
        if h.count > size // SMALLEST_RECORD:
            raise CorruptRecordError(f"{h.count} records do not fit into {size} bytes")
        if self.span_count and self.taken + size > MAX_CHUNK:
            return False
        if codec:
            self.kept.append(held)
        if self.span_count == self.span_room:
            self.grow()
        span = &self.spans[self.span_count]
        span.data = data
        span.end = data + size
        span.position = self.position
        span.offset_before = self.next_offset
        span.header = h[0]
        self.span_count += 1
        self.taken += size
        self.capacity += h.count
        return True

    cdef int grow(self) except -1:
        cdef Py_ssize_t room = 2 * self.span_room + 16
        cdef Span* grown = <Span*>realloc(self.spans, room * sizeof(Span))
        if grown == NULL:
            raise MemoryError
        self.spans = grown
        self.span_room = room
        return 0

    cdef uint8_t* allocate(self, str name, Py_ssize_t size) except NULL:
        """A buffer of Arrow's memory pool, which hands out the same pages again and again."""
        # At least a byte, so that there is an address.
        buffer = pa.allocate_buffer(size + 1, resizable=True)
        self.buffers[name] = buffer
        return <uint8_t*><uintptr_t>buffer.address

    cdef int32_t* allocate_edges(self, str name, int64_t count) except NULL:
        cdef int32_t* edges = <int32_t*>self.allocate(name, (count + 1) * sizeof(int32_t))
        edges[0] = 0
        return edges

    cdef uint8_t* allocate_bitmap(self, str name, int64_t count) except NULL:
        cdef uint8_t* bitmap = self.allocate(name, count // 8 + 1)
        memset(bitmap, 0xFF, count // 8 + 1)
        return bitmap

    cdef int read_all(self, bint headers) except -1:
        """Fill the columns with the records of all admitted batches, up to one that is bad."""
        cdef Rows* rows = &self.rows
        cdef Py_ssize_t done = 0
        cdef int32_t bad = 0
        cdef const char* reason
        rows.offset = <int64_t*>self.allocate("offset", self.capacity * sizeof(int64_t))
        rows.time = <int64_t*>self.allocate("time", self.capacity * sizeof(int64_t))
        rows.time_type = <int32_t*>self.allocate("time_type", self.capacity * sizeof(int32_t))
        rows.key_edge = self.allocate_edges("key_edge", self.capacity)
        rows.value_edge = self.allocate_edges("value_edge", self.capacity)
        rows.key_valid = self.allocate_bitmap("key_valid", self.capacity)
        rows.value_valid = self.allocate_bitmap("value_valid", self.capacity)
        # Room for all bytes of the batches, since nobody knows what part of them is keys. Pages that
        # are not written to cost nothing.
        rows.key = self.allocate("key", self.taken + BLOCK)
        rows.value = self.allocate("value", self.taken + BLOCK)
        if headers:
            rows.headers_edge = self.allocate_edges("headers_edge", self.capacity)
            rows.headers_valid = self.allocate_bitmap("headers_valid", self.capacity)
        with nogil:
            reason = _read_spans(
                self.spans, self.span_count, self.from_offset, self.until_offset, rows, &done, &bad
            )
        if reason != NULL:
            self.stop_before(&self.spans[done], reason.decode(), bad)
        return 0

    cdef int stop_before(self, const Span* span, str reason, int32_t bad) except -1:
        if span.position == self.start:
            if bad >= 0:
                reason = f"record {bad} of {span.header.count}: {reason}"
            raise _corrupt(reason, span.position, &span.header)
        self.position = span.position
        self.next_offset = span.offset_before
        self.follows = span.header.base_offset
        return 0

    cdef object taken_buffer(self, str name, Py_ssize_t size):
        """The buffer, cut to what was filled of it."""
        buffer = self.buffers[name]
        buffer.resize(size, shrink_to_fit=True)
        return buffer

    cdef object bytes_column(self, str name, int32_t* edges, int64_t count, int64_t nulls, kind=BINARY):
        return pa.Array.from_buffers(
            kind, count,
            [
                self.buffers[name + "_valid"] if nulls else None,
                self.buffers[name + "_edge"],
                self.taken_buffer(name, edges[count]),
            ],
            nulls,
        )

    cdef Chunk finish(self):
        cdef Rows* rows = &self.rows
        cdef Chunk chunk = Chunk.__new__(Chunk)
        chunk.position = self.position
        chunk.next_offset = self.next_offset
        chunk.follows = self.follows
        chunk.num_rows = rows.count
        buffers = self.buffers
        chunk.columns = {
            "key": self.bytes_column("key", rows.key_edge, rows.count, rows.key_nulls),
            "value": self.bytes_column("value", rows.value_edge, rows.count, rows.value_nulls),
            "offset": pa.Array.from_buffers(INT64, rows.count, [None, buffers["offset"]], 0),
            "timestamp": pa.Array.from_buffers(TIMESTAMP, rows.count, [None, buffers["time"]], 0),
            "timestampType": pa.Array.from_buffers(INT32, rows.count, [None, buffers["time_type"]], 0),
        }
        if rows.headers_edge != NULL:
            chunk.columns["headers"] = self.headers_column()
        return chunk

    cdef object headers_column(self):
        cdef Rows* rows = &self.rows
        cdef int64_t index, count = rows.header_count
        cdef Py_ssize_t key_bytes = 0, value_bytes = 0
        cdef int64_t nulls = 0
        cdef int32_t* key_edge = self.allocate_edges("header_key_edge", count)
        cdef int32_t* value_edge = self.allocate_edges("header_value_edge", count)
        cdef uint8_t* value_valid = self.allocate_bitmap("header_value_valid", count)
        for index in range(count):
            key_bytes += rows.header[index].key_length
            key_edge[index + 1] = <int32_t>key_bytes
            if rows.header[index].value_length >= 0:
                value_bytes += rows.header[index].value_length
            else:
                _clear_bit(value_valid, index)
                nulls += 1
            value_edge[index + 1] = <int32_t>value_bytes
        cdef uint8_t* key = self.allocate("header_key", key_bytes)
        cdef uint8_t* value = self.allocate("header_value", value_bytes)
        for index in range(count):
            memcpy(key + key_edge[index], rows.header[index].key, rows.header[index].key_length)
            if rows.header[index].value_length > 0:
                memcpy(value + value_edge[index], rows.header[index].value, rows.header[index].value_length)
        keys = _as_text(self.bytes_column("header_key", key_edge, count, 0))
        values = self.bytes_column("header_value", value_edge, count, nulls)
        structs = pa.StructArray.from_arrays([keys, values], fields=list(HEADER_TYPE))
        return pa.Array.from_buffers(
            HEADERS_TYPE, rows.count,
            [self.buffers["headers_valid"] if rows.headers_nulls else None, self.buffers["headers_edge"]],
            rows.headers_nulls, children=[structs],
        )


cdef object _as_text(keys):
    """Header keys as strings. What is no UTF-8 becomes U+FFFD, as it does in Kafka's clients."""
    try:
        return keys.cast(STRING)  # validates, copies nothing
    except pa.ArrowInvalid:
        return pa.array([key.decode("utf-8", "replace") for key in keys.to_pylist()], STRING)


def decode(
    buffer, Py_ssize_t start, Py_ssize_t end, *, int64_t from_offset, int64_t until_offset,
    Py_ssize_t max_bytes, bint check_crcs=True, bint headers=False, bint dense=False, int64_t follows=-1,
):
    """Records of the whole batches in `buffer[start:end]`, as columns.

    Batches that end before `from_offset` are passed over by their headers; control batches are
    checked but give no rows. It stops at a batch that is not all there, at one that starts at
    `until_offset` or later, and once `max_bytes` are reached.

    Args:
        buffer: any contiguous bytes-like object; it must not change meanwhile.
        start, end: the range in bytes; `start` is the start of a batch.
        from_offset, until_offset: records outside [from_offset, until_offset) are dropped.
        max_bytes: bytes of uncompressed records after which to stop, at the end of a batch. At least
            one batch is read.
        check_crcs: whether to compare each batch's CRC-32C.
        headers: whether to give a column of headers.
        dense: whether each batch must begin where the one before it ends. The base offset is not under the
            CRC, so this is what tells that it is damaged, where a log has no gaps.
        follows: with `dense`, the offset at which the first batch must begin; -1 for any.

    Returns:
        A Chunk. Batches before a bad one are returned first: the error comes when the bad one is at
        `start`.

    Raises:
        CorruptRecordError: the bytes at `start` are no record batch.
    """
    cdef _Decoder decoder = _Decoder.__new__(_Decoder)
    decoder.source = _Bytes(buffer, start, end)
    decoder.start = decoder.position = start
    decoder.from_offset = decoder.next_offset = from_offset
    decoder.until_offset = until_offset
    decoder.check_crcs = check_crcs
    decoder.dense = dense
    decoder.follows = follows
    decoder.kept = []
    decoder.buffers = {}
    decoder.admit_all(end, max_bytes)
    decoder.read_all(headers)
    return decoder.finish()
