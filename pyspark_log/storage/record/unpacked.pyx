# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Decompresses the records of batches, one batch after the other.

The frames that Kafka's clients write are read here, as fast as the libraries can; `compression.decompress` reads all
others, and says what is wrong with damaged ones.
"""

from zstandard import ZstdError, frame_content_size

from pyspark_log.storage.record import layout
from pyspark_log.storage.record.layout import CODECS
from pyspark_log.storage.record.compression import contexts, decompress, mend_lz4_header

from cpython.buffer cimport PyBUF_READ
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free

from pyspark_log.storage.record.headers cimport Bytes, Header
from pyspark_log.storage.record.lz4_frame cimport read_frame

cdef int CODEC_MASK = layout.CODEC_MASK
cdef int LZ4 = CODECS.index("lz4")
cdef int ZSTD = CODECS.index("zstd")


cdef Bytes whole_zstd(stream, int64_t limit):
    """The content of a frame that says its size, which is the usual one; None: it is another, or damaged."""
    try:
        if 0 < frame_content_size(stream) <= limit:
            # By position, as keywords take longer: no size of its own, one frame, nothing after it.
            return Bytes(contexts.zstd_reader.decompress(stream, 0, False, False), 0, 0)
    except ZstdError:
        pass
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
        if codec == ZSTD:
            self.held = whole_zstd(stream, limit)
        elif codec == LZ4 and h.magic == 0:
            stream = mend_lz4_header(stream)
        if self.held is None:
            self.held = Bytes(decompress(CODECS[codec], stream, limit), 0, 0)
        self.data = self.held.data
        self.size = self.held.view.len
        return 0
