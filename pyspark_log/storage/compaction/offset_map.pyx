# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The latest offset of each key in a part of a log, in little memory (the part of Kafka's SkimpyOffsetMap).

A key is identified by its hash alone, 16 bytes, so an entry takes 24 bytes, however long the keys are. Two keys with
one hash would be mistaken for one, and all but the last record of the two would be lost. Kafka uses MD5, for which
such keys can be constructed. This hash (SipHash-2-4-128) has a secret key, drawn at random for each map and never
stored, so such keys cannot be searched for, and chance is negligible: at 5 million keys it is 1 in 10^25.

The table uses open addressing: an entry is in the slot that its hash points to, or in one of the next. An entry that is
farther from its slot displaces a nearer one ("Robin Hood"), so that a search may end where it meets an entry that is
nearer than itself: absent keys, which are most keys of a log that was compacted before, are recognised after a few
slots, however full the table is. It starts small and doubles, since most logs have fewer keys than the maximum, and
the first write to memory takes longer than all the rest.
"""

import secrets

from pyspark_log.storage.record import layout
from pyspark_log.errors import InvalidConfigError

from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint64_t
from libc.string cimport memset

from pyspark_log.storage.record.headers cimport Bytes
from pyspark_log.storage.record.walk cimport BatchWalk, Record, Walk, begin_walk, take_records
from pyspark_log.storage.compaction.siphash cimport siphash

cdef extern from *:
    """
    #include <sys/mman.h>

    static void *zeroed(size_t size) {
        void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
        if (memory == MAP_FAILED)
            return NULL;
    #ifdef MADV_HUGEPAGE
        madvise(memory, size, MADV_HUGEPAGE);
    #endif
        return memory;
    }

    static inline unsigned long long scaled(unsigned long long value, unsigned long long count) {
        return (unsigned long long)(((unsigned __int128)value * count) >> 64);
    }
    """
    # Memory mapped for this alone, in large pages where the system has some: a look-up is one page away from the one
    # before.
    void* zeroed(size_t size) noexcept nogil
    int munmap(void* memory, size_t size) noexcept nogil
    uint64_t scaled(uint64_t value, uint64_t count) noexcept nogil
    void prefetch "__builtin_prefetch"(const void* address) noexcept nogil

cdef int CONTROL = layout.CONTROL
cdef int TRANSACTIONAL = layout.TRANSACTIONAL
cdef Py_ssize_t ENTRY_SIZE = sizeof(Entry)

cdef enum:
    # How many records are processed together, so that their slots are fetched from memory in parallel.
    BLOCK = 64
    # The most slots that a table starts with.
    SMALLEST = 16384
    # Offsets that are noted at most, for each slot: they take a bit each, and a slot 24 bytes.
    NOTED = 16


cdef Py_ssize_t usable(Py_ssize_t slots, double load_factor) noexcept nogil:
    # One slot stays free, or a search for an absent key would not end.
    return min(<Py_ssize_t>(slots * load_factor), slots - 1)


cdef inline Py_ssize_t note_size(int64_t start, int64_t end) noexcept nogil:
    return (end - start) // 8 + 1


cdef class OffsetMap:
    """Keys with offsets. Not thread-safe.

    Args:
        memory_bytes: what the table may take (Kafka's log.cleaner.dedupe.buffer.size). While it doubles for the last
            time it takes half as much again. The notes of `note_replaced` take a twelfth more at most.
        load_factor: the part of its slots that may be taken (log.cleaner.io.buffer.load.factor).

    Attributes:
        slots: of the table once it is as large as it may be.
        capacity: how many keys there can be then.
        count: how many there are.
        latest_offset: up to which offset (inclusive) the records of the log are entered; -1: none. `take` moves it, and
            its owner may.

    Raises:
        InvalidConfigError: there is no room for a single key.
        MemoryError: the system has too little memory.
    """

    def __cinit__(self, Py_ssize_t memory_bytes, double load_factor=0.9):
        self.slots = memory_bytes // ENTRY_SIZE
        if 0 < load_factor < 1:
            self.load_factor = load_factor
            self.capacity = usable(self.slots, load_factor)
        if self.capacity < 1:
            raise InvalidConfigError(
                f"a table of {memory_bytes} bytes of which {load_factor} may be used has no room for a key: give "
                f"log.cleaner.dedupe.buffer.size at least {2 * ENTRY_SIZE} bytes for each key, and a load factor "
                "between 0 and 1"
            )
        self.size = self.slots
        while self.size > SMALLEST:
            self.size = (self.size + 1) // 2
        self.room = usable(self.size, load_factor)
        self.entries = <Entry*>zeroed(self.size * ENTRY_SIZE)
        if self.entries == NULL:
            raise MemoryError
        self.noted_from = self.noted_until = INT64_MAX
        self.key_low = secrets.randbits(64)
        self.key_high = secrets.randbits(64)
        self.latest_offset = -1

    def __dealloc__(self):
        if self.entries != NULL:
            munmap(self.entries, self.size * ENTRY_SIZE)
        self.forget()

    cdef void forget(self) noexcept nogil:
        if self.replaced != NULL:
            munmap(self.replaced, note_size(self.noted_from, self.noted_until))
        self.replaced = NULL
        self.noted_from = self.noted_until = INT64_MAX

    def note_replaced(self, int64_t start, int64_t end):
        """Notes from now on, in a bit for each offset of [start, end), which records are replaced by later ones.

        The cleaner need not search for the keys of these records again. If there are too many offsets, nothing is
        noted.
        """
        self.forget()
        if start < end <= start + NOTED * self.slots:
            self.replaced = <uint8_t*>zeroed(note_size(start, end))
            if self.replaced != NULL:
                self.noted_from, self.noted_until = start, end

    def clear(self):
        """Removes all keys and notes, and resets `latest_offset`."""
        self.forget()
        memset(self.entries, 0, self.size * ENTRY_SIZE)
        self.count = 0
        self.latest_offset = -1

    def put(self, key, int64_t offset):
        """Enters a key; a later offset replaces an earlier one of the same key, also if it is lower.

        Args:
            key: a bytes-like object.
            offset: not negative.

        Returns:
            False: there is no room for another key, and nothing was changed.
        """
        cdef Bytes held = Bytes(key, 0, 0)
        cdef Record record
        if offset < 0:
            raise ValueError(f"offset {offset} is negative")
        record.key = held.data
        record.key_length = <int>held.view.len
        record.offset = offset
        self.hash_all(&record, 1)
        return self.put_hashed(&record)

    def get(self, key):
        """The offset of a key; -1 if it is absent."""
        cdef Bytes held = Bytes(key, 0, 0)
        cdef Record record
        record.key = held.data
        record.key_length = <int>held.view.len
        self.hash_all(&record, 1)
        return self.find(&record)

    def take(
        self, buffer, Py_ssize_t start, Py_ssize_t end, *, int64_t from_offset, int64_t until_offset, int64_t follows,
        int64_t max_batch_bytes, aborted,
    ):
        """Enters the records of the complete batches in `buffer[start:end]`, batch by batch.

        Control batches, batches of aborted transactions and records without keys are passed over.

        Args:
            buffer: any contiguous bytes-like object; it must not change meanwhile.
            start, end: the range in bytes; `start` is the start of a batch.
            from_offset, until_offset: records outside [from_offset, until_offset) are passed over.
            follows: the offset at which the first batch must begin; -1: any. Each other one must begin where the one
                before it ends.
            max_batch_bytes: the most bytes that one batch may become when it is decompressed.
            aborted: returns for a producer id and the base offset of a transactional batch whether it was aborted.

        Returns:
            Where it stopped, in bytes; the offset after the last batch that was taken or passed over (`follows`, if
            there was none); and whether the table is full: then the batch where it stopped has keys that have no room.
            Its keys that were entered do no harm, since a later record of theirs is in the log.

        Raises:
            CorruptRecordError: bytes that are not a batch of a dense log; positions count from the buffer's start.
        """
        cdef BatchWalk batches = BatchWalk.__new__(BatchWalk)
        cdef bint full = False
        cdef int attributes
        batches.load(buffer, start, end)
        batches.follows = follows
        batches.limit = max_batch_bytes
        while batches.peek() and batches.header.base_offset < until_offset:
            attributes = batches.header.attributes
            if batches.header.last_offset >= from_offset:
                if not attributes & CONTROL and not (
                    attributes & TRANSACTIONAL and aborted(batches.header.producer_id, batches.header.base_offset)
                ):
                    full = not self.put_batch(batches, from_offset, until_offset)
                    if full:
                        break
                self.latest_offset = max(self.latest_offset, min(batches.header.last_offset, until_offset - 1))
            batches.pass_by()
        return batches.position, batches.follows, full

    cdef bint put_batch(self, BatchWalk batches, int64_t from_offset, int64_t until_offset) except -1:
        cdef Walk walk
        cdef Record records[BLOCK]
        cdef const char* reason = NULL
        cdef int index, taken = 0
        cdef bint fits = True
        if batches.header.count == 0:
            return True
        batches.open()
        begin_walk(&walk, &batches.header, batches.data, batches.data_end)
        with nogil:
            while fits and reason == NULL and walk.done < walk.header.count:
                reason = take_records(&walk, records, BLOCK, &taken)
                if reason != NULL:
                    break
                self.hash_all(records, taken)
                for index in range(taken):
                    if records[index].key_length >= 0 and from_offset <= records[index].offset < until_offset:
                        fits = self.put_hashed(&records[index])
                        if not fits:
                            break
        if reason != NULL:
            batches.refuse(&walk, reason)
        return fits

    cdef void hash_all(self, Record* records, int count) noexcept nogil:
        cdef int index
        cdef Record* record
        for index in range(count):
            record = &records[index]
            if record.key_length >= 0:
                siphash(
                    self.key_low, self.key_high, record.key, record.key_length, &record.hash_low, &record.hash_high
                )
                prefetch(&self.entries[scaled(record.hash_low, self.size)])
                prefetch(<const char*>&self.entries[scaled(record.hash_low, self.size)] + 64)

    cdef inline Py_ssize_t away(self, Py_ssize_t slot, uint64_t low) noexcept nogil:
        cdef Py_ssize_t slots = slot - <Py_ssize_t>scaled(low, self.size)
        return slots if slots >= 0 else slots + self.size

    cdef int64_t find(self, const Record* record) noexcept nogil:
        cdef Py_ssize_t slot = <Py_ssize_t>scaled(record.hash_low, self.size)
        cdef Py_ssize_t passed = 0
        cdef const Entry* entry
        while True:
            entry = &self.entries[slot]
            if entry.low == record.hash_low and entry.high == record.hash_high and entry.next_offset:
                return entry.next_offset - 1
            if not entry.next_offset or self.away(slot, entry.low) < passed:
                return -1
            passed += 1
            slot += 1
            if slot == self.size:
                slot = 0

    cdef bint put_hashed(self, const Record* record) noexcept nogil:
        cdef Py_ssize_t slot = <Py_ssize_t>scaled(record.hash_low, self.size)
        cdef Py_ssize_t passed = 0
        cdef Entry* entry
        cdef Entry placed, other
        cdef int64_t bit
        while True:
            entry = &self.entries[slot]
            if entry.low == record.hash_low and entry.high == record.hash_high and entry.next_offset:
                bit = entry.next_offset - 1 - self.noted_from
                if bit >= 0 and entry.next_offset <= min(record.offset, self.noted_until):
                    self.replaced[bit >> 3] |= 1 << (bit & 7)
                entry.next_offset = record.offset + 1
                return True
            if not entry.next_offset or self.away(slot, entry.low) < passed:
                break
            passed += 1
            slot += 1
            if slot == self.size:
                slot = 0
        if self.count == self.room:
            return self.grow() and self.put_hashed(record)
        self.count += 1
        placed.low = record.hash_low
        placed.high = record.hash_high
        placed.next_offset = record.offset + 1
        # The entries after it move by one each, which keeps their order, up to the next free slot.
        while True:
            entry = &self.entries[slot]
            other = entry[0]
            entry[0] = placed
            if not other.next_offset:
                return True
            placed = other
            slot += 1
            if slot == self.size:
                slot = 0

    cdef bint grow(self) noexcept nogil:
        """Doubles the table; False: it has its maximum size, or the system has no memory."""
        cdef Entry* before = self.entries
        cdef Py_ssize_t size = self.size, index
        cdef Entry* grown
        cdef Record record
        if size == self.slots:
            return False
        grown = <Entry*>zeroed(min(2 * size, self.slots) * ENTRY_SIZE)
        if grown == NULL:
            return False
        self.entries = grown
        self.size = min(2 * size, self.slots)
        self.room = usable(self.size, self.load_factor)
        self.count = 0
        for index in range(size):
            if before[index].next_offset:
                record.hash_low = before[index].low
                record.hash_high = before[index].high
                record.offset = before[index].next_offset - 1
                self.put_hashed(&record)
        munmap(before, size * ENTRY_SIZE)
        return True


def siphash128(bytes key, data):
    """SipHash-2-4-128 of `data`, for comparison with its published values; `key` has 16 bytes."""
    cdef Bytes held = Bytes(data, 0, 0)
    cdef uint64_t low = 0, high = 0
    siphash(
        int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little"), held.data, held.view.len, &low, &high
    )
    return (<object>low).to_bytes(8, "little") + (<object>high).to_bytes(8, "little")
