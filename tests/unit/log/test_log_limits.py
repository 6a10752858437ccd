"""Where a log begins and ends, holes in it, and how far it can go (after Kafka's LogSegmentTest and UnifiedLogTest)."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest
from producer_tools import ready
from record_tools import Record, build, rows_of
from record_tools import read as decoded

from pyspark_log.config import INT_MAX
from pyspark_log.errors import CorruptRecordError, OffsetOutOfRangeError
from pyspark_log.storage.record.decoding.decoder import decode
from pyspark_log.storage.record.empty_batch import empty_batch
from pyspark_log.storage.record.layout import HEADER_SIZE
from pyspark_log.storage.segment.file_names import list_segments
from pyspark_log.storage.segment.segment import SegmentReader
from pyspark_log.storage.store import Store
from tests.store_tools import cut_log, new_store, roll_log, store_with

store = store_with({"retention.ms": "-1", "index.interval.bytes": "0"})


def append(store, *values, time=None):
    columns = {"value": [b"%d" % value for value in values]}
    if time is not None:
        columns["timestamp"] = pa.array([time] * len(values), pa.int64())
    store.append("t", pa.record_batch(columns))


def leave_out(store, offsets):
    """A hole of `offsets` offsets, as a power loss leaves it."""
    with store.logs.writer("t", 0).hold() as writer:
        writer.append(bytearray(empty_batch(0, offsets, 0)), sync=False)


def read(store, *bounds, **options):
    rows = [row for batch in store.read("t", 0, *bounds, **options) for row in batch.to_pylist()]
    return [(row["offset"], int(row["value"])) for row in rows]


# ---- both ends


def test_an_empty_log_can_be_read_at_its_end_only(store):
    assert read(store) == read(store, 0) == read(store, 0, 0) == []
    for bounds in ((1,), (0, 1), (-3,)):
        with pytest.raises(OffsetOutOfRangeError) as raised:
            read(store, *bounds)
        assert (raised.value.log_start, raised.value.log_end) == (0, 0)


def test_reading_at_and_beyond_both_ends(store):
    """testReadOutOfRange: the log holds offset 1024 alone."""
    append(store, *range(1024))
    store.delete_records("t", 0, 1024)
    append(store, 1024)
    assert read(store, 1024) == [(1024, 1024)]
    assert read(store, 1025) == []
    for offset in (1026, 1023, 0):
        with pytest.raises(OffsetOutOfRangeError) as raised:
            read(store, offset)
        assert (raised.value.offset, raised.value.log_start, raised.value.log_end) == (offset, 1024, 1025)


def test_a_read_gives_one_batch_at_least_however_little_it_may_take(store):
    for number in range(3):
        append(store, number)
    assert [batch.num_rows for batch in store.read("t", 0, max_bytes=1)] == [1, 1, 1]
    assert read(store, 1, 2, max_bytes=1) == [(1, 1)]


def test_a_read_gives_about_as_much_as_it_may_take(store):
    """But its first batch is small: a look-up takes no more."""
    value = b"x" * 1000
    store.append("t", pa.record_batch({"value": [value] * 10_000}))
    for most in (2**20, 4 * 2**20):
        sizes = [batch.num_rows * len(value) for batch in store.read("t", 0, max_bytes=most)]
        assert sum(sizes) == 10_000_000
        assert sizes[0] < 2**20
        assert all(most * 0.7 < size < most for size in sizes[1:-1])
        assert len(sizes) > 2


# ---- holes


def test_a_read_from_inside_of_a_hole_begins_after_it(store):
    append(store, 0, 1)
    leave_out(store, 8)
    append(store, 10, 11)
    assert read(store) == [(0, 0), (1, 1), (10, 10), (11, 11)]
    for offset in range(2, 11):
        assert read(store, offset) == [(10, 10), (11, 11)]
        assert read(store, offset, 10) == []
    assert read(store, 0, 5) == [(0, 0), (1, 1)]


def test_holes_at_the_beginning_and_the_end(store):
    leave_out(store, 7)
    for number in range(7, 70, 7):
        append(store, number)
        leave_out(store, 6)
    for offset in range(64):
        assert read(store, offset)[0][0] == -(-max(offset, 1) // 7) * 7
    assert store.latest_offset("t", 0) == 70
    assert read(store, 65) == read(store, 70) == []
    assert store.offset_for_timestamp("t", 0, 0).offset == 7


def test_a_hole_may_end_a_segment(store):
    append(store, 0)
    leave_out(store, 9)
    roll_log(store)
    append(store, 10)
    assert [read(store, offset) for offset in (0, 1, 9, 10)] == [[(0, 0), (10, 10)], *[[(10, 10)]] * 3]


def test_a_compacted_batch_is_read_from_an_offset_that_is_gone():
    """Offsets 0 to 3 of which 1 is left, and after it a batch that begins at 4."""
    whole = build([Record(None, b"%d" % number) for number in range(4)])
    one = [row for row in decoded(whole) if row.offset == 1]
    assert len(one) == 1
    data = whole + build([Record(None, b"4")], base_offset=4)
    for offset, first in ((0, 0), (2, 2), (3, 3), (4, 4)):
        chunk = decode(
            data, 0, len(data), from_offset=offset, until_offset=1 << 62, max_bytes=1 << 20, headers=True, dense=False
        )
        assert next(row.offset for row in rows_of(chunk)) == first


# ---- how far it can go


def test_a_segment_takes_offsets_up_to_31_bits_from_its_base_and_then_rolls(store):
    """canConvertToRelativeOffset: base + INT_MAX fits, the next one does not."""
    leave_out(store, INT_MAX)
    append(store, 1)
    folder = store.logs.reader("t", 0).place.folder
    assert list_segments(folder) == [0]
    assert store.latest_offset("t", 0) == INT_MAX + 1
    append(store, 2)
    assert list_segments(folder) == [0, INT_MAX + 1]
    assert read(store) == [(INT_MAX, 1), (INT_MAX + 1, 2)]
    assert read(Store.open(store.path), INT_MAX + 1) == [(INT_MAX + 1, 2)]


def test_a_batch_that_is_not_of_its_segment_is_damage_to_the_next_writer(store):
    append(store, 0)
    with store.logs.writer("t", 0).hold() as writer:
        header = next(SegmentReader(writer.log.place.folder, 0).since(-1, 0, writer.state.position))
        for offset in (-1, INT_MAX + 1):
            with pytest.raises(CorruptRecordError, match="do not belong to this segment"):
                writer.log.segment.enter([header._replace(base_offset=offset, position=writer.state.position)])
        writer.log.invalidate()


# ---- taking back


def test_a_full_segment_that_is_cut_to_nothing_is_written_to_again(tmp_path):
    """testTruncateFull: as long as its index is full the segment rolls; cut to its base, it is as new."""
    store = new_store(tmp_path, {"retention.ms": "-1", "index.interval.bytes": "0", "segment.index.bytes": "60"})
    append(store, 0, 1, 2)
    roll_log(store)
    last = 3
    while len(store.segment_files("t", 0)) == 2:
        append(store, last)
        last += 1
    assert cut_log(store, 3) == 3
    path = store.segment_files("t", 0)[-1]
    # The log ends after the last batch before the offset, in the segment of that batch or an empty one.
    assert read(store) == [(0, 0), (1, 1), (2, 2)]
    for number in range(3, 60):
        append(store, number)
    assert read(Store.open(store.path)) == [(number, number) for number in range(60)]
    assert path in store.segment_files("t", 0)


def test_the_largest_time_goes_with_the_records_that_had_it(store):
    """testReloadLargestTimestampAndNextOffsetAfterTruncation: thirty records, of which one stays."""
    for number in range(30):
        append(store, number, time=10 * (40 + number))
    assert store.logs.reader("t", 0).find_max_timestamp().timestamp == 690
    cut_log(store, 1)
    for opened in (store, Store.open(store.path)):
        latest = opened.logs.reader("t", 0).find_max_timestamp()
        assert (latest.offset, latest.timestamp) == (0, 400)
        assert opened.offset_for_timestamp("t", 0, 401) is None
    append(store, 1, time=410)
    assert store.offset_for_timestamp("t", 0, 401).offset == 1


# ---- producers whose records go


def test_a_producer_is_known_when_its_records_are_deleted(tmp_path):
    """testDeleteRecordsTruncatesProducerSnapshots: the snapshots go, what is known stays."""
    store = new_store(tmp_path, {"retention.ms": "-1", "segment.bytes": "300"})
    now = time.time_ns() // 1_000_000
    for sequence in range(12):
        store.append_batch("t", 0, ready(sequence, b"x" * 50, timestamp=now))
    folder = store.logs.reader("t", 0).place.folder
    before = len(list_segments(folder))
    store.delete_records("t", 0, 12)
    assert len(list_segments(folder)) < before
    for opened in (store, Store.open(store.path)):
        again = opened.append_batch("t", 0, ready(11, b"x" * 50, timestamp=now))
        assert (again.base_offset, again.duplicate) == (11, True)
    assert store.append_batch("t", 0, ready(12, b"x", timestamp=now)).base_offset == 12


# ---- numbers of any length

VARINTS = {
    0: "00", -1: "01", 1: "02", 63: "7e", -64: "7f", 64: "8001", -65: "8101", 150: "ac02", 8191: "fe7f",
    8192: "808001", -8193: "818001", INT_MAX: "feffffff0f", -INT_MAX - 1: "ffffffff0f",
}  # fmt: skip


@pytest.mark.parametrize("number", VARINTS)
def test_a_number_has_kafkas_bytes(number):
    """Seen as the time of a record, less the time of the first one (ByteUtilsTest)."""
    first = 1 << 40
    data = build([Record(None, None, first), Record(None, None, first + number)])
    second = data[HEADER_SIZE + 7 :]
    expected = bytes.fromhex(VARINTS[number])
    assert second[2 : 2 + len(expected)] == expected
    assert len(second) == 2 + len(expected) + 4
    assert decoded(data)[1].timestamp == first + number
