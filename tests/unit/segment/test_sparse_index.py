"""The offset and the time index of a segment, entry by entry (after Kafka's OffsetIndexTest and TimeIndexTest)."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pyspark_log.storage.fs import files
from pyspark_log.storage.segment.indexes import OffsetEntry, OffsetIndex, TimeEntry, TimeIndex
from pyspark_log.storage.segment.segment import SegmentWriter, read_headers
from tests.store_tools import new_store

BASE = 45


@pytest.fixture
def file(tmp_path):
    with files.create(str(tmp_path / "index")) as opened:
        yield opened


@pytest.fixture
def offsets(file):
    """Thirty entries, each second offset from 50 on."""
    index = OffsetIndex(file, BASE)
    for number in range(30):
        index.append(OffsetEntry(50 + 2 * number, 100 * number))
    return index


@pytest.fixture
def times(file):
    index = TimeIndex(file, BASE)
    for number in range(1, 31):
        index.append(TimeEntry(10 * number, 45 + 10 * number))
    return index


def test_the_last_entry_that_is_not_above_an_offset_is_found(offsets):
    assert offsets.floor(49) == -1
    for number in range(30):
        assert offsets.floor(50 + 2 * number) == number
        assert offsets.floor(51 + 2 * number) == number
        assert offsets.entry(number) == OffsetEntry(50 + 2 * number, 100 * number)
    assert offsets.floor(10**9) == 29


def test_entries_are_there_when_it_is_opened_again(offsets, file):
    again = OffsetIndex(file, BASE)
    assert again.count == 30
    assert list(again.entries()) == [offsets.entry(number) for number in range(30)]


def test_an_empty_index_finds_nothing(file):
    for index in (OffsetIndex(file, BASE), TimeIndex(file, BASE)):
        assert (index.count, index.floor(50), list(index.entries())) == (0, -1, [])


def test_a_cut_keeps_the_given_entries_and_appends_follow_them(offsets, file):
    offsets.cut(30)
    assert file.size() == 30 * OffsetIndex.WIDTH
    offsets.cut(4)
    assert (offsets.count, file.size()) == (4, 4 * OffsetIndex.WIDTH)
    offsets.append(OffsetEntry(57, 350))
    assert OffsetIndex(file, BASE).entry(4) == OffsetEntry(57, 350)
    offsets.cut(0)
    assert (offsets.floor(10**9), file.size()) == (-1, 0)


def test_a_part_of_an_entry_does_not_count(offsets, file):
    file.truncate(file.size() - 1)
    again = OffsetIndex(file, BASE)
    assert (again.count, len(list(again.entries()))) == (29, 29)
    again.append(OffsetEntry(200, 5000))
    assert OffsetIndex(file, BASE).entry(29) == OffsetEntry(200, 5000)


def test_the_last_entry_that_is_not_above_a_time_is_found(times):
    assert [times.floor(time) for time in (9, 10, 25, 30, 10**15)] == [-1, 0, 1, 2, 29]
    assert (times.entry(1), times.last()) == (TimeEntry(20, 65), TimeEntry(300, 345))


def test_a_time_that_is_not_larger_gets_no_entry(times):
    for time in (300, 299, -1):
        times.append(TimeEntry(time, 400))
    assert (times.count, times.last()) == (30, TimeEntry(300, 345))


@pytest.mark.parametrize(("offset", "left"), [(346, 30), (345, 29), (65, 1), (66, 2), (55, 0), (0, 0)])
def test_a_cut_of_times_goes_by_offsets(times, file, offset, left):
    times.cut(offset)
    assert (times.count, file.size()) == (left, left * TimeIndex.WIDTH)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_zeros_after_the_entries_are_no_entries_for_the_next_writer(tmp_path, suffix):
    """As a broker leaves them that made room in advance; the entries of both indexes must be those of the log."""
    store = new_store(tmp_path, {"index.interval.bytes": "0", "retention.ms": "-1"})
    for time in range(1000, 1020):
        store.append("t", pa.record_batch({"value": [b"x"], "timestamp": pa.array([time], pa.int64())}))
    (log,) = store.segment_files("t", 0)
    path = log.replace(".log", suffix)
    with open(path, "r+b") as index:
        whole = index.read()
        index.write(bytes(len(whole)))
    with files.open_read(log) as opened:
        size = opened.size()
    writer = SegmentWriter(log.rpartition("/")[0], 0, size, store.topic_config("t"))
    writer.enter([])
    writer.close()
    with open(path, "rb") as index:
        assert index.read() == whole
    with files.open_read(log) as opened:
        assert len(list(read_headers(opened, 0, size))) == 20
