# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Records as Python objects. Each is made of Arrow columns at the moment in which it is handed out.

So a record is still in the processor's caches when a program looks at it, and of what is fetched and not handed out
there are no objects.
"""

import threading

from pyspark_log.errors import DeserializationError

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.pythread cimport PyThread_get_thread_ident
from libc.stdint cimport int32_t, int64_t, uint8_t, uintptr_t

cdef extern from *:
    """
    #include <time.h>

    /* Seconds of the clock of time.monotonic; where there is one, of a copy that is some ms old and costs little. */
    static double coarse_now(void) {
        struct timespec now;
    #ifdef CLOCK_MONOTONIC_COARSE
        clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    #else
        clock_gettime(CLOCK_MONOTONIC, &now);
    #endif
        return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
    }
    """
    double coarse_now() noexcept nogil


@cython.freelist(64)
cdef class ConsumerRecord:
    """A record that a consumer has read.

    Attributes:
        topic, partition, offset: where it is.
        timestamp: its time in ms since 1970; -1: it has none.
        timestamp_type: 0: the time is its producer's; 1: that of its append; -1: it has none.
        key, value: bytes, or what the deserializers made of them; None: it has none.
        headers: pairs of a name and a value (bytes or None), in their order.
    """

    cdef readonly str topic
    cdef readonly int32_t partition
    cdef readonly int64_t offset
    cdef readonly int64_t timestamp
    cdef readonly int32_t timestamp_type
    cdef readonly object key
    cdef readonly object value
    cdef list _headers  # None: it has none

    def __init__(
        self, str topic not None, int32_t partition, int64_t offset, int64_t timestamp, int32_t timestamp_type, key,
        value, headers=(),
    ):
        self.topic, self.partition, self.offset = topic, partition, offset
        self.timestamp, self.timestamp_type, self.key, self.value = timestamp, timestamp_type, key, value
        self._headers = list(headers) or None

    @property
    def headers(self):
        if self._headers is None:
            self._headers = []
        return self._headers

    cdef tuple fields(self):
        return (
            self.topic, self.partition, self.offset, self.timestamp, self.timestamp_type, self.key, self.value,
            self._headers or [],
        )

    def __eq__(self, other):
        if not isinstance(other, ConsumerRecord):
            return NotImplemented
        return self.fields() == (<ConsumerRecord>other).fields()

    def __hash__(self):
        return hash((self.topic, self.partition, self.offset))

    def __reduce__(self):
        return ConsumerRecord, self.fields()

    def __repr__(self):
        return (
            f"ConsumerRecord(topic={self.topic!r}, partition={self.partition}, offset={self.offset}, "
            f"timestamp={self.timestamp}, timestamp_type={self.timestamp_type}, key={self.key!r}, "
            f"value={self.value!r}, headers={self._headers or []!r})"
        )


cdef struct Bytes:
    # A column of bytes: where its values are, and which of them are null (NULL: none is).
    const int32_t* edges
    const uint8_t* data
    const uint8_t* valid
    Py_ssize_t shift  # of the first row in the bitmap


cdef inline bint is_null(const uint8_t* valid, Py_ssize_t slot) noexcept:
    return valid != NULL and not valid[slot >> 3] >> (slot & 7) & 1


cdef inline object bytes_at(const Bytes* column, Py_ssize_t row):
    if is_null(column.valid, column.shift + row):
        return None
    return PyBytes_FromStringAndSize(
        <const char*>column.data + column.edges[row], column.edges[row + 1] - column.edges[row]
    )


cdef uintptr_t address(buffer) except? 0:
    return 0 if buffer is None else buffer.address


cdef const uint8_t* bitmap_of(array, list buffers) except? NULL:
    return <const uint8_t*>address(buffers[0]) if array.null_count else NULL


cdef Bytes bytes_of(array) except *:
    """A column of bytes or text; its buffers live as long as the array."""
    cdef Bytes column
    cdef list buffers = array.buffers()
    column.shift = array.offset
    column.valid = bitmap_of(array, buffers)
    column.edges = <const int32_t*>address(buffers[1]) + column.shift
    column.data = <const uint8_t*>address(buffers[2])
    return column


cdef uintptr_t numbers_of(array, Py_ssize_t size) except? 0:
    """Where the numbers of a column are, of `size` bytes each."""
    return address(array.buffers()[1]) + <Py_ssize_t>array.offset * size


@cython.final
cdef class FetchedRows:
    """Rows of one partition that were fetched, of which the first ones are handed out already."""

    cdef object batch
    cdef list kept  # arrays whose buffers are read
    cdef str topic
    cdef int32_t partition
    cdef int64_t start
    cdef Py_ssize_t row  # the next one to hand out
    cdef Py_ssize_t count
    cdef const int64_t* offset
    cdef const int64_t* time
    cdef const int32_t* time_type
    cdef Bytes key
    cdef Bytes value
    cdef const int32_t* headers_edge  # NULL: no row has headers
    cdef const uint8_t* headers_valid
    cdef Py_ssize_t headers_shift
    cdef Bytes header_key
    cdef Bytes header_value
    cdef object read_key
    cdef object read_value
    cdef bint key_has_headers
    cdef bint value_has_headers

    def __init__(self, batch, str topic not None, int32_t partition, int64_t start, key=None, value=None):
        """Takes over the rows of a batch.

        Args:
            batch: in the row schema, with headers.
            topic, partition: where they are from.
            start: the position before the first of them is handed out.
            key, value: pairs of a callable, which makes a key or value of its bytes, and whether it is also given the
                headers; None: they stay bytes.
        """
        self.batch, self.topic, self.partition, self.start = batch, topic, partition, start
        self.count = batch.num_rows
        keys, values, offsets = batch.column("key"), batch.column("value"), batch.column("offset")
        times, types, headers = batch.column("timestamp"), batch.column("timestampType"), batch.column("headers")
        self.kept = [keys, values, offsets, times, types, headers]
        self.key, self.value = bytes_of(keys), bytes_of(values)
        self.offset = <const int64_t*>numbers_of(offsets, sizeof(int64_t))
        self.time = <const int64_t*>numbers_of(times, sizeof(int64_t))
        self.time_type = <const int32_t*>numbers_of(types, sizeof(int32_t))
        if len(headers.values):
            self.take_headers(headers)
        if key is not None:
            self.read_key, self.key_has_headers = key
        if value is not None:
            self.read_value, self.value_has_headers = value

    cdef int take_headers(self, headers) except -1:
        cdef list buffers = headers.buffers()
        self.headers_shift = headers.offset
        self.headers_valid = bitmap_of(headers, buffers)
        self.headers_edge = <const int32_t*>address(buffers[1]) + self.headers_shift
        names, values = headers.values.field(0), headers.values.field(1)
        self.kept += [names, values]
        self.header_key, self.header_value = bytes_of(names), bytes_of(values)
        return 0

    @property
    def left(self):
        return self.count - self.row

    @property
    def position(self):
        return self.offset[self.row - 1] + 1 if self.row > 0 else self.start

    def take(self, Py_ssize_t most):
        """Hands out the next records, `most` at most; fewer, if one that is not the first cannot be deserialized.

        Raises:
            DeserializationError: the first one cannot; nothing was handed out.
        """
        cdef Py_ssize_t row = self.row, end = min(self.count, self.row + most)
        cdef list records = []
        try:
            while row < end:
                records.append(self.record(row))
                row += 1
        except DeserializationError:
            if row == self.row:
                raise
        self.row = row
        return records

    @property
    def bytes_left(self):
        """What `rest` has, in bytes."""
        return self.batch.slice(self.row).nbytes

    def rest(self):
        """Hands out all that are left, as a batch."""
        row, self.row = self.row, self.count
        return self.batch.slice(row)

    cdef ConsumerRecord record(self, Py_ssize_t row):
        cdef ConsumerRecord record = ConsumerRecord.__new__(ConsumerRecord)
        record.topic, record.partition, record.offset = self.topic, self.partition, self.offset[row]
        # Exact: it was multiplied by that.
        record.timestamp, record.timestamp_type = self.time[row] // 1000, self.time_type[row]
        record.key, record.value = bytes_at(&self.key, row), bytes_at(&self.value, row)
        if self.headers_edge != NULL:
            record._headers = self.headers_at(row)
        if self.read_key is not None and record.key is not None:
            record.key = self.read("key", self.read_key, self.key_has_headers, record, record.key)
        if self.read_value is not None and record.value is not None:
            record.value = self.read("value", self.read_value, self.value_has_headers, record, record.value)
        return record

    cdef list headers_at(self, Py_ssize_t row):
        cdef list found
        cdef Py_ssize_t slot
        cdef int32_t first = self.headers_edge[row], end = self.headers_edge[row + 1]
        if first == end or is_null(self.headers_valid, self.headers_shift + row):
            return None
        found = []
        for slot in range(first, end):
            name = bytes_at(&self.header_key, slot)
            found.append(((<bytes>name).decode(), bytes_at(&self.header_value, slot)))
        return found

    cdef object read(self, str part, reader, bint has_headers, ConsumerRecord record, data):
        try:
            return reader(data, record.headers) if has_headers else reader(data)
        except Exception as error:
            raise DeserializationError(record.topic, record.partition, record.offset, part, repr(error)) from error


def used_by_another_thread(name):
    """The error of a call while the thread of this name reads with the consumer."""
    return RuntimeError(
        f"the consumer is used by another thread ({name}) now: a consumer is for one thread; make one for each thread, "
        "with a group_id if they are to share the partitions"
    )


@cython.final
cdef class RecordIterator:
    """Iterates over a consumer's records, without the consumer as long as there are rows and nothing is due."""

    cdef object refill
    cdef FetchedRows rows
    cdef double due
    cdef unsigned long reader  # the thread that makes a record; 0: none does

    def __init__(self, refill):
        """`refill` returns rows, at least one, and the time of `time.monotonic` at which to call it again, also if
        there are rows left; or raises StopIteration.
        """
        self.refill = refill

    def __iter__(self):
        return self

    def __next__(self):
        while True:
            record = self.ready()
            if record is not None:
                return record
            self.rows, self.due = self.refill()

    cpdef ready(self):
        """Returns the next record; None: the consumer is to be asked first, as its own `refill` does.

        Raises:
            RuntimeError: a deserializer is at a record in another thread. Others: as the deserializer.
        """
        cdef FetchedRows rows = self.rows
        if rows is None or rows.row >= rows.count or coarse_now() >= self.due:
            return None
        self.check_thread()
        self.reader = PyThread_get_thread_ident()
        try:
            record = rows.record(rows.row)
        finally:
            self.reader = 0
        rows.row += 1
        return record

    cdef int check_thread(self) except -1:
        cdef unsigned long reader = self.reader
        if reader != 0 and reader != PyThread_get_thread_ident():
            names = [thread.name for thread in threading.enumerate() if thread.ident == reader]
            raise used_by_another_thread(names[0] if names else reader)
        return 0

    def fill(self):
        """Calls `refill`, for a program that uses `ready`."""
        self.rows, self.due = self.refill()

    def interrupt(self):
        """Has `refill` called before the next record. RuntimeError: as `ready`."""
        self.check_thread()
        self.rows = None
