# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Iterates over all batches of a dense log, of any format, for the log cleaner."""

from pyspark_log.storage.record import batch as layout
from pyspark_log.storage.record.batch import CODECS
from pyspark_log.storage.record.compression import decompress, mend_lz4_header
from pyspark_log.errors import BatchTooLargeError, CorruptRecordError

from cpython.buffer cimport PyBUF_READ
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int64_t, uint8_t

from pyspark_log.storage.record.headers cimport Bytes, Header, check_crc, corrupt, read_header
from pyspark_log.storage.record.parse_legacy cimport survey, wrapped_set
from pyspark_log.storage.record.parse_v2 cimport SMALLEST_RECORD
from pyspark_log.storage.compaction.record_walk cimport Walk

cdef Py_ssize_t HEADER_SIZE = layout.HEADER_SIZE
cdef int MAGIC = layout.MAGIC
cdef int CODEC_MASK = layout.CODEC_MASK
cdef int LZ4 = CODECS.index("lz4")


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
