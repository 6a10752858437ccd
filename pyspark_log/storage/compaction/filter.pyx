# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Removes from record batches the records that later ones have replaced (Kafka's Cleaner, MemoryRecords.filterTo).

A batch that keeps all its records is passed on unchanged. Otherwise the kept records are copied unchanged: their
deltas still count from the batch's base offset and base timestamp, which stay, as do last offset, sequence numbers,
producer and codec. Only if a delete horizon replaces the base timestamp, their timestamp deltas are rewritten
(KIP-534).

Messages of formats 0 and 1 keep their format. A compressed set ends with its last kept message, and these are copied
unchanged too, since they count from the same offset as before.
"""

import struct

from pyspark_log.errors import SegmentOverflowError
from pyspark_log.storage.record import layout
from pyspark_log.storage.record.layout import CODECS
from pyspark_log.storage.record.headers import scan
from pyspark_log.storage.record.codecs.compression import compress

from cpython.buffer cimport PyBUF_READ
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from pyspark_log.storage.record.headers cimport (
    MESSAGE_ATTRIBUTES_AT, MESSAGE_CRC_AT, MESSAGE_TIME_AT, SMALLEST_MESSAGE_0, SMALLEST_MESSAGE_1,
    Bytes, Header, message_checksum, write_header,
)
from pyspark_log.storage.compaction.offset_map cimport OffsetMap
from pyspark_log.storage.record.decoding.record_fields cimport after_time
from pyspark_log.storage.record.walk cimport BatchWalk, Record, Walk, begin_walk, take_records
from pyspark_log.storage.record.wire cimport store_i32, store_i64, store_u32, varint_size, write_varint, zigzag

cdef Py_ssize_t HEADER_SIZE = layout.HEADER_SIZE
cdef Py_ssize_t LENGTH_AT = layout.LENGTH_AT
cdef Py_ssize_t LENGTH_PREFIX = layout.LENGTH_PREFIX
cdef Py_ssize_t MAGIC_AT = layout.MAGIC_AT
cdef int MAGIC = layout.MAGIC
cdef int CODEC_MASK = layout.CODEC_MASK
cdef int LOG_APPEND_TIME = layout.LOG_APPEND_TIME
cdef int TRANSACTIONAL = layout.TRANSACTIONAL
cdef int CONTROL = layout.CONTROL
cdef int DELETE_HORIZON = layout.DELETE_HORIZON

cdef object OFFSET_ENTRY = struct.Struct(">iI")
cdef object TIME_ENTRY = struct.Struct(">qi")

cdef enum:
    # Bytes of the first buffer for a piece.
    FIRST_ROOM = 1 << 20
    NO_TIMESTAMP = -1
    # How many records are processed together, as when they are entered in a map.
    BLOCK = 64
    # The most by which a new timestamp delta can grow a record: the delta itself, and the record's length.
    MOST_GROWN = 14


cdef class Scratch:
    """A reusable buffer."""

    cdef bytearray buffer
    cdef uint8_t* data
    cdef Py_ssize_t used

    def __cinit__(self):
        self.buffer = bytearray()

    cdef int make_room(self, Py_ssize_t size) except -1:
        self.used = 0
        if size > len(self.buffer):
            self.buffer = bytearray(max(2 * len(self.buffer), size))
            self.data = <uint8_t*>self.buffer
        return 0

    cdef inline void copy(self, const uint8_t* start, const uint8_t* end) noexcept nogil:
        memcpy(self.data + self.used, start, end - start)
        self.used += end - start


cdef struct Kept:
    # The kept part of one batch.
    int32_t records
    int32_t tombstones
    int64_t first_offset
    int64_t last_offset
    int64_t max_timestamp


cdef class CleanedOutput:
    """The content of a cleaned segment: its bytes, piece by piece, and its indexes as a writer would build them. Not
    thread-safe.

    Where batches are dropped, an empty batch takes their offsets (`record/empty_batch.py` says why), one for each run
    of dropped batches. It keeps their leader epoch: where that changes, another empty batch begins, so that the log
    alone shows where an epoch began.

    Args:
        base_offset: of the segment.
        index_interval: bytes of the log between two index entries.

    Attributes:
        size: bytes of the segment so far, including the current piece.
        offset_index, time_index: the indexes' entries, in the files' format.
    """

    cdef readonly int64_t base_offset
    cdef readonly int64_t size  # bytes of the segment so far
    cdef readonly bytearray offset_index
    cdef readonly bytearray time_index
    cdef int64_t index_interval
    cdef int64_t since_entry
    cdef int64_t max_timestamp
    cdef int64_t max_timestamp_offset
    cdef int64_t indexed_timestamp  # of the last entry of the time index
    # Offsets without a batch so far, up to where the next batch begins.
    cdef int64_t gap_start  # -1: none
    cdef int32_t gap_epoch
    # The current piece: in a buffer of its own, or a run of unchanged batches of the source.
    cdef bytearray buffer
    cdef uint8_t* data
    cdef Py_ssize_t used
    cdef object source
    cdef const uint8_t* source_data
    cdef Py_ssize_t run_start
    cdef Py_ssize_t run_end

    def __cinit__(self, int64_t base_offset, int64_t index_interval):
        self.base_offset = base_offset
        self.index_interval = index_interval
        self.offset_index = bytearray()
        self.time_index = bytearray()
        self.max_timestamp = self.indexed_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self.gap_start = -1
        self.buffer = bytearray(FIRST_ROOM)
        self.data = <uint8_t*>self.buffer

    def piece(self):
        """The bytes that the last call has added, as a memoryview; valid until the next call."""
        if self.run_end > self.run_start:
            return memoryview(self.source)[self.run_start : self.run_end]
        return memoryview(self.buffer)[: self.used]

    def finish(self, int64_t until):
        """Fills the gap before `until` and adds the closing time entry; `piece` returns the added bytes."""
        self.begin_piece(None, NULL)
        self.close_gap(until)
        self.add_time_entry()

    cdef int begin_piece(self, source, const uint8_t* source_data) except -1:
        """Begins a piece; batches of `source` may be used unchanged."""
        self.source = source
        self.source_data = source_data
        self.used = self.run_start = self.run_end = 0
        return 0

    cdef int drop(self, int64_t base_offset, int64_t next_offset, int32_t leader_epoch) except -1:
        """Notes that a batch with these offsets is dropped."""
        if next_offset == base_offset:
            return 0
        if self.gap_start >= 0 and self.gap_epoch != leader_epoch:
            self.close_gap(base_offset)
        if self.gap_start < 0:
            self.gap_start = base_offset
            self.gap_epoch = leader_epoch
        return 0

    cdef int close_gap(self, int64_t base_offset) except -1:
        """Fills the gap before a batch that begins at `base_offset`."""
        cdef Header h
        cdef uint8_t* p
        if self.gap_start < 0:
            return 0
        p = self.reserve(HEADER_SIZE)
        h.base_offset = self.gap_start
        h.last_offset = base_offset - 1
        h.last_offset_delta = <int32_t>(base_offset - 1 - self.gap_start)
        h.size = HEADER_SIZE
        h.leader_epoch = self.gap_epoch
        h.attributes = h.count = 0
        h.base_timestamp = h.max_timestamp = NO_TIMESTAMP
        h.producer_id = h.producer_epoch = h.base_sequence = -1
        write_header(p, &h)
        self.gap_start = -1
        return self.add(&h)

    cdef int keep(self, Py_ssize_t position, const Header* h) except -1:
        """Adds the batch at `position` of the source, unchanged."""
        self.close_gap(h.base_offset)
        if self.used == 0 and (self.run_end == self.run_start or position == self.run_end):
            if self.run_end == self.run_start:
                self.run_start = position
            self.run_end = position + h.size
            return self.count(h)
        memcpy(self.reserve(h.size), self.source_data + position, h.size)
        return self.add(h)

    cdef int copy_run(self) except -1:
        """Moves the run from the source to the buffer, since something else follows."""
        cdef Py_ssize_t start = self.run_start, size = self.run_end - self.run_start
        self.run_start = self.run_end = 0
        if size:
            memcpy(self.reserve(size), self.source_data + start, size)
            self.used += size
        return 0

    cdef uint8_t* reserve(self, Py_ssize_t size) except NULL:
        """Reserves `size` bytes after the piece, of which `add` uses as many as its header says."""
        cdef bytearray grown
        if self.run_end > self.run_start:
            self.copy_run()
        if self.used + size > len(self.buffer):
            grown = bytearray(max(2 * len(self.buffer), self.used + size))
            memcpy(<uint8_t*>grown, self.data, self.used)
            self.buffer = grown
            self.data = <uint8_t*>grown
        return self.data + self.used

    cdef int add(self, const Header* h) except -1:
        self.count(h)
        self.used += h.size
        return 0

    cdef int count(self, const Header* h) except -1:
        # As SegmentWriter does.
        if self.size + h.size > INT32_MAX:
            raise SegmentOverflowError(self.base_offset, f"more than {INT32_MAX} bytes")
        if h.max_timestamp > self.max_timestamp:
            self.max_timestamp = h.max_timestamp
            self.max_timestamp_offset = h.last_offset
        if self.since_entry > self.index_interval:
            self.add_time_entry()
            self.offset_index += OFFSET_ENTRY.pack(h.last_offset - self.base_offset, self.size)
            self.since_entry = 0
        self.since_entry += h.size
        self.size += h.size
        return 0

    cdef int add_time_entry(self) except -1:
        if self.max_timestamp > self.indexed_timestamp:
            self.indexed_timestamp = self.max_timestamp
            self.time_index += TIME_ENTRY.pack(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
        return 0


cdef class BatchFilter:
    """Cleans the batches of segments, one segment after another. Not thread-safe.

    Args:
        keys: the latest offset of each key, and up to where they are known.
        output: receives the kept batches.
        now: in ms.
        delete_retention_ms: how long a tombstone stays after a cleaning has first met it.
        transactions: a CleanedTransactions, which is passed all transactional batches.
        is_last: returns for a batch's header whether the batch has its producer's last known state.
        codec, level: the level with which batches of that codec are compressed; others get Kafka's default.
        max_batch_bytes: the most bytes that one batch may become when it is decompressed.

    Attributes:
        keeps_legacy_tombstones: whether tombstones in messages of formats 0 and 1, which have no delete horizon, stay
            for now.
        next_offset: the offset after the last batch taken; the owner sets it to where the first must begin.
        records_read, records_kept: counts; not of control batches.
    """

    cdef OffsetMap keys
    cdef CleanedOutput output
    cdef BatchWalk batches
    cdef int64_t now
    cdef int64_t new_horizon
    cdef object transactions
    cdef object is_last
    cdef object level
    cdef int level_codec
    cdef Scratch kept_bytes
    cdef Scratch shifted
    cdef public bint keeps_legacy_tombstones
    cdef readonly int64_t records_read
    cdef readonly int64_t records_kept

    def __init__(
        self, OffsetMap keys not None, CleanedOutput output not None, *, int64_t now, int64_t delete_retention_ms,
        transactions, is_last, str codec, level, int64_t max_batch_bytes,
    ):
        self.keys = keys
        self.output = output
        self.batches = BatchWalk.__new__(BatchWalk)
        self.batches.limit = max_batch_bytes
        self.batches.follows = output.base_offset
        self.now = now
        self.new_horizon = min(now, INT64_MAX - delete_retention_ms) + delete_retention_ms
        self.transactions = transactions
        self.is_last = is_last
        self.level_codec = CODECS.index(codec)
        self.level = level
        self.kept_bytes = Scratch.__new__(Scratch)
        self.shifted = Scratch.__new__(Scratch)

    @property
    def next_offset(self):
        return self.batches.follows

    def take(self, buffer, Py_ssize_t start, Py_ssize_t end):
        """Cleans the complete batches in `buffer[start:end]`; the kept bytes are `output.piece()`.

        Args:
            buffer: any contiguous bytes-like object; it must not change before the piece is written.
            start, end: the range in bytes; `start` is the start of a batch.

        Returns:
            Where the last of them ends, in bytes.

        Raises:
            CorruptRecordError: bytes that are not a batch of a dense log; positions count from the buffer's start.
            SegmentOverflowError: the output is too large for a segment.
        """
        cdef BatchWalk batches = self.batches
        batches.load(buffer, start, end)
        self.output.begin_piece(buffer, batches.source.data)
        while batches.peek():
            self.clean()
            batches.pass_by()
        return batches.position

    cdef int clean(self) except -1:
        cdef Header* h = &self.batches.header
        cdef bint dropped = False
        if h.magic == MAGIC and h.attributes & CONTROL:
            return self.clean_control()
        if h.magic == MAGIC and h.attributes & TRANSACTIONAL:
            dropped = self.transactions.take_batch(h.producer_id, h.base_offset)
        if dropped or h.count == 0:
            self.records_read += h.count
            return self.drop_all()
        return self.clean_records()

    cdef int clean_control(self) except -1:
        cdef Header* h = &self.batches.header
        cdef Py_ssize_t at = self.batches.position
        cdef bint has_horizon = (h.attributes & DELETE_HORIZON) != 0
        cdef Kept kept
        (header,) = scan(self.output.source, at, at + h.size)
        data = PyMemoryView_FromMemory(<char*>self.batches.source.data + at, h.size, PyBUF_READ)
        cdef bint ready = self.transactions.take_control(header, data)
        if h.count == 0 or (ready and has_horizon and h.base_timestamp <= self.now):
            return self.drop_all()
        if not ready or has_horizon:
            return self.output.keep(at, h)
        self.batches.open()
        kept.records = h.count
        kept.max_timestamp = h.max_timestamp
        return self.write_batch(&kept, self.batches.data, self.batches.data_end, True)

    cdef int drop_all(self) except -1:
        """Drops a batch, except its header if that holds its producer's last known state."""
        cdef Header h = self.batches.header
        cdef Py_ssize_t at = self.batches.position
        if h.magic < MAGIC or h.producer_id < 0 or not self.is_last(*scan(self.output.source, at, at + h.size)):
            return self.output.drop(h.base_offset, h.last_offset + 1, h.leader_epoch)
        self.output.close_gap(h.base_offset)
        h.size = HEADER_SIZE
        h.attributes &= LOG_APPEND_TIME | TRANSACTIONAL | CONTROL
        h.base_timestamp = -1
        h.count = 0
        write_header(self.output.reserve(HEADER_SIZE), &h)
        return self.output.add(&h)

    cdef int clean_records(self) except -1:
        cdef Header* h = &self.batches.header
        cdef Py_ssize_t at = self.batches.position
        cdef bint own = h.magic == MAGIC
        cdef bint has_horizon = own and h.attributes & DELETE_HORIZON
        cdef Kept kept
        cdef const uint8_t* data
        cdef const uint8_t* end
        if own or h.attributes & CODEC_MASK:
            self.batches.open()
            data, end = self.batches.data, self.batches.data_end
        else:
            data = self.batches.source.data + at
            end = data + h.size
        self.filter_records(data, end, &kept)
        self.records_read += h.count
        self.records_kept += kept.records
        if kept.records == 0:
            return self.drop_all()
        if kept.records < h.count:
            data = self.kept_bytes.data
            end = data + self.kept_bytes.used
        elif not own or has_horizon or not kept.tombstones:
            return self.output.keep(at, h)
        if own:
            return self.write_batch(&kept, data, end, kept.tombstones and not has_horizon)
        return self.write_set(&kept, data, end)

    cdef int filter_records(self, const uint8_t* data, const uint8_t* end, Kept* kept) except -1:
        """Copies the kept records to `kept_bytes`, unless all are kept."""
        cdef Header* h = &self.batches.header
        cdef Walk walk
        cdef Record records[BLOCK]
        cdef Record* record
        cdef const char* reason = NULL
        cdef const uint8_t* run = NULL  # where records begin that stay and are not copied yet
        cdef int index, taken = 0
        cdef bint known = h.base_offset <= self.keys.latest_offset
        # Of records of the range that was entered last it is noted whether they were replaced.
        cdef bint looked_up = known and (
            h.base_offset < self.keys.noted_from or self.keys.noted_until <= self.keys.latest_offset
        )
        cdef bint all_known = h.last_offset <= self.keys.latest_offset
        cdef bint expired = self.is_expired(h)
        kept.records = kept.tombstones = 0
        kept.first_offset = kept.last_offset = kept.max_timestamp = -1
        self.kept_bytes.make_room(end - data)
        begin_walk(&walk, h, data, end)
        with nogil:
            while walk.done < walk.header.count:
                reason = take_records(&walk, records, BLOCK, &taken)
                if reason != NULL:
                    break
                if looked_up:
                    self.keys.hash_all(records, taken)
                for index in range(taken):
                    record = &records[index]
                    if known and not self.stays(record, expired):
                        if run != NULL:
                            self.kept_bytes.copy(run, record.start)
                            run = NULL
                        continue
                    if run == NULL:
                        run = record.start
                    if kept.records == 0:
                        kept.first_offset = record.offset
                    kept.last_offset = record.offset
                    kept.records += 1
                    # Unless all keys are known, records that they replace may stay: no retention yet.
                    kept.tombstones += all_known and record.value_length < 0
                    if record.time > kept.max_timestamp:
                        kept.max_timestamp = record.time
            if reason == NULL and run != NULL and kept.records < walk.header.count:
                self.kept_bytes.copy(run, end)
        if reason != NULL:
            self.batches.refuse(&walk, reason)
        if h.attributes & LOG_APPEND_TIME:
            kept.max_timestamp = h.max_timestamp
        return 0

    cdef bint is_expired(self, const Header* h) noexcept:
        """Whether the retention of a batch's tombstones is over."""
        if h.magic < MAGIC:
            return not self.keeps_legacy_tombstones
        return h.attributes & DELETE_HORIZON and h.base_timestamp <= self.now

    cdef inline bint stays(self, const Record* record, bint expired) noexcept nogil:
        if record.offset > self.keys.latest_offset:
            return True
        if record.key_length < 0:
            return False
        if self.keys.noted_from <= record.offset < self.keys.noted_until:
            if self.keys.is_replaced(record.offset):
                return False
        elif record.offset < self.keys.find(record):
            return False
        return record.value_length >= 0 or not expired

    cdef int write_batch(self, const Kept* kept, const uint8_t* data, const uint8_t* end, bint new_horizon) except -1:
        """Writes a batch of format 2 with other records or another base timestamp."""
        cdef Header h = self.batches.header
        cdef uint8_t* p
        cdef Bytes packed
        h.count = kept.records
        h.max_timestamp = kept.max_timestamp
        if new_horizon:
            self.shift_times(&h, data, end)
            data = self.shifted.data
            end = data + self.shifted.used
            h.base_timestamp = self.new_horizon
            h.attributes |= DELETE_HORIZON
        if h.attributes & CODEC_MASK:
            packed = self.compressed(h.attributes & CODEC_MASK, data, end)
            data = packed.data
            end = data + packed.view.len
        h.size = HEADER_SIZE + (end - data)
        self.output.close_gap(h.base_offset)
        p = self.output.reserve(h.size)
        memcpy(p + HEADER_SIZE, data, end - data)
        write_header(p, &h)
        return self.output.add(&h)

    cdef int shift_times(self, const Header* h, const uint8_t* data, const uint8_t* end) except -1:
        """Writes records to `shifted` with times relative to the new delete horizon."""
        cdef Walk walk
        cdef Record record
        cdef const char* reason
        cdef uint8_t* p
        cdef const uint8_t* found
        cdef uint64_t delta
        cdef Py_ssize_t rest
        cdef int taken = 0
        self.shifted.make_room(end - data + MOST_GROWN * <Py_ssize_t>h.count)
        p = self.shifted.data
        begin_walk(&walk, h, data, end)
        with nogil:
            while walk.done < h.count:
                reason = take_records(&walk, &record, 1, &taken)
                if reason != NULL:
                    break
                delta = zigzag(<int64_t>(<uint64_t>record.time - <uint64_t>self.new_horizon))
                found = after_time(record.start, record.end)
                rest = record.end - found
                p = write_varint(p, zigzag(1 + varint_size(delta) + rest))
                p[0] = 0
                p = write_varint(p + 1, delta)
                memcpy(p, found, rest)
                p += rest
        if reason != NULL:
            self.batches.refuse(&walk, reason)
        self.shifted.used = p - self.shifted.data
        return 0

    cdef Bytes compressed(self, int codec, const uint8_t* data, const uint8_t* end):
        stream = PyMemoryView_FromMemory(<char*>data, end - data, PyBUF_READ)
        return Bytes(compress(CODECS[codec], stream, self.level if codec == self.level_codec else None), 0, 0)

    cdef int write_set(self, const Kept* kept, const uint8_t* data, const uint8_t* end) except -1:
        """Writes a compressed message set with fewer messages."""
        cdef Header h = self.batches.header
        cdef Bytes packed = self.compressed(h.attributes & CODEC_MASK, data, end)
        cdef Py_ssize_t head = SMALLEST_MESSAGE_1 if h.magic else SMALLEST_MESSAGE_0
        cdef uint8_t* p
        h.size = head + packed.view.len
        h.last_offset = kept.last_offset
        if h.magic:
            h.max_timestamp = kept.max_timestamp
        self.output.drop(h.base_offset, kept.first_offset, h.leader_epoch)
        self.output.close_gap(kept.first_offset)
        p = self.output.reserve(h.size)
        store_i64(p, h.last_offset)
        store_i32(p + LENGTH_AT, <int32_t>(h.size - LENGTH_PREFIX))
        p[MAGIC_AT] = <uint8_t>h.magic
        p[MESSAGE_ATTRIBUTES_AT] = <uint8_t>h.attributes
        if h.magic:
            store_i64(p + MESSAGE_TIME_AT, h.max_timestamp)
        store_i32(p + head - 8, -1)  # no key
        store_i32(p + head - 4, <int32_t>packed.view.len)
        memcpy(p + head, packed.data, packed.view.len)
        store_u32(p + MESSAGE_CRC_AT, message_checksum(p, h.size))
        self.output.add(&h)
        return self.output.drop(h.last_offset + 1, self.batches.header.last_offset + 1, h.leader_epoch)
