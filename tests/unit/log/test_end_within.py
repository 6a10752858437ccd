"""How far a number of bytes reaches in a log, by its offset indexes."""

import os
import shutil

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_log.storage.segment import SegmentReader
from pyspark_log.storage.segment.file_names import list_segments
from pyspark_log.storage.store import Store
from tests.paths import LOGDIR
from tests.scratch import memory_folder

INTERVAL = 500


def batches_of(folder):
    """Base offset, next offset and size of each batch of a partition."""
    found = []
    for base in list_segments(folder):
        with SegmentReader(folder, base) as segment:
            found += [(one.base_offset, one.next_offset, one.size) for one in segment.headers(0, segment.log.size())]
    return found


@pytest.fixture(scope="module")
def log():
    """The reader of a log of several segments, with small batches and some large ones; and its batches."""
    with memory_folder() as folder, Store.create(folder / "store") as store:
        settings = {"segment.bytes": "20000", "index.interval.bytes": str(INTERVAL)}
        store.create_topic("t", 1, settings)
        for number in range(300):
            size = 4000 if number % 37 == 5 else 20 + number % 90
            store.append("t", pa.record_batch({"value": [b"x" * size] * (1 + number % 3)}))
        batches = batches_of(f"{store.path}/data/t-0")
        assert len(list_segments(f"{store.path}/data/t-0")) > 4
        yield store.logs.recovered("t", 0), batches


@given(st.data())
def test_it_is_a_batch_boundary_within_the_bytes_and_not_far_from_them(log, data):
    reader, batches = log
    end_of_log = batches[-1][1]
    start = data.draw(st.integers(0, end_of_log - 1))
    end = data.draw(st.integers(start + 1, end_of_log))
    most = data.draw(st.integers(1, 40_000))
    found, taken = reader.end_within(start, end, most)
    assert start < found <= end
    assert found in {end, *(batch[0] for batch in batches), *(batch[1] for batch in batches)}
    inside = [size for base, following, size in batches if following > start and base < found]
    assert sum(inside) <= most or len(inside) == 1
    if found < end:
        largest = max(size for _, _, size in batches)
        assert sum(inside) + INTERVAL + 2 * largest >= most
    else:
        assert taken <= sum(inside) + INTERVAL + max(size for _, _, size in batches)


def test_what_the_log_does_not_hold_counts_nothing(log):
    reader, batches = log
    end = batches[-1][1]
    assert reader.end_within(end, end + 5, 1000) == (end + 5, 0)
    assert reader.end_within(0, end + 5, 1 << 40)[0] == end + 5


def test_without_an_index_it_is_one_batch(store):
    store.create_topic("t", 1, {"index.interval.bytes": "0"})
    for _ in range(3):
        store.append("t", pa.record_batch({"value": [b"x" * 1000]}))
    reader = store.logs.recovered("t", 0)
    assert reader.end_within(0, 3, 2500)[0] == 2
    os.truncate(f"{store.path}/data/t-0/{0:020d}.index", 0)
    assert reader.end_within(0, 3, 2500)[0] == 1


def test_in_a_brokers_folder(tmp_path):
    shutil.copytree(LOGDIR, tmp_path / "broker")
    store = Store.open(tmp_path / "broker")
    tried = 0
    for topic in store.topics():
        reader = store.logs.recovered(topic, 0)
        start, end = store.earliest_offset(topic, 0), store.latest_offset(topic, 0)
        if start < end:
            assert reader.end_within(start, end, 1 << 30)[0] == end
            assert start < reader.end_within(start, end, 1)[0] <= end
            tried += 1
    assert tried
