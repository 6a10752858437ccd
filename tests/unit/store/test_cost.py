"""Costs that must not grow with what is stored, counted in calls to the file system and bytes read."""

import collections
import os
import time

import pyarrow as pa
import pytest

from pyspark_log.storage.catalog import log_dirs
from pyspark_log.storage.store import Store
from tests.amounts import few_or_many
from tests.scratch import memory_folder

CALLS = ("open", "pread", "preadv", "stat", "fstat", "listdir", "read")


class Counted:
    """Counts the calls of `os` that inspect files, and the bytes that they read; names in a folder are bytes too."""

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
            elif name == "listdir":
                self.bytes += sum(map(len, answer))
            elif isinstance(answer, bytes):
                self.bytes += len(answer)
            return answer

        return counted


def fill(store, topic, segments):
    """Segments of 100 records in two batches; record n has the time n."""
    store.create_topic(topic, 1, {"segment.bytes": "3300", "index.interval.bytes": "500", "retention.ms": "-1"})
    for at in range(0, segments * 100, 50):
        store.append(topic, batch(at))


def batch(at):
    return pa.record_batch(
        {
            "value": [b"%09d" % value + b"." * 11 for value in range(at, at + 50)],
            "timestamp": pa.array(range(at, at + 50), pa.int64()),
        }
    )


@pytest.fixture(scope="module", params=few_or_many(300, 1000))
def segments(request):
    """How many the long log has; the short one has ten."""
    return request.param


@pytest.fixture(scope="module")
def store(segments):
    with memory_folder() as folder:
        store = Store.create(f"{folder}/store")
        fill(store, "short", 10)
        fill(store, "long", segments)
        yield store


def offset(store, topic, at):
    read(store, topic, at)


def timestamp(store, topic, at):
    found = store.offset_for_timestamp(topic, 0, at)
    assert found.offset == at
    read(store, topic, found.offset)


def read(store, topic, start):
    rows = [row for batch in store.read(topic, 0, start, start + 100) for row in batch["offset"].to_pylist()]
    assert rows == list(range(start, start + 100))


def max_timestamp(store, topic, at):
    assert store.offset_of_max_timestamp(topic, 0).offset == store.latest_offset(topic, 0) - 1


def cost(store, topic, action, cold, monkeypatch, repeat=40):
    """Calls and bytes of one action at places spread over the partition, on average.

    Cold: each time as in a process that has just opened the store. Else in a process that has done this before.
    """
    end = store.latest_offset(topic, 0)
    opened = Store.open(store.path)
    if not cold:
        for at in range(0, end - 200, max(end // 10, 1)):
            action(opened, topic, at)
    with monkeypatch.context() as patched:
        counted = Counted(patched)
        for number in range(repeat):
            action(Store.open(store.path) if cold else opened, topic, (end - 200) * number // repeat)
    return sum(counted.calls.values()) / repeat, counted.bytes / repeat


def test_the_topics_have_as_many_segments_as_they_should(store, segments):
    assert 8 <= len(store.segment_files("short", 0)) <= 13
    assert len(store.segment_files("long", 0)) >= 0.9 * segments


@pytest.mark.parametrize("cold", [True, False], ids=["cold", "warm"])
@pytest.mark.parametrize("action", [offset, timestamp, max_timestamp])
def test_reading_a_hundred_records_costs_the_same_in_a_long_log(store, action, cold, monkeypatch):
    short, long = (cost(store, topic, action, cold, monkeypatch) for topic in ("short", "long"))
    assert long[0] <= 2 * short[0]
    assert long[1] <= 2 * short[1]


def test_a_roll_costs_no_more_calls_in_a_long_log(store, monkeypatch):
    """An entry for the segment is added to what is known of all inactive ones, which is not rewritten."""
    # The checkpoints of the folder are written by the clock.
    monkeypatch.setattr(log_dirs, "INTERVAL", 3600)
    costs = []
    for topic in ("short", "long"):
        roll(store, topic)
        costs.append(calls_of_a_roll(store, topic, monkeypatch))
    assert costs[1] <= 1.2 * costs[0]


def calls_of_a_roll(store, topic, monkeypatch):
    with monkeypatch.context() as patched:
        counted = Counted(patched)
        roll(store, topic)
    return sum(counted.calls.values())


def roll(store, topic):
    """Appends until a segment begins, and as much as one holds."""
    before = len(store.segment_files(topic, 0))
    while len(store.segment_files(topic, 0)) == before:
        store.append(topic, batch(store.latest_offset(topic, 0)))


def test_ten_thousand_partitions_open_without_a_look_at_their_folders(tmp_path, monkeypatch):
    store = Store.create(tmp_path / "store")
    store.create_topic("wide", 10_000)
    store.append("wide", pa.record_batch({"value": [b"x"] * 100, "partition": pa.array(range(100), pa.int32())}))
    with monkeypatch.context() as patched:
        counted = Counted(patched)
        took = min(time_to_describe(store.path, "wide") for _ in range(5))
    assert took < 0.2
    assert sum(counted.calls.values()) < 5 * 20


def time_to_describe(path, topic):
    """Seconds of this process alone for a description of a topic in a store that was just opened."""
    started = time.process_time()
    assert Store.open(path).describe_topic(topic).partitions == 10_000
    return time.process_time() - started
