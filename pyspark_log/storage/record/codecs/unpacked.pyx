# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Decompresses the records of batches, one batch after the other.

The frames that Kafka's clients write are read here, as fast as the libraries can; `compression.decompress` reads all
others, and says what is wrong with damaged ones.
"""

from zstandard import ZstdError

from pyspark_log.storage.record import layout
from pyspark_log.storage.record.layout import CODECS
from pyspark_log.storage.record.codecs.compression import contexts, decompress, repair_lz4_header

from cpython.buffer cimport PyBUF_READ
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free

from pyspark_log.storage.record.headers cimport Bytes, Header
from pyspark_log.storage.record.codecs.lz4_frame cimport read_frame
from pyspark_log.storage.record.codecs.zstd_frame cimport frame_room

cdef int CODEC_MASK = layout.CODEC_MASK
cdef int LZ4 = CODECS.index("lz4")
cdef int ZSTD = CODECS.index("zstd")


cdef bytes read_zstd(const uint8_t* p, const uint8_t* stop, int64_t room, bint is_exact):
    try:
        held = contexts.zstd_reader.decompress(
            PyMemoryView_FromMemory(<char*>p, stop - p, PyBUF_READ), max_output_size=room
        )
    except ZstdError:
        return None
    return held if len(held) == room or not is_exact else None


cdef class Unpacked:
    def __dealloc__(self):
        free(self.memory.data)

    cdef int load(self, const Header* h, const uint8_t* p, const uint8_t* stop, int64_t limit) except -1:
        cdef int codec = h.attributes & CODEC_MASK
        cdef int64_t room
        cdef bint is_exact
        found = None
        self.held = None
        self.size = -1
        # In format 0 the header has a wrong checksum.
        if codec == LZ4 and h.magic > 0:
            self.size = read_frame(p, stop - p, limit, &self.memory)
        elif codec == ZSTD:
            room = frame_room(p, stop, &is_exact)
            if not is_exact:
                room = min(room, limit)
            if 0 < room <= limit:
                found = read_zstd(p, stop, room, is_exact)
        if self.size >= 0:
            self.data = self.memory.data
            return 0
        if found is None:
            stream = PyMemoryView_FromMemory(<char*>p, stop - p, PyBUF_READ)
            if codec == LZ4 and h.magic == 0:
                stream = repair_lz4_header(stream)
            found = decompress(CODECS[codec], stream, limit)
        self.held = Bytes(found, 0, 0)
        self.data = self.held.data
        self.size = self.held.view.len
        return 0
