# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Record batches of format 2 from Arrow columns.

The unit of work is a column. No Python object is made for a record, and no loop over records runs in
Python. The record (Kafka's DefaultRecord, KIP-98; all but `attributes` are zigzag varints):

    length | attributes int8 (0) | timestamp delta | offset delta | key length | key
    | value length | value | header count | headers: key length, key, value length, value

A length of -1 is null. The length of the record counts what follows it.
"""

import array

from pyspark_log.storage.record import layout
from pyspark_log.storage.record.layout import CODECS, ROW_BYTES
from pyspark_log.config import MAX_BATCH_BYTES
from pyspark_log.storage.record.codecs.compression import check_codec, compress
from pyspark_log.errors import InvalidRecordError, RecordTooLargeError

from cpython cimport array as c_array
from cpython.buffer cimport (
    PyBUF_CONTIG_RO, PyBUF_FORMAT, PyBUF_READ, PyBuffer_Release, PyObject_GetBuffer,
)
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.ref cimport Py_INCREF, Py_XDECREF, PyObject
from libc.stdint cimport INT32_MAX, INT64_MAX, int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from pyspark_log.storage.record.headers cimport Bytes, Header, check_append_time, write_header
from pyspark_log.storage.record.columns cimport Column, edge, edges_fit, find, is_null, open_column
from pyspark_log.storage.record.wire cimport copy_short, varint_size, write_varint, zigzag

cdef Py_ssize_t HEADER_SIZE = layout.HEADER_SIZE
cdef int LOG_APPEND_TIME = layout.LOG_APPEND_TIME
cdef int TRANSACTIONAL = layout.TRANSACTIONAL
cdef int CONTROL = layout.CONTROL

# What is written must be readable. A batch of more than one record stays small enough for a reader's memory limit,
# even if it is all headers of two bytes, which grow the most.
cdef Py_ssize_t ROW_COST = ROW_BYTES
cdef Py_ssize_t MOST_GROWN = 1 + ROW_BYTES // 2

# Lengths, deltas and counts of a record, and its attributes.
cdef int64_t MOST_VARINTS = 1 + 4 * 5 + 2 * 10

# A time in ms must fit a column of microseconds.
cdef int64_t MAX_TIME = INT64_MAX // 1000

cdef c_array.array NUMBERS = array.array("i")


cdef extern from *:
    # Not in Cython's own declarations: this one takes a reference that the caller manages.
    int resize_bytes "_PyBytes_Resize"(PyObject** bytes, Py_ssize_t size) except -1


cdef class RecordColumns:
    """Columns of records to be written, seen as raw memory; keeps them alive.

    All checks happen here, once for each column, so that nothing is refused halfway.

    Attributes:
        num_rows: how many.
        size: bytes of their keys, values and headers, without lengths.
        oldest, newest: their smallest and largest time, in ms; -1 is "no time".

    Args:
        key, value: binary or string in any of Arrow's layouts; None or the null type: all null.
        timestamp: int64 or timestamp in ms; a null is `now`, -1 is "no time".
        headers: list<struct<key: string, value: binary>>; a null list: no headers.
        now: ms since the epoch.

    Raises:
        InvalidRecordError: a wrong type, columns of different lengths, a time below -1 or beyond what
            microseconds can hold, a header without a key.
    """

    cdef readonly Py_ssize_t num_rows
    cdef readonly int64_t size
    cdef readonly int64_t oldest
    cdef readonly int64_t newest
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
        # Here, as records that are no columns need no Arrow.
        from pyspark_log.storage.record.rows import TIMES, bytes_view, fixed_view

        lengths = {len(column) for column in (key, value, timestamp, headers) if column is not None}
        if len(lengths) != 1:
            raise InvalidRecordError(f"the columns must have one length, not {sorted(lengths)}")
        self.num_rows = lengths.pop()
        self.now = now
        self.views = []
        self.key = self.open_bytes(None if key is None else bytes_view(key, "key"), "key")
        self.value = self.open_bytes(None if value is None else bytes_view(value, "value"), "value")
        view = None if timestamp is None else fixed_view(timestamp, "timestamp", TIMES)
        self.views.append(view)
        self.time = open_column(view)
        self.open_headers(headers)
        self.check_times()

    @staticmethod
    def of_pairs(keys, values, int64_t now):
        """Records of a key and a value each; they get the time `now` (ms).

        Args:
            keys, values: of bytes, as many of each; None: it has none.
        """
        cdef RecordColumns self = RecordColumns.__new__(RecordColumns)
        if len(keys) != len(values):
            raise ValueError(f"{len(keys)} keys and {len(values)} values")
        self.num_rows = len(keys)
        self.now = now
        self.views = []
        self.key = self.join(keys)
        self.value = self.join(values)
        self.time = self.headers = self.header = self.header_key = self.header_value = open_column(None)
        self.check_times()
        return self

    cdef Column join(self, values) except *:
        """A column of values, back to back."""
        cdef Column column = open_column(None)
        cdef bytes data = b"".join([value for value in values if value is not None])
        cdef c_array.array edges = c_array.clone(NUMBERS, len(values) + 1, True)
        cdef bytearray bitmap = bytearray(len(values) // 8 + 1)
        cdef int64_t row, end = 0
        if len(data) > INT32_MAX:
            raise InvalidRecordError(f"{len(data)} bytes of keys or values at once")
        for row in range(len(values)):
            if values[row] is not None:
                bitmap[row >> 3] |= 1 << (row & 7)
                end += len(<bytes?>values[row])
            edges.data.as_ints[row + 1] = <int32_t>end
        self.views += [data, edges, bitmap]
        column.absent = False
        column.rows = len(values)
        column.validity = <const uint8_t*>PyByteArray_AS_STRING(bitmap)
        column.narrow = <const int32_t*>edges.data.as_ints
        column.data = <const uint8_t*>PyBytes_AS_STRING(data)
        column.size = end
        self.size += end
        return column

    cdef Column open_bytes(self, view, str name) except *:
        self.views.append(view)
        cdef Column column = open_column(view)
        if not edges_fit(&column):
            raise InvalidRecordError(f"column {name}: its offsets do not fit its data")
        if column.rows:
            self.size += edge(&column, column.rows) - edge(&column, 0)
        return column

    cdef int open_headers(self, array) except -1:
        self.headers = open_column(None)
        if array is None:
            return 0
        import pyarrow as pa
        from pyspark_log.storage.record.rows import bytes_view, list_view, struct_view

        if pa.types.is_null(array.type):
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
        self.header_key = self.open_bytes(bytes_view(keys, "headers.key"), "headers.key")
        self.header_value = self.open_bytes(bytes_view(structs.field("value"), "headers.value"), "headers.value")
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
        self.oldest, self.newest = MAX_TIME, -1
        for row in range(self.num_rows):
            time = _time_of(&self.time, self.now, row)
            if not -1 <= time <= MAX_TIME:
                raise InvalidRecordError(
                    f"row {row} has timestamp {time} ms, outside -1 (none) to {MAX_TIME}"
                )
            self.oldest = min(self.oldest, time)
            self.newest = max(self.newest, time)
        return 0

    def largest(self):
        """The bytes that a record takes in a batch, at most: an upper bound."""
        cdef int64_t row, size, most = 0, count = 0
        cdef const uint8_t* unused
        with nogil:
            for row in range(self.num_rows):
                size = MOST_VARINTS + max(find(&self.key, row, &unused), 0) + max(find(&self.value, row, &unused), 0)
                if not self.headers.absent:
                    size += _headers_size(self, row, &count)
                most = max(most, size)
        return most


cdef inline int64_t _time_of(const Column* times, int64_t now, int64_t row) noexcept nogil:
    if is_null(times, row):
        return now
    return (<const int64_t*>times.data)[times.first + row]


cdef inline int64_t _headers_size(RecordColumns columns, int64_t row, int64_t* count) noexcept nogil:
    """Bytes of the headers of a row without their count, which is written to `count`."""
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
    """Builds one record batch; takes rows of any number of RecordColumns. Not thread-safe.

    Args:
        batch_size: bytes of uncompressed records at which a batch is full. A larger record gets a
            batch of its own.
        max_message_bytes: the largest batch, in bytes with its header, after compression.
        codec: one of `layout.CODECS`.
        level: the codec's level; None for Kafka's default.
        max_batch_bytes: the most that the batch may take in a reader's memory, as `decode` counts it.

    Attributes:
        batch_size: as given, or less if `max_batch_bytes` asks for that.
        count: records in the batch so far.
        size: their bytes, before compression and without the header.
        capacity: bytes of memory that the batch has allocated so far.

    Raises:
        InvalidConfigError: an unknown codec or level.
    """

    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t size
    cdef readonly Py_ssize_t batch_size
    cdef Py_ssize_t max_message_bytes
    cdef Py_ssize_t max_batch_bytes
    cdef Py_ssize_t most_filled  # bytes of records that never take more than that
    cdef object codec
    cdef object level
    # The batch grows inside the bytes object that `seal` returns, so that it is never copied.
    # No other code sees the object before that. Its records start after the room for the header.
    # Or it is in a buffer of the caller's (`write_to`), and `target` is NULL.
    cdef PyObject* target
    cdef Bytes lent
    cdef Py_ssize_t lent_at
    cdef uint8_t* data
    cdef readonly Py_ssize_t capacity
    cdef Py_ssize_t usual
    cdef int64_t base_timestamp
    cdef int64_t max_timestamp

    def __cinit__(self):
        self.target = NULL

    def __init__(
        self, Py_ssize_t batch_size, Py_ssize_t max_message_bytes, str codec="none", level=None,
        Py_ssize_t max_batch_bytes=MAX_BATCH_BYTES,
    ):
        check_codec(codec, level)
        self.max_batch_bytes = max_batch_bytes
        self.most_filled = max_batch_bytes // MOST_GROWN
        self.batch_size = min(batch_size, self.most_filled)
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

    def write_to(self, buffer, Py_ssize_t start):
        """Writes the next batch into a buffer of the caller's, where `seal` leaves it, if there is room for it.

        Without a codec only. The buffer belongs to the builder until that `seal`.

        Args:
            buffer: writable and contiguous.
            start: where in it the batch begins, in bytes.
        """
        if self.count or self.codec != "none":
            raise ValueError("a batch has been begun, or is to be compressed")
        self.lent = Bytes(buffer, start, len(buffer), writable=True)
        Py_XDECREF(self.target)
        self.target = NULL
        self.lent_at = start
        self.data = <uint8_t*>self.lent.data + start
        self.capacity = self.lent.view.len - start

    cdef int reserve(self, Py_ssize_t more) except -1:
        """Make room for `more` bytes after the records."""
        cdef Py_ssize_t needed = HEADER_SIZE + self.size + more
        cdef Py_ssize_t wanted
        if needed <= self.capacity:
            return 0
        if self.lent is not None:
            return self.leave_lent(needed)
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

    cdef int leave_lent(self, Py_ssize_t needed) except -1:
        """Continue in memory of its own: the batch does not fit into the caller's buffer."""
        fresh = PyBytes_FromStringAndSize(NULL, needed)
        memcpy(PyBytes_AS_STRING(fresh), self.data, HEADER_SIZE + self.size)
        Py_INCREF(fresh)
        self.target = <PyObject*>fresh
        self.data = <uint8_t*>PyBytes_AS_STRING(fresh)
        self.capacity = needed
        self.lent = None
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
            RecordTooLargeError: a single record that would take more than `max_batch_bytes` in a reader.
            IndexError: a row that does not exist.
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
        """Adds rows from `lo` on; returns the first row that was not added."""
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
                    f"a record takes {needed} bytes in memory, but a batch may take {self.max_batch_bytes} "
                    "(batch.max.memory.bytes)"
                )
            else:
                return lo

    cdef Stop write(
        self, RecordColumns columns, const int32_t* picked, Py_ssize_t* at, Py_ssize_t hi, Py_ssize_t* needed
    ) noexcept nogil:
        """Write rows from `at` on, which is advanced; returns why it stopped."""
        cdef Py_ssize_t index = at[0]
        cdef Py_ssize_t size = self.size
        cdef Py_ssize_t count = self.count
        cdef Py_ssize_t room = self.capacity - HEADER_SIZE
        cdef Py_ssize_t num_rows = columns.num_rows
        cdef Py_ssize_t batch_size = self.batch_size
        cdef Py_ssize_t most_filled = self.most_filled
        cdef Py_ssize_t max_batch_bytes = self.max_batch_bytes
        cdef uint8_t* records = self.data + HEADER_SIZE
        cdef int64_t base = self.base_timestamp
        cdef int64_t latest = self.max_timestamp
        cdef bint with_headers = not columns.headers.absent
        # Local copies, since a compiler must assume that written bytes could be the columns' own.
        cdef Column keys = columns.key
        cdef Column values = columns.value
        cdef Column times = columns.time
        cdef const uint8_t* keys_end = keys.data + keys.size
        cdef const uint8_t* values_end = values.data + values.size
        cdef int64_t now = columns.now
        cdef uint8_t* room_end = records + room
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
            time = _time_of(&times, now, row)
            delta = 0 if count == 0 else time - base
            key_length = find(&keys, row, &key)
            value_length = find(&values, row, &value)
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
            if total > most_filled and total + ROW_COST * (1 + header_count) > max_batch_bytes:
                needed[0] = total + ROW_COST * (1 + header_count)
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
            p = write_varint(p, zigzag(key_length))
            if key_length > 0:
                copy_short(p, room_end, key, key_length, keys_end)
                p += key_length
            p = write_varint(p, zigzag(value_length))
            if value_length > 0:
                copy_short(p, room_end, value, value_length, values_end)
                p += value_length
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
        log_append_time=None,
    ):
        """Returns the batch: compressed, with its header and CRC-32C. The builder is empty afterwards.

        Args:
            base_offset: offset of its first record; the others follow without gaps.
            leader_epoch: -1 for none.
            producer_id, producer_epoch, base_sequence: of an idempotent producer; -1 for none.
            transactional, control: attribute bits.
            log_append_time: ms; the time of all records (timestamp type LogAppendTime). None: each has
                its own.

        Returns:
            Its bytes; a view of the buffer of `write_to` if it is in there.

        Raises:
            RecordTooLargeError: the batch is larger than `max_message_bytes`. Its records are gone.
            ValueError: there are no records, or a time that no record can have.
        """
        cdef Py_ssize_t size
        cdef Header h
        cdef uint8_t* p
        if self.count == 0:
            raise ValueError("a batch needs at least one record")
        h.attributes = CODECS.index(self.codec)
        h.max_timestamp = self.max_timestamp
        if log_append_time is not None:
            check_append_time(log_append_time)
            h.max_timestamp = log_append_time
        try:
            if self.lent is not None:
                size = HEADER_SIZE + self.size
                p = self.data
                result = memoryview(<object>self.lent.view.obj)[self.lent_at:self.lent_at + size]
            else:
                result = self.compressed() if h.attributes else self.uncompressed()
                size = len(result)
                p = <uint8_t*>PyBytes_AS_STRING(result)
            if size > self.max_message_bytes:
                raise RecordTooLargeError(
                    f"a batch of {self.count} record(s) has {size} bytes, but max.message.bytes allows "
                    f"{self.max_message_bytes}: raise max.message.bytes of the topic"
                    + ("" if self.count == 1 else " or lower batch.size")
                )
            if log_append_time is not None:
                h.attributes |= LOG_APPEND_TIME
            if transactional:
                h.attributes |= TRANSACTIONAL
            if control:
                h.attributes |= CONTROL
            h.size = size
            h.base_offset = base_offset
            h.leader_epoch = leader_epoch
            h.last_offset_delta = <int32_t>(self.count - 1)
            h.base_timestamp = self.base_timestamp
            h.producer_id = producer_id
            h.producer_epoch = producer_epoch
            h.base_sequence = base_sequence
            h.count = <int32_t>self.count
            write_header(p, &h)
            return result
        finally:
            self.clear()
            if self.lent is not None:
                self.lent = None
                self.capacity = 0

    cdef bytes uncompressed(self):
        """The bytes object of the batch, truncated to its size; the builder releases it."""
        cdef PyObject* target = self.target
        # The next batch will be about as large; unneeded room would be freed each time.
        self.usual = HEADER_SIZE + self.size + self.size // 4
        self.target = NULL
        self.capacity = 0
        resize_bytes(&target, HEADER_SIZE + self.size)
        result = <bytes>target
        Py_XDECREF(target)
        return result

    cdef bytes compressed(self):
        """Room for a header, followed by the compressed records."""
        records = PyMemoryView_FromMemory(<char*>self.data + HEADER_SIZE, self.size, PyBUF_READ)
        cdef Bytes payload = Bytes(compress(self.codec, records, self.level), 0, 0)
        result = PyBytes_FromStringAndSize(NULL, HEADER_SIZE + payload.view.len)
        memcpy(PyBytes_AS_STRING(result) + HEADER_SIZE, payload.data, payload.view.len)
        return result
