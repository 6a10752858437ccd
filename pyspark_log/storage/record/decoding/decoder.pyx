# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Decodes record batches of any format to Arrow columns.

Batch by batch, while its bytes are in the processor's caches: its header and CRC are checked, it is decompressed, room
is made for its rows, and its records are read, without a Python object for any.
Any bytes give rows or a CorruptRecordError.
"""

from functools import cache

from pyspark_log.storage.record import layout
from pyspark_log.storage.record.layout import CODECS, ROW_BYTES
from pyspark_log.config import MAX_BATCH_BYTES
from pyspark_log.errors import BatchTooLargeError, CorruptRecordError

cimport cython
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from pyspark_log.storage.record.headers cimport Bytes, Header, check_crc, read_header
from pyspark_log.storage.record.decoding.parse_legacy cimport read_messages, survey, wrapped_set
from pyspark_log.storage.record.decoding.parse_v2 cimport read_records
from pyspark_log.storage.record.decoding.record_fields cimport SMALLEST_RECORD
from pyspark_log.storage.record.decoding.arrow_builder cimport RowColumns
from pyspark_log.storage.record.decoding.row_buffers cimport Rows
from pyspark_log.storage.record.codecs.lz4_frame cimport content_size, read_frame
from pyspark_log.storage.record.codecs.memory cimport Memory
from pyspark_log.storage.record.codecs.unpacked cimport Unpacked, read_zstd
from pyspark_log.storage.record.codecs.zstd_frame cimport frame_room

cdef Py_ssize_t HEADER_SIZE = layout.HEADER_SIZE
cdef int MAGIC = layout.MAGIC
cdef int CODEC_MASK = layout.CODEC_MASK
cdef int CONTROL = layout.CONTROL
cdef int TRANSACTIONAL = layout.TRANSACTIONAL
cdef int LZ4 = CODECS.index("lz4")
cdef int ZSTD = CODECS.index("zstd")
cdef int64_t ROW_COST = ROW_BYTES

cdef enum:
    # From this many bytes on the GIL is released, so that other threads can run; with fewer, giving it back and asking
    # for it again takes longer than it is worth.
    RELEASED = 65536


cdef const char* read_batch(
    const Header* h, const uint8_t* data, const uint8_t* end, int64_t from_offset, int64_t until_offset, Rows* rows,
    int32_t* bad
) noexcept nogil:
    if h.magic == MAGIC:
        return read_records(h, data, end, from_offset, until_offset, rows, bad)
    return read_messages(h, data, end, from_offset, until_offset, rows, bad)


cdef class Chunk:
    """The result of `decode`.

    Attributes:
        columns: offset (int64), timestamp (timestamp[us, UTC]), timestampType (int32: 0 created, 1 appended, -1 none),
            and those that were asked for of key, value (binary) and headers.
        num_rows: length of the columns.
        position: where the last batch that was consumed ends, in bytes from the start of the buffer.
        next_offset: the offset after that batch; what was asked for, if there was none. `until_offset`, if the
            batch after it begins there or later.
        follows: the argument `follows` of the next call: the offset after the last batch, skipped or
            not.
    """

    cdef readonly dict columns
    cdef readonly Py_ssize_t num_rows
    cdef readonly Py_ssize_t position
    cdef readonly int64_t next_offset
    cdef readonly int64_t follows


@cython.final
cdef class Decoder:
    """The state of one call of `decode`."""

    cdef Bytes source
    cdef Py_ssize_t start
    cdef Py_ssize_t position
    cdef int64_t next_offset
    cdef int64_t from_offset
    cdef int64_t until_offset
    cdef int64_t follows  # the offset after the last batch, or -1
    cdef bint dense
    cdef bint check_crcs
    cdef object aborted  # None, or decides whether a transactional batch is left out
    cdef int64_t limit  # bytes in memory
    cdef bint keys
    cdef bint values
    cdef bint headers
    cdef Unpacked unpacked  # the batch at `position`, if it is compressed
    cdef list kept  # earlier ones that noted headers point into
    cdef Py_ssize_t end
    cdef Py_ssize_t max_bytes
    cdef Py_ssize_t taken  # bytes of records read
    cdef int64_t capacity  # rows that they had at most
    cdef RowColumns columns  # None: no batch was read

    cdef int read_all(self) except -1:
        cdef Header h
        cdef const char* reason
        cdef Py_ssize_t left
        while self.columns is None or self.taken < self.max_bytes:
            left = self.end - self.position
            reason = read_header(self.source.data + self.position, left, left, &h)
            try:
                if reason != NULL:
                    raise CorruptRecordError(reason.decode())
                if h.size == 0 or not self.step(&h):
                    return 0
            except CorruptRecordError as error:
                if self.position > self.start:
                    return 0
                if isinstance(error, BatchTooLargeError):
                    raise BatchTooLargeError(h.size, self.limit, self.position, h.base_offset) from None
                raise CorruptRecordError(error.reason, self.position, h.base_offset) from error.__cause__
            self.follows = h.last_offset + 1
            self.position += h.size
        return 0

    cdef bint step(self, Header* h) except -1:
        """Read one batch or skip it; False if the chunk ends before it."""
        cdef bint is_set = h.magic < MAGIC and (h.attributes & CODEC_MASK) != 0
        # Where a set of messages begins is known only once it is decompressed.
        if not is_set and not self.continues(h):
            return False
        if h.last_offset < self.from_offset:
            return True
        if self.check_crcs:
            check_crc(self.source.data + self.position, self.position, h)
        if not (self.take_set(h) if is_set else self.take_plain(h)):
            return False
        self.next_offset = h.last_offset + 1
        return True

    cdef bint continues(self, const Header* h) except -1:
        """Whether the batch belongs to the range; CorruptRecordError if it cannot come next."""
        if self.follows >= 0 and (h.base_offset != self.follows if self.dense else h.base_offset < self.follows):
            raise CorruptRecordError(f"the batch before it ends at offset {self.follows}")
        if h.base_offset >= self.until_offset:
            self.next_offset = max(self.next_offset, self.until_offset)
            return False
        return True

    cdef bint take_plain(self, const Header* h) except -1:
        """Read a batch of format 2, or a single message."""
        cdef const uint8_t* p = self.source.data + self.position
        cdef Py_ssize_t size = h.size - HEADER_SIZE
        cdef Unpacked unpacked = None
        cdef Py_ssize_t content
        if h.magic < MAGIC:
            return self.take_records(h, p, h.size, None)
        if h.attributes & CONTROL:
            return True
        if self.aborted is not None and h.attributes & TRANSACTIONAL and self.aborted(h.producer_id, h.base_offset):
            return True
        p += HEADER_SIZE
        if h.attributes & CODEC_MASK:
            content = self.unpack_in_place(h, p, size)
            if content > 0:
                return self.read(h, self.columns.rows.value + self.columns.value_end(), content)
            unpacked = self.unpack(h, p)
            p, size = unpacked.data, unpacked.size
        if h.count > size // SMALLEST_RECORD:
            raise CorruptRecordError(f"{h.count} records do not fit into {size} bytes")
        return self.take_records(h, p, size, unpacked)

    cdef bint take_set(self, Header* h) except -1:
        """Read a compressed set of messages of format 0 or 1, and complete its header."""
        cdef const uint8_t* p = self.source.data + self.position
        cdef Unpacked unpacked = self.unpack(h, wrapped_set(p, p + h.size))
        survey(unpacked.data, unpacked.data + unpacked.size, self.check_crcs, h)
        return self.continues(h) and self.take_records(h, unpacked.data, unpacked.size, unpacked)

    cdef Unpacked unpack(self, const Header* h, const uint8_t* stream):
        """Decompress the batch at `position`."""
        if self.unpacked is None:
            self.unpacked = Unpacked.__new__(Unpacked)
        self.unpacked.load(h, stream, self.source.data + self.position + h.size, self.limit)
        return self.unpacked

    cdef Py_ssize_t unpack_in_place(self, const Header* h, const uint8_t* p, Py_ssize_t size) except -1:
        """Decompress a frame of `size` bytes that says what it holds to the end of the column of values, where its
        own are then moved down: one copy of them stays in the caches, not two. Returns how many bytes it holds; 0: it
        is to be decompressed elsewhere.
        """
        cdef int codec = h.attributes & CODEC_MASK
        cdef Py_ssize_t content = 0
        cdef bint is_exact
        cdef Memory place
        cdef bytes found
        if codec == LZ4:
            content = content_size(p, size)
        elif codec == ZSTD:
            content = frame_room(p, p + size, &is_exact)
            if not is_exact:
                return 0
        # The bytes of headers must stay as they are until all batches are read.
        if not self.values or self.headers or content == 0 or h.count > content // SMALLEST_RECORD:
            return 0
        if content + ROW_COST * h.count > self.limit or not self.has_room(h, content):
            return 0
        place.data = self.columns.rows.value + self.columns.value_end()
        place.room = content
        if codec == LZ4:
            return max(read_frame(p, size, content, &place), 0)
        found = read_zstd(p, p + size, content, True)
        if found is None:
            return 0
        memcpy(place.data, <const uint8_t*>found, content)
        return content

    cdef bint take_records(self, const Header* h, const uint8_t* data, Py_ssize_t size, Unpacked unpacked) except -1:
        """Read the records of a batch, which were decompressed if `unpacked` is not None; False if it is too much for
        this chunk.
        """
        cdef int64_t header_count
        if not self.has_room(h, size):
            return False
        header_count = self.columns.rows.header_count
        self.read(h, data, size)
        if unpacked is not None and self.columns.rows.header_count > header_count:
            self.kept.append(unpacked)
            self.unpacked = None
        return True

    cdef bint has_room(self, const Header* h, Py_ssize_t size) except -1:
        """Reserve room for the records of a batch; False if it is too much for this chunk."""
        cdef int64_t cost = size + ROW_COST * h.count
        if cost > self.limit:
            raise BatchTooLargeError(size, self.limit)
        if self.columns is None:
            self.begin(h, size)
        elif self.taken + ROW_COST * self.capacity + cost > self.limit:
            return False
        self.columns.reserve(self.capacity + h.count, self.taken + size)
        return True

    cdef bint read(self, const Header* h, const uint8_t* data, Py_ssize_t size) except -1:
        """Read the records of a batch for which there is room."""
        cdef int64_t from_offset = self.from_offset, until_offset = self.until_offset
        cdef Rows* rows = &self.columns.rows
        cdef int64_t header_count = rows.header_count
        cdef int32_t bad = 0
        cdef const char* reason
        if size < RELEASED:
            reason = read_batch(h, data, data + size, from_offset, until_offset, rows, &bad)
        else:
            with nogil:
                reason = read_batch(h, data, data + size, from_offset, until_offset, rows, &bad)
        if reason != NULL:
            rows.header_count = header_count
            if rows.too_many_headers:
                raise BatchTooLargeError(size, self.limit)
            place = f"record {bad} of {h.count}: " if bad >= 0 else ""
            raise CorruptRecordError(place + reason.decode())
        self.taken += size
        self.capacity += h.count
        return True

    cdef int begin(self, const Header* h, Py_ssize_t size) except -1:
        """Make room for as many batches like the first one as this chunk may have."""
        # What one batch may have. Others share it: those for which it is not enough are left to the next chunk.
        cdef int64_t header_limit = (self.limit - size - ROW_COST * h.count) // ROW_COST if self.headers else -1
        cdef int64_t batches = (self.end - self.position) // h.size
        batches = min(batches, 1 + min(self.max_bytes, self.limit) // max(size, 1))
        batches = max(min(batches, self.limit // max(size + ROW_COST * h.count, 1)), 1)
        self.columns = RowColumns.__new__(RowColumns)
        self.columns.begin(batches * h.count, batches * size, self.keys, self.values, header_limit)
        return 0

    cdef Chunk finish(self):
        cdef Chunk chunk = Chunk.__new__(Chunk)
        if self.columns is None:
            chunk.columns = no_rows(self.keys, self.values, self.headers)
        else:
            chunk.columns = self.columns.finish()
            chunk.num_rows = self.columns.rows.count
        chunk.position = self.position
        chunk.next_offset = self.next_offset
        chunk.follows = self.follows
        return chunk


@cache
def no_rows(bint keys, bint values, bint headers):
    """The columns of a chunk without rows. They are made once, since a reader gets them for each incomplete batch."""
    cdef RowColumns columns = RowColumns.__new__(RowColumns)
    columns.begin(0, 0, keys, values, 0 if headers else -1)
    return columns.finish()


def decode(
    buffer, Py_ssize_t start, Py_ssize_t end, *, int64_t from_offset, int64_t until_offset,
    Py_ssize_t max_bytes, bint check_crcs=True, bint keys=True, bint values=True, bint headers=False,
    bint dense=False, int64_t follows=-1, int64_t max_batch_bytes=MAX_BATCH_BYTES, aborted=None,
):
    """Decodes the records of the complete batches in `buffer[start:end]` to columns.

    Batches that end before `from_offset` are skipped by their headers; control batches are
    checked but give no rows. It stops at an incomplete batch, at a batch that starts at
    `until_offset` or later, and once `max_bytes` are reached.

    Args:
        buffer: any contiguous bytes-like object; it must not change meanwhile.
        start, end: the range in bytes; `start` is the start of a batch.
        from_offset, until_offset: records outside [from_offset, until_offset) are dropped.
        max_bytes: bytes of uncompressed records after which to stop, at the end of a batch. At least
            one batch is read.
        check_crcs: whether to verify each batch's CRC.
        keys, values, headers: whether to return these columns; those of others are checked, and not copied.
        dense: whether each batch must begin where the one before it ends. The CRC does not cover the base
            offset, so in a log without gaps this is what reveals that it is damaged. With gaps, each must at
            least not begin before that. A compressed set of messages of format 0 or 1 that is skipped does not
            reveal where it begins.
        follows: the offset at which the first batch must begin, or which it must have reached; -1 for any.
        max_batch_bytes: the most that one batch may take in memory, in bytes: its uncompressed records,
            and layout.ROW_BYTES for each record, and for each header if they are asked for. At most 2^31 - 64. A
            chunk takes no more than about three times as much, whatever `max_bytes` is.
        aborted: returns for a producer id and the base offset of a transactional batch whether to leave its rows
            out; None: all are returned.

    Returns:
        A Chunk. Batches before a bad one are returned first: the error comes when the bad one is at
        `start`.

    Raises:
        CorruptRecordError: the bytes at `start` are not a record batch; BatchTooLargeError: they are a batch that takes
            more than `max_batch_bytes`.
        ValueError: a limit that is out of range.
    """
    if not 0 < max_batch_bytes <= INT32_MAX - 63:
        raise ValueError(f"max_batch_bytes {max_batch_bytes} is outside 1 to {INT32_MAX - 63}")
    cdef Decoder decoder = Decoder.__new__(Decoder)
    decoder.source = Bytes(buffer, start, end)
    decoder.start = decoder.position = start
    decoder.from_offset = decoder.next_offset = from_offset
    decoder.until_offset = until_offset
    decoder.check_crcs = check_crcs
    decoder.dense = dense
    decoder.follows = follows
    decoder.aborted = aborted
    decoder.limit = max_batch_bytes
    decoder.keys = keys
    decoder.values = values
    decoder.headers = headers
    decoder.kept = []
    decoder.end = end
    decoder.max_bytes = max_bytes
    decoder.read_all()
    return decoder.finish()
