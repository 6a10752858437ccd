"""Look-ups by time and of the largest time: equal to a list in memory, whatever is known of inactive segments."""

import os
import random
import shutil
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from producer_tools import end_transaction, ready
from record_tools import Record, build, patched
from searching import examples

from pyspark_log.storage.log.appending.replica import truncate
from pyspark_log.storage.record.empty_batch import empty_batch
from pyspark_log.storage.record.layout import MAX_TIMESTAMP_AT
from pyspark_log.storage.store import Store
from pyspark_log.types import OffsetAndTimestamp
from tests.old_messages import message, message_set
from tests.store_tools import store_with


def rows(times):
    return pa.record_batch({"value": [b"%030d" % time for time in times], "timestamp": pa.array(times, pa.int64())})


class LookupsAgainstList(RuleBasedStateMachine):
    """One partition of small segments, and the times of its records by offset."""

    @initialize(
        codec=st.sampled_from(["uncompressed", "gzip", "snappy", "lz4", "zstd"]),
        segment_bytes=st.integers(300, 1500),
        interval=st.sampled_from([0, 100, 1000]),
        appended=st.booleans(),
    )
    def begin(self, codec, segment_bytes, interval, appended):
        self.folder = tempfile.mkdtemp()
        self.store = Store.create(os.path.join(self.folder, "store"))
        self.store.create_topic(
            "t",
            1,
            {
                "compression.type": codec,
                "segment.bytes": str(segment_bytes),
                "index.interval.bytes": str(interval),
                "retention.ms": "-1",
                "message.timestamp.type": "LogAppendTime" if appended else "CreateTime",
            },
        )
        self.appended = appended
        self.times, self.start = [], 0
        self.copies = []

    def teardown(self):
        shutil.rmtree(getattr(self, "folder", ""), ignore_errors=True)

    @rule(times=st.lists(st.integers(0, 60), min_size=1, max_size=8))
    def append(self, times):
        before = len(self.times)
        self.store.append("t", rows(times), partition=0)
        if self.appended:
            read = [row for batch in self.store.read("t", 0, before) for row in batch.to_pylist()]
            times = [round(row["timestamp"].timestamp() * 1000) for row in read]
        self.times += times

    @rule(part=st.floats(0, 1))
    def delete_records(self, part):
        self.start += int((len(self.times) - self.start) * part)
        self.store.delete_records("t", 0, self.start)

    @rule(part=st.floats(0, 1))
    def truncate(self, part):
        if self.times:
            offset = self.start + int((len(self.times) - self.start) * part)
            with self.store.logs.writer("t", 0).hold() as held:
                del self.times[truncate(held.log, offset) :]
            self.copies = []  # No file is restored that says something of other records.

    @rule()
    def clean(self):
        self.store.clean("t")

    @property
    def known(self):
        return Path(self.store.logs.reader("t", 0).place.segments_path)

    @rule()
    def keep_a_copy(self):
        if self.known.exists():
            self.copies.append(self.known.read_bytes())

    @rule(data=st.data(), seed=st.integers(0, 2**32))
    def change_what_is_known(self, data, seed):
        """A file is replaced by an older one, lost, cut, mixed up, or noise in part."""
        if not self.known.exists():
            return
        choices, content = random.Random(seed), bytearray(self.known.read_bytes())
        change = data.draw(st.sampled_from(["old", "lost", "cut", "mixed", "noise", "a byte", "longer"]))
        if change == "lost":
            self.known.unlink()
            return
        if change == "old" and self.copies:
            content = choices.choice(self.copies)
        elif change == "cut":
            del content[choices.randint(0, len(content)) :]
        elif change == "mixed":
            entries = [content[at : at + 48] for at in range(0, len(content), 48)]
            content = b"".join(choices.choices(entries, k=len(entries)))
        elif change == "noise" and content:
            at = choices.randrange(len(content))
            content[at : at + 60] = choices.randbytes(len(content[at : at + 60]))
        elif change == "a byte" and content:
            content[choices.randrange(len(content))] = choices.randrange(256)
        elif change == "longer":
            content += choices.randbytes(100)
        self.known.write_bytes(content)

    @invariant()
    def look_ups_find_what_is_there(self):
        if not hasattr(self, "times"):
            return
        there = [OffsetAndTimestamp(offset, self.times[offset]) for offset in range(self.start, len(self.times))]
        store = Store.open(self.store.path)
        largest = max(there, key=lambda record: (record.timestamp, -record.offset), default=None)
        assert store.offset_of_max_timestamp("t", 0) == largest
        some = random.sample(self.times, min(3, len(self.times)))
        for time in {0, 61, *some, *([largest.timestamp + 1] if largest else [])}:
            wanted = next((record for record in there if record.timestamp >= time), None)
            assert store.offset_for_timestamp("t", 0, time) == wanted
        if there:
            start = random.choice(there).offset
            read = [row for batch in store.read("t", 0, start, max_bytes=100) for row in batch.to_pylist()]
            assert [row["offset"] for row in read] == list(range(start, len(self.times)))


LookupsAgainstList.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)
TestLookupsAgainstList = pytest.mark.sampled(LookupsAgainstList.TestCase)


# ---- the largest time


store = store_with({"segment.bytes": "300", "index.interval.bytes": "0", "retention.ms": "-1"})


def write(store, data, count):
    """Puts batches into an empty log as they are, as a broker may have done."""
    with store.logs.writer("t", 0).hold() as held:
        held.log.segment.log.pwrite(data, 0)
        held.log.lease.save(held.state._replace(next_offset=count, position=len(data)), durable=False)
        held.log.invalidate()


def test_a_log_without_records_or_times_has_no_largest(store):
    assert store.offset_of_max_timestamp("t", 0) is None
    store.append("t", rows([-1, -1]))
    assert store.offset_of_max_timestamp("t", 0) is None
    store.append("t", rows([-1, 0]))
    assert store.offset_of_max_timestamp("t", 0) == OffsetAndTimestamp(3, 0)
    store.delete_records("t", 0, 4)
    assert store.offset_of_max_timestamp("t", 0) is None


def test_of_equal_times_the_first_counts_across_segments_too(store):
    for times in ([1, 7, 7], [7], [2, 7, 3], [7]):
        store.append("t", rows(times))
    assert len(store.segment_files("t", 0)) > 1
    assert store.offset_of_max_timestamp("t", 0) == OffsetAndTimestamp(1, 7)
    store.delete_records("t", 0, 2)
    assert store.offset_of_max_timestamp("t", 0) == OffsetAndTimestamp(2, 7)


@pytest.mark.parametrize("segment_bytes", ["300", "100000"])
def test_a_deleted_record_has_not_the_largest(store, segment_bytes):
    store.alter_configs("t", {"segment.bytes": segment_bytes})
    for times in ([1, 9, 3, 4], [2], [5, 4, 5], [1]):
        store.append("t", rows(times))
    store.delete_records("t", 0, 2)
    assert store.offset_of_max_timestamp("t", 0) == OffsetAndTimestamp(5, 5)
    store.delete_records("t", 0, 6)
    assert store.offset_of_max_timestamp("t", 0) == OffsetAndTimestamp(7, 5)


def test_the_marker_of_a_transaction_counts_as_a_record(store):
    store.append_batch("t", 0, ready(0, b"a", producer=7, transactional=True, timestamp=5))
    end_transaction(store, commit=True, producer=7)
    store.append("t", rows([6]))
    found = store.offset_of_max_timestamp("t", 0)
    assert found.offset == 1
    assert found.timestamp > 6
    # A look-up for a reader gives what it will read.
    assert store.offset_for_timestamp("t", 0, 6) == OffsetAndTimestamp(2, 6)


def test_an_empty_batch_has_no_largest_time(store):
    """As the cleaner leaves it: it keeps the time of the records that it had."""
    empty = patched(empty_batch(0, 1, 0), MAX_TIMESTAMP_AT, 8, 99)
    write(store, empty + build([Record(b"k", b"v", 5)], base_offset=1), 2)
    assert store.offset_of_max_timestamp("t", 0) == OffsetAndTimestamp(1, 5)


def test_messages_of_format_0_have_no_time(store):
    write(store, message(0, b"k", b"v") + message(0, b"k", b"v", offset=1), 2)
    assert store.offset_of_max_timestamp("t", 0) is None


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4"])
def test_times_in_sets_of_format_1(store, codec):
    inside = b"".join(message(1, b"k", b"v", offset=at, time=time) for at, time in enumerate([3, 8, 5]))
    sets = [message_set(1, codec, inside, offset=last, time=8) for last in (4, 7)]
    singles = [message(1, b"k", b"v", offset=at, time=time) for at, time in ((0, 1), (1, 2))]
    write(store, b"".join(singles + sets), 8)
    assert store.offset_of_max_timestamp("t", 0) == OffsetAndTimestamp(3, 8)
    assert store.offset_for_timestamp("t", 0, 4) == OffsetAndTimestamp(3, 8)
    assert store.offset_for_timestamp("t", 0, 3) == OffsetAndTimestamp(2, 3)
    store.delete_records("t", 0, 4)
    assert store.offset_of_max_timestamp("t", 0) == OffsetAndTimestamp(6, 8)
    assert store.offset_for_timestamp("t", 0, 4) == OffsetAndTimestamp(4, 5)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4"])
def test_the_time_of_the_append_is_that_of_the_whole_set(store, codec):
    inside = b"".join(message(1, b"k", b"v", offset=at, time=at) for at in range(3))
    write(store, message_set(1, codec, inside, offset=2, time=50, attributes=8), 3)
    assert store.offset_of_max_timestamp("t", 0) == OffsetAndTimestamp(0, 50)
