# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Assigns records to partitions by the rules of Kafka's own producer."""

import array

import pyarrow as pa

from pyspark_log.storage.record.rows import bytes_view, fixed_view
from pyspark_log.errors import InvalidRecordError

from cpython cimport array as c_array
from cpython.buffer cimport (
    PyBUF_CONTIG_RO, PyBUF_FORMAT, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer,
)
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from pyspark_log.storage.record.columns cimport Column, edges_fit, find, is_null, open_column

cdef c_array.array NUMBERS = array.array("i")
cdef object PARTITION_TYPES = (pa.int32(),)

cdef enum:
    # The fewest bytes that a record takes besides its key and value.
    RECORD_OVERHEAD = 7


cdef uint32_t _murmur2(const uint8_t* p, int64_t length) noexcept nogil:
    # MurmurHash2 as in Kafka's Utils.murmur2: its own seed, words read as little-endian.
    cdef uint32_t m = 0x5BD1E995
    cdef uint32_t h = 0x9747B28CU ^ <uint32_t>length
    cdef uint32_t k
    while length >= 4:
        k = <uint32_t>p[0] | <uint32_t>p[1] << 8 | <uint32_t>p[2] << 16 | <uint32_t>p[3] << 24
        k *= m
        k ^= k >> 24
        k *= m
        h *= m
        h ^= k
        p += 4
        length -= 4
    if length == 3:
        h ^= <uint32_t>p[2] << 16
    if length >= 2:
        h ^= <uint32_t>p[1] << 8
    if length >= 1:
        h ^= p[0]
        h *= m
    h ^= h >> 13
    h *= m
    h ^= h >> 15
    return h


def murmur2(data):
    """The hash of a key, as a signed 32-bit number (Kafka's Utils.murmur2).

    The partition of a key is `(murmur2(key) & 0x7fffffff) % partitions`.

    Args:
        data: the key, any contiguous bytes-like object.
    """
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return <int32_t>_murmur2(<const uint8_t*>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


cdef inline uint64_t _next_random(uint64_t* state) noexcept nogil:
    # SplitMix64: any seed is a good one.
    cdef uint64_t z
    state[0] += 0x9E3779B97F4A7C15ULL
    z = state[0]
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ULL
    z = (z ^ z >> 27) * 0x94D049BB133111EBULL
    return z ^ z >> 31


cdef class Partitioner:
    """Kafka's default: the partition of the row if it has one, else by the hash of its key, else a partition that is
    kept until it has got `batch_size` bytes (KIP-794), so that rows without a key fill whole batches.

    Not thread-safe.

    Args:
        partitions: how many partitions the topic has.
        batch_size: bytes after which keyless rows go to another partition, chosen at random.
        seed: of that choice; tasks that write at once should have different ones.
    """

    cdef int32_t partitions
    cdef int64_t batch_size
    cdef int64_t sent
    cdef int32_t sticky
    cdef uint64_t random

    def __init__(self, int32_t partitions, int64_t batch_size, seed):
        if partitions < 1:
            raise ValueError(f"{partitions} partitions")
        self.partitions = partitions
        self.batch_size = batch_size
        self.random = seed & 0xFFFFFFFFFFFFFFFF
        self.sent = 0
        self.sticky = self.another()

    cdef int32_t another(self) noexcept nogil:
        return <int32_t>(_next_random(&self.random) % <uint64_t>self.partitions)

    def assign(self, key, value, explicit, Py_ssize_t num_rows):
        """Returns the partition of each row.

        Args:
            key: binary or string; None or null: no key.
            value: binary or string; only its sizes are used.
            explicit: int32 partition numbers; null: to be chosen.
            num_rows: length of all three.

        Returns:
            An `array.array("i")` of `num_rows` partition numbers.

        Raises:
            InvalidRecordError: a wrong type or length, or a partition that the topic does not have.
        """
        for column in (key, value, explicit):
            if column is not None and len(column) != num_rows:
                raise InvalidRecordError(f"a column has {len(column)} rows, not {num_rows}")
        key_view = None if key is None else bytes_view(key, "key")
        value_view = None if value is None else bytes_view(value, "value")
        given_view = None if explicit is None else fixed_view(explicit, "partition", PARTITION_TYPES)
        cdef Column keys = open_column(key_view)
        cdef Column values = open_column(value_view)
        cdef Column given = open_column(given_view)
        if not (edges_fit(&keys) and edges_fit(&values)):
            raise InvalidRecordError("the offsets of column key or value do not fit its data")
        cdef c_array.array result = c_array.clone(NUMBERS, num_rows, zero=False)
        cdef Py_ssize_t bad
        with nogil:
            bad = self.fill(&keys, &values, &given, num_rows, result.data.as_ints)
        if bad >= 0:
            there = "there is only 0" if self.partitions == 1 else f"there are 0 to {self.partitions - 1}"
            raise InvalidRecordError(f"row {bad} names partition {explicit[bad]}, but {there}")
        return result

    cdef Py_ssize_t fill(
        self, const Column* keys, const Column* values, const Column* given, Py_ssize_t num_rows, int* result
    ) noexcept nogil:
        """Fill `result`; returns the row whose partition does not exist, or -1."""
        cdef const uint8_t* data = NULL
        cdef const int32_t* numbers = <const int32_t*>given.data
        cdef int64_t length
        cdef int32_t partition
        cdef uint32_t partitions = <uint32_t>self.partitions
        cdef Py_ssize_t row
        for row in range(num_rows):
            if not is_null(given, row):
                partition = numbers[given.first + row]
                if not 0 <= partition < self.partitions:
                    return row
                result[row] = partition
                continue
            length = find(keys, row, &data)
            if length >= 0:
                result[row] = <int>((_murmur2(data, length) & 0x7FFFFFFF) % partitions)
                continue
            if self.sent >= self.batch_size:
                self.sticky = self.another()
                self.sent = 0
            result[row] = self.sticky
            length = find(values, row, &data)
            self.sent += RECORD_OVERHEAD + (length if length > 0 else 0)
        return -1


def group(assignment, int32_t partitions):
    """Groups row numbers by partition, in their order (a counting sort).

    Args:
        assignment: an int32 buffer with the partition of each row.
        partitions: how many partitions there are.

    Returns:
        Two `array.array("i")`: the row numbers, and `partitions + 1` bounds: rows
        [bounds[p], bounds[p + 1]) go to partition p.

    Raises:
        ValueError: a partition number outside [0, partitions).
    """
    cdef Py_buffer view
    cdef c_array.array rows
    cdef c_array.array bounds = c_array.clone(NUMBERS, partitions + 1, zero=True)
    cdef c_array.array cursor
    cdef const int32_t* numbers
    cdef int* edges = bounds.data.as_ints
    cdef int* at
    cdef int* target
    cdef Py_ssize_t row, num_rows
    cdef int32_t partition
    PyObject_GetBuffer(assignment, &view, PyBUF_CONTIG_RO | PyBUF_FORMAT)
    try:
        if view.format == NULL or view.format[0] != c"i" or view.format[1] != 0:
            raise TypeError("assignment must be a buffer of format 'i'")
        numbers = <const int32_t*>view.buf
        num_rows = view.len // <Py_ssize_t>sizeof(int32_t)
        rows = c_array.clone(NUMBERS, num_rows, zero=False)
        for row in range(num_rows):
            if not 0 <= numbers[row] < partitions:
                raise ValueError(f"row {row} has partition {numbers[row]} of {partitions}")
            edges[numbers[row] + 1] += 1
        for partition in range(partitions):
            edges[partition + 1] += edges[partition]
        cursor = c_array.copy(bounds)
        at = cursor.data.as_ints
        target = rows.data.as_ints
        with nogil:
            for row in range(num_rows):
                target[at[numbers[row]]] = <int>row
                at[numbers[row]] += 1
        return rows, bounds
    finally:
        PyBuffer_Release(&view)
