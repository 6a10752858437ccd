"""Costs that must not grow with what is stored, counted in calls to the file system and bytes read."""

import collections
import os
import tempfile
import time

import pyarrow as pa
import pytest

from pyspark_log.storage.store import Store

CALLS = ("open", "pread", "preadv", "stat", "fstat", "listdir", "read")


class Counted:
    """Counts the calls of `os` that look at files, and the bytes that they read."""

    def __init__(self, monkeypatch):
        self.calls = collections.Counter()
        self.bytes = 0
        for name in CALLS:
            monkeypatch.setattr(os, name, self._counting(name, getattr(os, name)))

    def _counting(self, name, real):
        def counted(*args, **kwargs):
            answer = real(*args, **kwargs)
            self.calls[name] += 1
            if name == "preadv":
                self.bytes += answer
            elif isinstance(answer, bytes):
                self.bytes += len(answer)
            return answer

        return counted


def fill(store, topic, segments):
    """Segments of 100 records in two batches; record n has the time n."""
    store.create_topic(topic, 1, {"segment.bytes": "3300", "index.interval.bytes": "500", "retention.ms": "-1"})
    for at in range(0, segments * 100, 50):
        store.append(topic, pa.record_batch({
            "value": [b"%09d" % value + b"." * 11 for value in range(at, at + 50)],
            "timestamp": pa.array(range(at, at + 50), pa.int64()),
        }))  # fmt: skip


@pytest.fixture(scope="module")
def store():
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
        store = Store.create(f"{folder}/store")
        fill(store, "ten", 10)
        fill(store, "thousand", 1000)
        yield store


def cost(store, topic, action, monkeypatch, repeat=20):
    """Calls and bytes of one action at places spread over the partition, on average."""
    end = store.latest_offset(topic, 0)
    with monkeypatch.context() as patched:
        counted = Counted(patched)
        for number in range(repeat):
            action(topic, (end - 200) * number // repeat)
    return sum(counted.calls.values()) / repeat, counted.bytes / repeat


def test_the_topics_have_as_many_segments_as_they_should(store):
    assert 8 <= len(store.segment_files("ten", 0)) <= 13
    assert len(store.segment_files("thousand", 0)) >= 900


@pytest.mark.parametrize("kind", ["offset", "timestamp"])
def test_reading_a_hundred_records_costs_the_same_in_a_long_log(store, kind, monkeypatch):
    fresh = Store.open(store.path)

    def read(topic, at):
        start = fresh.offset_for_timestamp(topic, 0, at).offset if kind == "timestamp" else at
        assert start == at
        found = [row for batch in fresh.read(topic, 0, start, start + 100) for row in batch["offset"].to_pylist()]
        assert found == list(range(start, start + 100))

    for topic in ("ten", "thousand"):
        read(topic, 0)  # A process that goes on: it has listed the segments, and knows their times.
        fresh.offset_for_timestamp(topic, 0, 10**12)
    short, long = (cost(store, topic, read, monkeypatch) for topic in ("ten", "thousand"))
    assert long[0] <= 2 * short[0]
    assert long[1] <= 2 * short[1]


def test_ten_thousand_partitions_open_without_a_look_at_their_folders(tmp_path, monkeypatch):
    store = Store.create(tmp_path / "store")
    store.create_topic("wide", 10_000)
    store.append("wide", pa.record_batch({"value": [b"x"] * 100, "partition": pa.array(range(100), pa.int32())}))
    with monkeypatch.context() as patched:
        counted = Counted(patched)
        started = time.perf_counter()
        opened = Store.open(store.path)
        assert opened.describe_topic("wide").partitions == 10_000
        took = time.perf_counter() - started
    assert took < 0.2
    assert sum(counted.calls.values()) < 20
