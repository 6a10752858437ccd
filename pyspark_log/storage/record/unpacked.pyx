# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Decompresses the records of batches, one batch after the other.

The frames that Kafka's clients write are read here, as fast as the libraries can; `compression.decompress` reads all
others, and says what is wrong with damaged ones.
"""

from pyspark_log.storage.record import layout
from pyspark_log.storage.record.layout import CODECS
from pyspark_log.storage.record.compression import contexts, decompress, mend_lz4_header

from cpython.buffer cimport PyBUF_READ
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free

from pyspark_log.storage.record.headers cimport Bytes, Header
from pyspark_log.storage.record.lz4_frame cimport read_frame
from pyspark_log.storage.record.native_codec cimport RELEASED, has_room
from pyspark_log.storage.record.zstd_frame cimport ZstdReader, frame_room

cdef int CODEC_MASK = layout.CODEC_MASK
cdef int LZ4 = CODECS.index("lz4")
cdef int ZSTD = CODECS.index("zstd")


cdef Py_ssize_t read_zstd(
    const uint8_t* p, const uint8_t* stop, uint8_t* target, Py_ssize_t room, bint is_exact
) except -2:
    cdef Py_ssize_t held = (<ZstdReader>contexts.zstd_frames).read(p, stop - p, target, room)
    return held if held == room or not is_exact else -1


cdef class Unpacked:
    def __dealloc__(self):
        free(self.memory.data)

    cdef int load(self, const Header* h, const uint8_t* p, const uint8_t* stop, int64_t limit) except -1:
        cdef int codec = h.attributes & CODEC_MASK
        cdef int64_t room
        cdef bint is_exact
        self.held = None
        self.size = -1
        # In format 0 the header has a wrong checksum.
        if codec == LZ4 and h.magic > 0:
            if stop - p < RELEASED:
                self.size = read_frame(p, stop - p, limit, &self.memory)
            else:
                with nogil:
                    self.size = read_frame(p, stop - p, limit, &self.memory)
        elif codec == ZSTD:
            room = frame_room(p, stop, &is_exact)
            if not is_exact:
                room = min(room, limit)
            if 0 < room <= limit and has_room(&self.memory, room, limit):
                self.size = read_zstd(p, stop, self.memory.data, room, is_exact)
        self.data = self.memory.data
        if self.size >= 0:
            return 0
        stream = PyMemoryView_FromMemory(<char*>p, stop - p, PyBUF_READ)
        if codec == LZ4 and h.magic == 0:
            stream = mend_lz4_header(stream)
        self.held = Bytes(decompress(CODECS[codec], stream, limit), 0, 0)
        self.data = self.held.data
        self.size = self.held.view.len
        return 0
