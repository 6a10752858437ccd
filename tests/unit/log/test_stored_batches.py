"""Where batches are in their files, for a process that sends them on."""

import random
import shutil

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_log.admin import compact
from pyspark_log.errors import OffsetOutOfRangeError
from pyspark_log.storage.record import scan
from pyspark_log.storage.segment.file_names import list_segments
from pyspark_log.storage.store import Store
from tests.scratch import memory_folder


@pytest.fixture(scope="module")
def store():
    """A store with `whole`, a log of several segments, and `gaps`, a compacted one, whose last segments are empty."""
    with memory_folder() as folder, Store.create(folder / "store") as store:
        small = {"segment.bytes": "20000", "index.interval.bytes": "500"}
        # Segments that are large beside what is walked through without the index.
        store.create_topic("whole", 1, small | {"segment.bytes": "150000"})
        for number in range(300):
            size = 40_000 if number % 37 == 5 else 20 + number % 90 * 20
            store.append("whole", pa.record_batch({"value": [b"x" * size] * (1 + number % 3)}))
        store.create_topic("gaps", 1, small | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
        for number in range(300):
            row = {"key": [b"%d" % (number % 7 if number < 200 else 5)], "value": [b"x" * (20 + number % 900)]}
            store.append("gaps", pa.record_batch(row))
        assert list(compact(store, "gaps"))
        assert sum(rows.num_rows for rows in store.read("gaps", 0)) < 150
        for topic in ("whole", "gaps"):
            assert len(list_segments(f"{store.path}/data/{topic}-0")) > 2
        yield store


def read(reader, start, end, most):
    """The headers of what is located, its size, and the offset after it; None: nothing is."""
    found = reader.stored_batches(start, end, most, reader.state())
    if found is None:
        return None
    with found.file as file:
        data = file.pread(found.length, found.position)
    headers = scan(data, 0, len(data), check_crcs=True)
    assert len(data) == found.length == sum(header.size for header in headers)
    return headers, found.length, found.next_offset


@pytest.mark.parametrize("topic", ["whole", "gaps"])
@given(st.data())
def test_they_are_whole_and_within_the_bytes(store, topic, data):
    reader = store.logs.recovered(topic, 0)
    end = store.latest_offset(topic, 0)
    start, most = data.draw(st.integers(0, end)), data.draw(st.integers(1, 120_000))
    found = read(reader, start, end, most)
    if found is None:
        assert start == end or [*store.read(topic, 0, start, end)] == []
        return
    headers, size, following = found
    assert headers[0].next_offset > start
    assert size <= most or len(headers) == 1
    assert headers[-1].next_offset == following <= end
    assert start >= headers[0].base_offset or [*store.read(topic, 0, start, headers[0].base_offset)] == []


@pytest.mark.parametrize("topic", ["whole", "gaps"])
@pytest.mark.parametrize("most", [1, 3000, 1_000_000])
def test_one_after_the_other_they_are_the_log(store, topic, most):
    reader, end, position, batches = store.logs.recovered(topic, 0), store.latest_offset(topic, 0), 0, []
    while (found := read(reader, position, end, most)) is not None:
        batches += [(one.base_offset, one.next_offset) for one in found[0]]
        assert found[2] > position
        position = found[2]
    offsets = [offset for first, last in batches for offset in range(first, last)]
    assert offsets == sorted(set(offsets))
    stored = [row for rows in store.read(topic, 0, 0, end) for row in rows.column("offset").to_pylist()]
    assert set(stored) <= set(offsets)
    assert most > 1 or len(batches) > 100 or topic == "gaps"


def test_batches_from_the_end_on_are_left_out(store):
    """As those at and after the last stable offset."""
    reader = store.logs.recovered("whole", 0)
    headers, _, following = read(reader, 0, store.latest_offset("whole", 0), 1_000_000)
    middle = headers[len(headers) // 2].base_offset
    assert following > middle
    shorter, _, following = read(reader, 0, middle, 1_000_000)
    assert shorter[-1].next_offset == following == middle
    assert read(reader, middle, middle, 1_000_000) is None


def test_an_offset_that_is_not_in_the_log(store):
    reader, end = store.logs.recovered("whole", 0), store.latest_offset("whole", 0)
    with pytest.raises(OffsetOutOfRangeError):
        reader.stored_batches(end + 1, end + 1, 1000, reader.state())


def test_files_that_are_deleted_can_be_read_on(tmp_path):
    with Store.create(tmp_path / "store") as store:
        store.create_topic("t", 1, {"segment.bytes": "2000"})
        for _ in range(20):
            store.append("t", pa.record_batch({"value": [b"x" * 500]}))
        reader = store.logs.recovered("t", 0)
        found = reader.stored_batches(0, 20, 1000, reader.state())
        store.delete_records("t", 0, 20)
        assert len(list_segments(f"{store.path}/data/t-0")) == 1
        with found.file as file:
            assert scan(file.pread(found.length, found.position), 0, found.length)[0].base_offset == 0


@pytest.mark.parametrize("interval", ["0", "4096", "100000"])
def test_as_many_as_fit(tmp_path, interval):
    """Also where the index has an entry for each batch, and the last one with an entry does not fit."""
    with Store.create(tmp_path / "store") as store:
        store.create_topic("t", 1, {"index.interval.bytes": interval})
        for _ in range(20):
            store.append("t", pa.record_batch({"value": [b"x" * 10_000]}))
        reader = store.logs.recovered("t", 0)
        _, one, _ = read(reader, 0, 20, 1)
        for count in range(1, 21):
            for spare in (0, 1, one - 1):
                assert len(read(reader, 0, 20, count * one + spare)[0]) == count


def test_a_reader_at_the_tail_gets_what_a_new_one_gets(tmp_path):
    """Also two of them, when a segment is full, records are deleted, or only some of them fit."""
    draw = random.Random(7)
    with Store.create(tmp_path / "store") as store:
        store.create_topic("t", 1, {"segment.bytes": "20000"})
        at = [0, 0]
        for step in range(400):
            store.append("t", pa.record_batch({"value": [b"x" * draw.randrange(3000)] * draw.randrange(1, 4)}))
            if step % 50 == 49:
                deleted, at[1] = at[0], store.latest_offset("t", 0)
                store.delete_records("t", 0, at[1])
                store.append("t", pa.record_batch({"value": [b"x"]}))
                with pytest.raises(OffsetOutOfRangeError):
                    read(store.logs.recovered("t", 0), deleted, at[1] + 1, 1_000_000)
            for number in range(2) if step % 3 else (0,):
                most, end = draw.choice([2000, 1_000_000]), store.latest_offset("t", 0)
                at[number] = max(at[number], store.earliest_offset("t", 0))
                with Store.open(store.path) as other:
                    expected = read(other.logs.recovered("t", 0), at[number], end, most)
                assert read(store.logs.recovered("t", 0), at[number], end, most) == expected
                at[number] = expected[2]


def test_a_log_of_the_same_offsets_takes_its_place(tmp_path):
    """A store's folder is replaced by a copy, whose batches have other sizes."""

    def append(path, *sizes):
        with Store.open(path) as store:
            for size in sizes:
                store.append("t", pa.record_batch({"value": [b"x" * size]}))

    with Store.create(tmp_path / "store") as store:
        store.create_topic("t", 1)
    append(tmp_path / "store", 10)
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    append(tmp_path / "store", 1000)
    append(tmp_path / "copy", 20, 5000)
    with Store.open(tmp_path / "store") as store:
        reader = store.logs.recovered("t", 0)
        assert read(reader, 0, 2, 1_000_000)[2] == 2
        (tmp_path / "store").rename(tmp_path / "old")
        (tmp_path / "copy").rename(tmp_path / "store")
        [header], _, following = read(reader, 2, 3, 1_000_000)
        assert (header.base_offset, following) == (2, 3)
