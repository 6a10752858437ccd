"""Segments and their indexes, against Kafka's own files and against indexes that are lost or wrong."""

import contextlib
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_log.config import INT_MAX, TopicConfig
from pyspark_log.storage.segment.file_names import list_segments
from pyspark_log.storage.segment.segment import SegmentReader, SegmentWriter, read_headers
from pyspark_log.storage.store import Store
from tests.paths import LOGDIR
from tests.store_tools import new_store, store_with, values

KAFKA = LOGDIR / "orders-0"


def config(**settings):
    return TopicConfig.resolve({name.replace("_", "."): str(value) for name, value in settings.items()}, {})


@pytest.fixture
def kafka_copy(tmp_path):
    return shutil.copytree(KAFKA, tmp_path / "orders-0")


@pytest.mark.parametrize("base", [0, 31, 63])
def test_indexes_that_are_built_from_a_kafka_log_equal_kafkas(kafka_copy, base):
    """The golden folder has index.interval.bytes=200. A segment that is not the last one has its closing entry."""
    names = [f"{base:020d}.index", f"{base:020d}.timeindex"]
    for name in names:
        (kafka_copy / name).unlink()
    size = (KAFKA / f"{base:020d}.log").stat().st_size
    writer = SegmentWriter(str(kafka_copy), base, size, config(index_interval_bytes=200))
    writer.finish()
    writer.close()
    for name in names:
        assert (kafka_copy / name).read_bytes() == (KAFKA / name).read_bytes(), name


def test_a_kafka_log_is_found_and_read_at_every_offset():
    assert list_segments(str(KAFKA)) == [0, 31, 63]
    for base in (0, 31, 63):
        reader = SegmentReader(str(KAFKA), base)
        size = reader.log.size()
        headers = list(read_headers(reader.log, 0, size))
        for header in headers:
            for offset in range(header.base_offset, header.next_offset):
                position = reader.position_of(offset, size)
                assert position <= header.position
                assert header.position - position <= 200 + 2 * header.size + 200
        reader.close()


def _writes(store, count, **columns):
    for number in range(count):
        store.append("t", pa.record_batch({"value": [b"%06d" % number]} | {k: f(number) for k, f in columns.items()}))


store = store_with({"index.interval.bytes": "100", "segment.bytes": "4000", "retention.ms": "-1"})


def _folder(store):
    return Path(store.path) / "data" / "t-0"


GARBAGE = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "a part of an entry": lambda path: path.write_bytes(path.read_bytes()[:-3]),
    "noise": lambda path: path.write_bytes(bytes((i * 37 + 11) % 251 for i in range(600))),
    "positions inside of batches": lambda path: path.write_bytes(
        b"".join((i * 3).to_bytes(4, "big") + (i * 70 + 5).to_bytes(4, "big") for i in range(40))
    ),
    "entries of another segment": lambda path: path.write_bytes(path.read_bytes()[8:] + path.read_bytes()[:8]),
}


@pytest.mark.parametrize("damage", GARBAGE)
def test_no_content_of_an_index_changes_what_is_read(store, damage):
    _writes(store, 120, timestamp=lambda number: pa.array([1000 + number // 2 * 2], pa.int64()))
    expected = values(store)
    assert expected == [b"%06d" % number for number in range(120)]
    assert len(store.segment_files("t", 0)) > 2
    for path in [*_folder(store).glob("*.index"), *_folder(store).glob("*.timeindex")]:
        GARBAGE[damage](path)
    fresh = Store.open(store.path)
    for start in range(0, 121, 7):
        assert values(fresh, start=start) == expected[start:]
    for time in (0, 1000, 1001, 1050, 1051, 1118):
        found = fresh.offset_for_timestamp("t", 0, time)
        assert (found.offset, found.timestamp) == ((max(time - 1000, 0) + 1) // 2 * 2, max(1000, (time + 1) // 2 * 2))
    assert fresh.offset_for_timestamp("t", 0, 1119) is None


# Entries in a wrong order before a right last one are left: they cost time only, and finding them costs a scan.
# That the last time is missing cannot be seen without one.
@pytest.mark.parametrize(
    ("damage", "damaged"),
    [
        (damage, suffix)
        for suffix in (".index", ".timeindex")
        for damage in sorted(GARBAGE.keys() - {"entries of another segment"})
        if (damage, suffix) != ("a part of an entry", ".timeindex")
    ],
)
@pytest.mark.parametrize("step", [0, 1], ids=["one time", "times"])
def test_the_next_writer_repairs_the_active_segments_indexes(store, step, damage, damaged):
    _writes(store, 40, timestamp=lambda number: pa.array([1000 + step * number], pa.int64()))
    active = sorted(_folder(store).glob("*.log"))[-1]
    index, times = active.with_suffix(".index"), active.with_suffix(".timeindex")
    before = index.read_bytes(), times.read_bytes()
    assert len(before[0]) > 8
    GARBAGE[damage](active.with_suffix(damaged))
    _writes(Store.open(store.path), 1)
    assert index.read_bytes()[: len(before[0])] == before[0]
    assert times.read_bytes()[: len(before[1])] == before[1]


def test_roll_by_size_closes_the_time_index_with_the_largest_time(store):
    times = [5, 900, 20, 30, 40, 50, 60]
    _writes(store, 60, timestamp=lambda number: pa.array([times[number % 7]], pa.int64()))
    first = store.segment_files("t", 0)[0]
    closing = Path(first).with_suffix(".timeindex").read_bytes()[-12:]
    assert int.from_bytes(closing[:8], "big") == 900
    assert all(Path(path).stat().st_size <= 4000 for path in store.segment_files("t", 0))


@pytest.mark.parametrize(
    ("step", "segments"), [pytest.param(0, 5, id="of offsets"), pytest.param(1, 10, id="of times")]
)
def test_a_full_index_rolls(tmp_path, step, segments):
    """40 bytes are 5 entries of the offset index, and 3 of the time index, of which the last closes a segment.

    The first batch of a segment has no entry in either, and records of the same time have one in the time index.
    """
    store = new_store(tmp_path, {"index.interval.bytes": "0", "segment.index.bytes": "40", "retention.ms": "-1"})
    _writes(store, 30, timestamp=lambda number: pa.array([1_700_000_000_000 + step * number], pa.int64()))
    assert len(store.segment_files("t", 0)) == segments
    assert all(path.stat().st_size <= 40 for path in _folder(store).glob("*index"))
    assert values(store) == [b"%06d" % number for number in range(30)]


def test_offsets_by_timestamp(tmp_path):
    """Times of Kafka's LogSegmentTest: record 40 + n has the time 10 * offset."""
    store = new_store(tmp_path, {"index.interval.bytes": "50", "retention.ms": "-1"})
    for number in range(10):
        store.append("t", pa.record_batch({"value": [b"x"], "timestamp": pa.array([10 * (40 + number)], pa.int64())}))
    asked = {420: 2, 421: 3, 430: 3, 431: 4, 401: 1, 399: 0}
    for time, offset in asked.items():
        assert store.offset_for_timestamp("t", 0, time).offset == offset
    assert store.offset_for_timestamp("t", 0, 491) is None


@pytest.mark.parametrize("leftover", [b"\x01", b"noise" * 2000, "batches"])
def test_what_a_killed_writer_left_is_gone_before_the_segment_is_closed(store, leftover):
    """In an inactive segment every byte counts, for us and for Kafka, which would cut the log there."""
    _writes(store, 20)
    active = Path(store.segment_files("t", 0)[-1])
    with active.open("ab") as log:
        log.write(active.read_bytes() if leftover == "batches" else leftover)
    _writes(Store.open(store.path), 60)
    assert values(store) == [b"%06d" % n for n in range(20)] + [b"%06d" % n for n in range(60)]
    assert len(store.segment_files("t", 0)) > 1
    for path in store.segment_files("t", 0):
        reader = SegmentReader(str(_folder(store)), int(Path(path).stem))
        assert list(read_headers(reader.log, 0, Path(path).stat().st_size))
        reader.close()


def test_how_far_a_segment_reaches(tmp_path):
    """Offsets in its indexes are differences of 32 bits."""
    (tmp_path / f"{10:020}.log").touch()
    with contextlib.closing(SegmentWriter(str(tmp_path), 10, 0, TopicConfig.resolve({}, {}))) as segment:
        assert [segment.must_roll(100, 10 + INT_MAX + more, 0) for more in (-1, 0, 1)] == [False, False, True]
