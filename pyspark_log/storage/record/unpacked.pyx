# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Decompresses the records of batches, one batch after the other.

The frames that Kafka's clients write are read here, as fast as the libraries can; `compression.decompress` reads all
others, and says what is wrong with damaged ones.
"""

from zstandard import ZstdError

from pyspark_log.storage.record import layout
from pyspark_log.storage.record.layout import CODECS
from pyspark_log.storage.record.compression import contexts, decompress, mend_lz4_header

from cpython.buffer cimport PyBUF_READ, PyBUF_WRITE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport INT32_MAX, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free

from pyspark_log.storage.record.headers cimport Bytes, Header
from pyspark_log.storage.record.lz4_frame cimport read_frame

cdef int CODEC_MASK = layout.CODEC_MASK
cdef int LZ4 = CODECS.index("lz4")
cdef int ZSTD = CODECS.index("zstd")


cdef uint64_t ZSTD_MAGIC = 0xFD2FB528

cdef enum:
    # A zstd frame (RFC 8878, 3.1.1): magic number, flags, size of the window, number of a dictionary, content size, each
    # but the first two only if the flags say so. Blocks follow, each with three bytes before it, and perhaps a checksum.
    FLAGS_AT = 4
    SINGLE_SEGMENT = 0x20  # no size of the window; a content size in any case
    CHECKSUM = 0x04
    DICTIONARY = 0x03
    REPEATED = 1  # the type of a block that is one byte


cdef inline uint64_t load_little(const uint8_t* p, int count) noexcept nogil:
    cdef uint64_t value = 0
    while count > 0:
        count -= 1
        value = value << 8 | p[count]
    return value


cdef int64_t zstd_content(const uint8_t* p, const uint8_t* stop) noexcept nogil:
    cdef uint64_t content, block
    cdef int flags, width
    if stop - p < 14 or load_little(p, 4) != ZSTD_MAGIC:
        return 0
    flags = p[FLAGS_AT]
    width = 1 << (flags >> 6)
    if flags & DICTIONARY or (width == 1 and not flags & SINGLE_SEGMENT):
        return 0
    p += FLAGS_AT + (1 if flags & SINGLE_SEGMENT else 2)
    content = load_little(p, width) + (256 if width == 2 else 0)
    p += width
    while stop - p >= 3:
        block = load_little(p, 3)
        p += 3
        width = 1 if (block >> 1 & 3) == REPEATED else <int>(block >> 3)
        if width > stop - p:
            return 0
        p += width
        if block & 1:
            p += 4 if flags & CHECKSUM else 0
            return <int64_t>content if p == stop and content <= <uint64_t>INT32_MAX else 0
    return 0


cdef bint read_zstd(const uint8_t* p, const uint8_t* stop, uint8_t* target, Py_ssize_t room) except -1:
    if p[FLAGS_AT] & CHECKSUM:
        return False
    stream = PyMemoryView_FromMemory(<char*>p, stop - p, PyBUF_READ)
    memory = PyMemoryView_FromMemory(<char*>target, room, PyBUF_WRITE)
    try:
        return contexts.zstd_reader.stream_reader(stream).readinto(memory) == room
    except ZstdError:
        return False


cdef Bytes whole_zstd(stream):
    """The content of a whole frame that says its size; None: it is damaged."""
    try:
        return Bytes(contexts.zstd_reader.decompress(stream), 0, 0)
    except ZstdError:
        return None


cdef class Unpacked:
    def __dealloc__(self):
        free(self.memory.data)

    cdef int load(self, const Header* h, const uint8_t* p, const uint8_t* stop, int64_t limit) except -1:
        cdef int codec = h.attributes & CODEC_MASK
        # In format 0 the header has a wrong checksum.
        if codec == LZ4 and h.magic > 0:
            if stop - p < RELEASED:
                self.size = read_frame(p, stop - p, limit, &self.memory)
            else:
                with nogil:
                    self.size = read_frame(p, stop - p, limit, &self.memory)
            self.data = self.memory.data
            if self.size >= 0:
                return 0
        self.held = None
        stream = PyMemoryView_FromMemory(<char*>p, stop - p, PyBUF_READ)
        if codec == ZSTD and 0 < zstd_content(p, stop) <= limit:
            self.held = whole_zstd(stream)
        elif codec == LZ4 and h.magic == 0:
            stream = mend_lz4_header(stream)
        if self.held is None:
            self.held = Bytes(decompress(CODECS[codec], stream, limit), 0, 0)
        self.data = self.held.data
        self.size = self.held.view.len
        return 0
