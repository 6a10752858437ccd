# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Iterates over all batches of a dense log, of any format, and over the records of a batch, a block at a time, noting
where each is: for the log cleaner, for the check of a client's batch, for look-ups by time, and for logs of keys and values that
the engine itself reads.

Every number and length that comes from a batch is compared with the end of the bytes before it is used:
any bytes give records or a fault. `record/builder.pyx` describes the layout of a record of format 2,
`record/headers.pxd` that of a message of formats 0 and 1.
"""

import array

from pyspark_log.storage.record import layout
from pyspark_log.storage.record.layout import ROW_BYTES
from pyspark_log.config import MAX_BATCH_BYTES
from pyspark_log.errors import BatchTooLargeError, CorruptRecordError

from cpython cimport array as c_array
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint64_t

from pyspark_log.storage.record.headers cimport MESSAGE_TIME_AT, Bytes, Header, check_crc, corrupt, read_header
from pyspark_log.storage.record.decoding.parse_legacy cimport fields, measure, survey, take_field, wrapped_set
from pyspark_log.storage.record.decoding.row_buffers cimport time_fits
from pyspark_log.storage.record.decoding.parse_v2 cimport read_record_headers
from pyspark_log.storage.record.decoding.record_fields cimport SMALLEST_RECORD, RecordFields, take_any, take_usual
from pyspark_log.storage.record.codecs.unpacked cimport Unpacked
from pyspark_log.storage.record.wire cimport load_i64

cdef Py_ssize_t HEADER_SIZE = layout.HEADER_SIZE
cdef int MAGIC = layout.MAGIC
cdef Py_ssize_t MAGIC_AT = layout.MAGIC_AT
cdef int CODEC_MASK = layout.CODEC_MASK
cdef int LOG_APPEND_TIME = layout.LOG_APPEND_TIME
cdef int TRANSACTIONAL = layout.TRANSACTIONAL
cdef int CONTROL = layout.CONTROL
cdef int64_t ROW_COST = ROW_BYTES
cdef c_array.array NUMBERS = array.array("q")


cdef class BatchWalk:
    """Not for use from Python; the buffer must not change while a piece of it is loaded."""

    cdef int load(self, buffer, Py_ssize_t start, Py_ssize_t end) except -1:
        self.source = Bytes(buffer, start, end)
        self.position = start
        self.end = end
        return 0

    cdef bint peek(self) except -1:
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
            if self.held is None:
                self.held = Unpacked.__new__(Unpacked)
            self.held.load(&self.header, p, stop, self.limit)
            p = self.held.data
            stop = p + self.held.size
        if self.header.magic < MAGIC and codec:
            survey(p, stop, True, &self.header)
        elif self.header.magic == MAGIC and self.header.count > (stop - p) // SMALLEST_RECORD:
            raise CorruptRecordError(f"{self.header.count} records do not fit into {stop - p} bytes")
        self.data = p
        self.data_end = stop
        return 0

    cdef int check_size(self) except -1:
        if self.data_end - self.data + ROW_COST * self.header.count > self.limit:
            raise BatchTooLargeError(self.header.size, self.limit, self.position, self.header.base_offset)
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


cdef inline const char* take_record(Walk* walk, Record* record) noexcept nogil:
    cdef RecordFields found
    cdef const char* reason
    if not take_usual(walk.at, walk.end, &found):
        reason = take_any(walk.at, walk.end, &found)
        if reason == NULL and found.header_count != 0:
            reason = read_record_headers(found.headers, found.stop, found.header_count, False, NULL)
        if reason != NULL:
            return reason
    if not walk.previous < found.offset_delta <= walk.header.last_offset_delta:
        return b"its offset delta is not between those of its neighbours"
    walk.previous = found.offset_delta
    record.start = walk.at
    record.end = walk.at = found.stop
    record.key = found.key
    record.key_length = found.key_length
    record.value = found.value
    record.value_length = found.value_length
    record.offset = walk.base + found.offset_delta
    record.time = walk.header.max_timestamp
    if not walk.header.attributes & LOG_APPEND_TIME:
        # A sum beyond 64 bits wraps, as in Kafka.
        record.time = <int64_t>(<uint64_t>walk.header.base_timestamp + <uint64_t>found.time_delta)
    return NULL


cdef inline const char* take_message(Walk* walk, Record* record) noexcept nogil:
    cdef const uint8_t* p = walk.at
    cdef const uint8_t* stop
    cdef Py_ssize_t size = 0
    cdef bint is_appended
    cdef const char* reason = measure(p, walk.end, &size)
    if reason != NULL:
        return reason
    record.start = p
    record.end = stop = p + size
    record.offset = walk.base + load_i64(p)
    record.time = -1
    if p[MAGIC_AT]:
        # That of the append is in the wrapper only.
        is_appended = walk.header.magic == 1 and walk.header.attributes & LOG_APPEND_TIME
        record.time = walk.header.max_timestamp if is_appended else load_i64(p + MESSAGE_TIME_AT)
    p = fields(p)
    if not take_field(&p, stop, &record.key_length):
        return b"its key length is not inside the message"
    record.key = p
    p += max(record.key_length, 0)
    if not take_field(&p, stop, &record.value_length):
        return b"its value length is not inside the message"
    record.value = p
    if p + max(record.value_length, 0) != stop:
        return b"it is shorter than its length says"
    walk.at = stop
    return NULL


cdef enum:
    # How many records are checked together.
    BLOCK = 64


cdef class CheckedBatch:
    """What is known of the records of a batch, without their columns.

    Attributes:
        oldest, newest: their smallest and largest time in ms.
        keyless: how many have no key.
    """

    cdef readonly int64_t oldest
    cdef readonly int64_t newest
    cdef readonly int32_t keyless


cdef BatchWalk opened(buffer, int64_t max_batch_bytes, bint check_crcs):
    """The batch that is all of `buffer`. CorruptRecordError, BatchTooLargeError."""
    cdef BatchWalk batch = BatchWalk.__new__(BatchWalk)
    cdef Header* h = &batch.header
    cdef const char* reason
    batch.load(buffer, 0, len(buffer))
    batch.limit = max_batch_bytes
    reason = read_header(batch.source.data, batch.end, batch.end, h)
    if reason != NULL:
        raise corrupt(reason.decode(), 0, h)
    if h.size == 0:
        raise corrupt("the batch is incomplete", 0, h)
    if check_crcs:
        check_crc(batch.source.data, 0, h)
    batch.open()
    batch.check_size()
    return batch


def check_records(buffer, int64_t max_batch_bytes):
    """Checks each record of a batch of format 2, as `decode` does.

    Args:
        buffer: the whole batch, with the right CRC; any contiguous bytes-like object.
        max_batch_bytes: the most that it may take in memory, in bytes; as for `decode`.

    Raises:
        CorruptRecordError: a record is malformed, or there are others than the header says. BatchTooLargeError.
    """
    cdef BatchWalk batch = opened(buffer, max_batch_bytes, False)
    cdef CheckedBatch found = CheckedBatch.__new__(CheckedBatch)
    cdef Walk walk
    cdef Record records[BLOCK]
    cdef int index, taken = 0
    cdef const char* reason
    begin_walk(&walk, &batch.header, batch.data, batch.data_end)
    found.oldest, found.newest = INT64_MAX, INT64_MIN
    with nogil:
        while True:
            reason = take_records(&walk, records, BLOCK, &taken)
            if reason != NULL:
                break
            for index in range(taken):
                if not time_fits(records[index].time):
                    reason = b"its timestamp does not fit a column of microseconds"
                    walk.done += index - taken
                    break
                found.oldest = min(found.oldest, records[index].time)
                found.newest = max(found.newest, records[index].time)
                found.keyless += records[index].key_length < 0
            if reason != NULL or taken < BLOCK:
                break
    if reason != NULL:
        batch.refuse(&walk, reason)
    return found


def record_times(buffer, int64_t max_batch_bytes):
    """The offsets and the times of the records of a batch of any format.

    Args:
        buffer: the whole batch; any contiguous bytes-like object.
        max_batch_bytes: the most that it may take in memory, in bytes; as for `decode`.

    Returns:
        Two arrays of int64, as long as there are records: offsets, and times in ms (-1: none).

    Raises:
        CorruptRecordError: the CRC is wrong, or a record is malformed. BatchTooLargeError.
    """
    cdef BatchWalk batch = opened(buffer, max_batch_bytes, True)
    cdef c_array.array offsets, times
    cdef Walk walk
    cdef Record records[BLOCK]
    cdef int index, taken = 0
    cdef int32_t done = 0
    cdef const char* reason
    offsets = c_array.clone(NUMBERS, batch.header.count, False)
    times = c_array.clone(NUMBERS, batch.header.count, False)
    begin_walk(&walk, &batch.header, batch.data, batch.data_end)
    while done < batch.header.count:
        reason = take_records(&walk, records, BLOCK, &taken)
        if reason != NULL:
            batch.refuse(&walk, reason)
        for index in range(taken):
            offsets.data.as_longlongs[done] = records[index].offset
            times.data.as_longlongs[done] = records[index].time
            done += 1
    return offsets, times


cdef class Pairs:
    """The result of `read_pairs`.

    Attributes:
        pairs: the records: tuples of key, value (bytes; None: it has none) and offset.
        num_rows: how many.
        position: where the batch ends, in bytes from the start of the buffer; where it begins, if it was not read.
        next_offset, follows: as of decoder.Chunk.
    """

    cdef readonly list pairs
    cdef readonly Py_ssize_t position
    cdef readonly int64_t next_offset
    cdef readonly int64_t follows

    @property
    def num_rows(self):
        return len(self.pairs)


cdef inline object bytes_or_none(const uint8_t* data, int32_t length):
    return None if length < 0 else PyBytes_FromStringAndSize(<const char*>data, length)


def read_pairs(
    buffer, Py_ssize_t start, Py_ssize_t end, *, int64_t from_offset, int64_t until_offset, bint dense=False,
    int64_t follows=-1, int64_t max_batch_bytes=MAX_BATCH_BYTES, aborted=None,
):
    """Reads keys and values of the first batch in `buffer[start:end]`, of any format.

    As `decode`, but it reads one batch, without columns: for logs of small batches. A batch that has no records of the
    range, or is incomplete, gives none.

    Raises:
        CorruptRecordError, BatchTooLargeError: as `decode`.
    """
    cdef BatchWalk batch = BatchWalk.__new__(BatchWalk)
    cdef Header* h = &batch.header
    cdef Pairs found = Pairs.__new__(Pairs)
    cdef Walk walk
    cdef Record records[BLOCK]
    cdef int index, taken = BLOCK
    cdef const char* reason
    found.pairs = []
    found.position, found.next_offset, found.follows = start, from_offset, follows
    batch.load(buffer, start, end)
    batch.limit = max_batch_bytes
    batch.follows = follows if dense else -1
    if not batch.peek():
        return found
    if h.base_offset < follows:
        raise corrupt(f"the batch before it ends at offset {follows}", start, h)
    if h.base_offset >= until_offset:
        found.next_offset = max(from_offset, until_offset)
        return found
    found.position, found.follows = start + h.size, h.last_offset + 1
    if h.last_offset < from_offset:
        return found
    found.next_offset = h.last_offset + 1
    if h.magic == MAGIC and h.attributes & CONTROL:
        return found
    if aborted is not None and h.attributes & TRANSACTIONAL and aborted(h.producer_id, h.base_offset):
        return found
    batch.open()
    batch.check_size()
    begin_walk(&walk, h, batch.data, batch.data_end)
    while taken == BLOCK:
        reason = take_records(&walk, records, BLOCK, &taken)
        if reason != NULL:
            batch.refuse(&walk, reason)
        for index in range(taken):
            if from_offset <= records[index].offset < until_offset:
                found.pairs.append((
                    bytes_or_none(records[index].key, records[index].key_length),
                    bytes_or_none(records[index].value, records[index].value_length),
                    records[index].offset,
                ))
    return found
