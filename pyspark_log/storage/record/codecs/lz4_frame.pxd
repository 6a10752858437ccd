from libc.stdint cimport uint8_t

from pyspark_log.storage.record.codecs.memory cimport Memory


# Decompresses an lz4 frame to the start of `memory`, which grows as needed, to at most `limit` bytes. Returns how many
# bytes it holds; -1: it is damaged, holds more than `limit`, or is not of the usual kind, and another reader must say.
cdef Py_ssize_t read_frame(const uint8_t* p, Py_ssize_t size, Py_ssize_t limit, Memory* memory) except -2

# The bytes that such a frame says it holds; 0: it does not say, or it holds less.
cdef Py_ssize_t content_size(const uint8_t* p, Py_ssize_t size) noexcept nogil
