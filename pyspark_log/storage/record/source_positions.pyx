# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Reads of the records of a batch from where in a source each comes, and leaves out those that were written before.

A header of the record says it, as text: `SOURCE/OFFSET/ORDINAL`. The last two are whole numbers of one to 18 digits;
the source is all before them, any bytes. Of one source each record has a higher position than the one before it.
"""

from pyspark_log.errors import InvalidRecordError
from pyspark_log.storage.record import layout
from pyspark_log.storage.record.codecs.compression import compress
from pyspark_log.storage.record.layout import CODECS

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp

from pyspark_log.storage.record.headers cimport Header, corrupt, write_header
from pyspark_log.storage.record.decoding.record_fields cimport RecordFields, take_any, take_usual
from pyspark_log.storage.record.walk cimport BatchWalk
from pyspark_log.storage.record.wire cimport read_varint

cdef Py_ssize_t HEADER_SIZE = layout.HEADER_SIZE
cdef int MAGIC = layout.MAGIC
cdef int CODEC_MASK = layout.CODEC_MASK
cdef int LOG_APPEND_TIME = layout.LOG_APPEND_TIME
cdef int LEFT_OUT = layout.TRANSACTIONAL | layout.CONTROL

cdef enum:
    # More would not surely fit an int64.
    MOST_DIGITS = 18
    NO_TIMESTAMP = -1
    # No batch has it as its producer id.
    NO_WRITER = -2


cdef struct Found:
    # A header's value.
    const uint8_t* start
    Py_ssize_t source  # bytes of the source
    int64_t offset
    int64_t ordinal


cdef bint find_value(const RecordFields* record, bytes name, Found* found) noexcept:
    """Whether a record has the header, and where its value is: [start, start + source)."""
    cdef const uint8_t* p = record.headers
    cdef int32_t length = 0, index
    cdef bint is_it
    for index in range(record.header_count):
        if not read_varint(&p, record.stop, &length) or not 0 <= length <= record.stop - p:
            return False
        is_it = length == PyBytes_GET_SIZE(name) and memcmp(p, PyBytes_AS_STRING(name), length) == 0
        p += length
        if not read_varint(&p, record.stop, &length) or length > record.stop - p:
            return False
        if is_it:
            found.start = p
            found.source = max(length, 0)
            return True
        p += max(length, 0)
    return False


cdef bint is_position(Found* found) noexcept nogil:
    """Takes the two numbers off the end of the source; False: they are not there."""
    return cut_number(found, &found.ordinal) and cut_number(found, &found.offset)


cdef bint cut_number(Found* found, int64_t* number) noexcept nogil:
    cdef Py_ssize_t at = found.source
    cdef int64_t unit = 1
    number[0] = 0
    while at > 0 and c"0" <= found.start[at - 1] <= c"9" and found.source - at < MOST_DIGITS:
        number[0] += unit * (found.start[at - 1] - c"0")
        unit *= 10
        at -= 1
    if at == found.source or at == 0 or found.start[at - 1] != c"/":
        return False
    found.source = at - 1
    return True


cdef class PositionsRead:
    """The positions of a batch's records.

    Attributes:
        batch: the batch without the records that were left out, with the same offsets and sequence numbers; None: none
            was left out.
        left_out: how many were.
        highest: of each source of the batch: the highest position, as offset and ordinal, and the id of the producer
            that wrote it; NO_WRITER: it had none, or the source was repeated since.
    """

    cdef readonly bytearray batch
    cdef readonly int32_t left_out
    cdef readonly dict highest

    # The source of the last record, and what is known of it.
    cdef bytes source
    cdef int64_t offset
    cdef int64_t ordinal
    cdef int64_t writer

    cdef int turn_to(self, const Found* found, dict known) except -1:
        """Makes the source of a record the current one."""
        cdef Py_ssize_t size = found.source
        if self.source is not None:
            if size == PyBytes_GET_SIZE(self.source) and memcmp(found.start, PyBytes_AS_STRING(self.source), size) == 0:
                return 0
            self.highest[self.source] = self.offset, self.ordinal, self.writer
        self.source = PyBytes_FromStringAndSize(<const char*>found.start, size)
        last = self.highest.get(self.source) or known.get(self.source)
        self.offset, self.ordinal, self.writer = last or (-1, -1, NO_WRITER)
        return 0

    cdef bint rises(self, const Found* found, int64_t writer) noexcept:
        """Whether a record of the current source is above the highest, which is then its own position."""
        if found.offset > self.offset or (found.offset == self.offset and found.ordinal > self.ordinal):
            self.offset, self.ordinal, self.writer = found.offset, found.ordinal, writer
            return True
        return False

    cdef int repeat(self, const Found* found, int64_t writer) except -1:
        """Notes that the source is repeated. InvalidRecordError: this record is rather another one."""
        if found.offset == self.offset and found.ordinal == self.ordinal and self.writer == writer:
            # What repeats a source has begun below its last record.
            raise InvalidRecordError(
                f"two records have the source position {self.source.decode(errors='replace')}/{self.offset}/"
                f"{self.ordinal}: what makes several records of one must number them"
            )
        self.writer = NO_WRITER
        self.left_out += 1
        return 0

    cdef int finish(self) except -1:
        if self.source is not None:
            self.highest[self.source] = self.offset, self.ordinal, self.writer
        # The id -1 is that of many writers.
        for source, (offset, ordinal, writer) in self.highest.items():
            if writer < 0:
                self.highest[source] = offset, ordinal, NO_WRITER
        return 0


def read_positions(batch, bytes name not None, dict known not None, int64_t max_batch_bytes, *, bint stored=False):
    """Reads the positions of a batch's records, and leaves out those that are not above the highest of their source.

    Records without the header stay, and so do batches of transactions, of control records and of formats 0 and 1.

    Args:
        batch: one whole batch, which was checked; any contiguous bytes-like object.
        name: the header's.
        known: the highest position of each source so far, as in `PositionsRead.highest`; not changed.
        max_batch_bytes: as for `decode`.
        stored: the batch is in the log, so all of it stays.

    Raises:
        InvalidRecordError: a header is not of that form; or a producer has written two records of one position, the
            second right after the first, so that a position is not of one record.
        CorruptRecordError: bytes that are no batch.
    """
    cdef BatchWalk walk = BatchWalk.__new__(BatchWalk)
    cdef PositionsRead read = PositionsRead.__new__(PositionsRead)
    cdef RecordFields record
    cdef Found found
    cdef const uint8_t* p
    cdef const uint8_t* run  # where the records begin that stay and are not in `kept`
    cdef bytearray kept = bytearray()
    cdef int32_t index
    cdef int64_t newest = NO_TIMESTAMP
    cdef const char* reason
    read.highest = {}
    walk.load(batch, 0, len(batch))
    walk.limit = max_batch_bytes
    walk.follows = -1
    if not walk.peek() or walk.header.magic < MAGIC or walk.header.attributes & LEFT_OUT or walk.header.count == 0:
        return read
    walk.open()
    p = run = walk.data
    for index in range(walk.header.count):
        if not take_usual(p, walk.data_end, &record):
            reason = take_any(p, walk.data_end, &record)
            if reason != NULL:
                raise corrupt(f"record {index} of {walk.header.count}: {reason.decode()}", 0, &walk.header)
        if record.header_count and find_value(&record, name, &found):
            if is_position(&found):
                read.turn_to(&found, known)
                if not read.rises(&found, walk.header.producer_id) and not stored:
                    read.repeat(&found, walk.header.producer_id)
                    kept += run[: p - run]
                    p = run = record.stop
                    continue
            elif not stored:
                raise malformed(index, name, &found)
        newest = max(newest, walk.header.base_timestamp + record.time_delta)
        p = record.stop
    read.finish()
    if read.left_out:
        kept += run[: p - run]
        read.batch = rebuilt(&walk.header, kept, read.left_out, newest)
    return read


cdef object malformed(int32_t index, bytes name, const Found* found):
    value = PyBytes_FromStringAndSize(<const char*>found.start, min(found.source, 100))
    error = InvalidRecordError(
        f"record {index}: its header {name.decode(errors='replace')!r} is not SOURCE/OFFSET/ORDINAL, but {value!r}"
    )
    error.records = (index,)
    return error


cdef bytearray rebuilt(const Header* header, bytearray kept, int32_t left_out, int64_t newest):
    """The batch with fewer records; the kept ones count from the same base offset and time, so they do not change."""
    cdef Header h = header[0]
    cdef bytearray batch
    cdef int codec = h.attributes & CODEC_MASK
    h.count -= left_out
    if not h.attributes & LOG_APPEND_TIME:
        h.max_timestamp = newest
    data = compress(CODECS[codec], kept, None) if codec else kept
    batch = bytearray(HEADER_SIZE) + data
    h.size = len(batch)
    write_header(<uint8_t*>batch, &h)
    return batch
