"""Which segments go, by Kafka's rules, and what a reader at work notices of it."""

import errno
import logging
import os
import sys

import pyarrow as pa
import pytest
from producer_tools import ready

from pyspark_log.errors import (
    InvalidConfigError,
    InvalidTopicError,
    LogDamagedError,
    OffsetOutOfRangeError,
    OutcomeUnknownError,
    UnknownTopicError,
)
from pyspark_log.storage.log import retention
from pyspark_log.storage.segment.file_names import list_segments
from pyspark_log.storage.store import Store
from tests.store_tools import observed, overwrite, publish, stage

HOUR = 3_600_000
NOW = 0  # the time of each test's clock
BATCH = 61 + 50  # bytes of a batch of one record, as `batch` makes them


@pytest.fixture(autouse=True)
def now(clock, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "NOW", clock.ms)


@pytest.fixture
def topic(store):
    """Makes the topic `t` of five batches a segment; gives its folder."""

    def make(**configs):
        named = {name.replace("_", "."): str(value) for name, value in configs.items()}
        store.create_topic("t", 1, {"segment.bytes": str(5 * BATCH), "retention.ms": "-1", **named})
        return f"{store.path}/data/t-0"

    return make


def batch(number, timestamp=None):
    value = b"%d" % number
    times = pa.array([NOW if timestamp is None else timestamp], pa.int64())
    return pa.record_batch({"value": [value + b"." * (43 - len(value))], "timestamp": times})


def append(store, numbers, timestamp=None):
    for number in numbers:
        store.append("t", batch(number, timestamp(number) if callable(timestamp) else timestamp))


def values(store, start=None):
    start = store.earliest_offset("t", 0) if start is None else start
    return [int(v.rstrip(b".")) for b in store.read("t", 0, start) for v in b["value"].to_pylist()]


def names(folder, suffix):
    return sorted(name for name in os.listdir(folder) if name.endswith(suffix))


def clean_at(store, now):
    """One pass at another time."""
    with store.logs.writer("t", 0).hold() as writer:
        writer.log.clock = lambda: now
        return retention.clean(writer.log)


@pytest.mark.parametrize(("limit", "stay"), [(10, 2), (15, 3), (14, 3), (9, 2), (4, 1), (0, 1), (-1, 3)])
def test_by_size_what_stays_has_the_size_or_more(store, topic, limit, stay):
    folder = topic()
    append(store, range(15))
    store.alter_configs("t", {"retention.bytes": str(limit * BATCH if limit > 0 else limit)})
    store.clean("t")
    assert len(list_segments(folder)) == stay
    assert store.earliest_offset("t", 0) == (15 if limit == 0 else 15 - 5 * stay)
    assert store.size("t", 0) == (0 if limit == 0 else 5 * stay * BATCH)
    assert values(store) == ([] if limit == 0 else list(range(15 - 5 * stay, 15)))


def test_when_all_is_too_old_an_empty_segment_at_the_log_end_stays(store, topic):
    folder = topic(file_delete_delay_ms=HOUR)
    append(store, range(13), NOW - 3 * HOUR)
    store.alter_configs("t", {"retention.ms": str(2 * HOUR)})
    assert store.clean() == 3
    assert list_segments(folder) == [13]
    assert (store.earliest_offset("t", 0), store.latest_offset("t", 0)) == (13, 13)
    assert names(folder, ".log.deleted") == [f"{base:020d}.log.deleted" for base in (0, 5, 10)]
    assert store.clean() == 0, "an empty active segment never goes"
    append(store, [13])
    assert values(store) == [13]


def test_one_segment_with_a_newer_record_keeps_all_after_it(store, topic):
    folder = topic()
    append(store, range(15), lambda number: NOW if number == 6 else NOW - 3 * HOUR)
    store.alter_configs("t", {"retention.ms": str(2 * HOUR)})
    assert store.clean("t") == 1
    assert list_segments(folder) == [5, 10]
    assert store.offset_for_timestamp("t", 0, 0).offset == 5


def test_the_limit_of_age_is_passed_only_when_it_is_exceeded(store, topic):
    topic(retention_ms=HOUR)
    append(store, range(5), NOW)
    assert clean_at(store, NOW + HOUR) == 0
    assert clean_at(store, NOW + HOUR + 1) == 1


@pytest.mark.parametrize("index", ["missing", "empty", "wrong"])
def test_the_age_of_a_segment_is_proven_by_its_log(store, topic, index):
    folder = topic()
    append(store, range(6), lambda number: NOW if number == 2 else NOW - 3 * HOUR)
    path = f"{folder}/{0:020d}.timeindex"
    if index == "missing":
        os.unlink(path)
    else:
        entry = (NOW - 3 * HOUR).to_bytes(8, "big") + (4).to_bytes(4, "big")
        with open(path, "wb") as file:
            file.write(entry if index == "wrong" else b"")
    store.alter_configs("t", {"retention.ms": str(2 * HOUR)})
    assert store.clean("t") == 0
    assert values(store) == list(range(6))


def test_without_times_the_age_is_that_of_the_file(store, topic):
    folder = topic(retention_ms=HOUR)
    append(store, range(12), -1)
    assert store.clean("t") == 0
    for base in (0, 5):
        old = (NOW - 2 * HOUR) / 1000
        os.utime(f"{folder}/{base:020d}.log", (old, old))
    assert store.clean("t") == 2
    assert values(store) == [10, 11]


def test_a_damaged_segment_stays_with_all_after_it(store, topic, caplog):
    folder = topic()
    append(store, range(15), NOW - 3 * HOUR)
    os.unlink(f"{folder}/{5:020d}.timeindex")
    overwrite(f"{folder}/{5:020d}.log", 16, b"\x09")
    store.alter_configs("t", {"retention.ms": str(HOUR)})
    assert store.clean("t") == 1
    assert "a damaged segment is kept" in caplog.text


@pytest.mark.parametrize(("policy", "goes"), [("compact", False), ("delete", True), ("compact,delete", True)])
def test_what_is_only_compacted_has_no_size_and_no_age(store, policy, goes):
    store.create_topic("t", 1, {
        "cleanup.policy": policy, "segment.bytes": "555", "retention.ms": "1", "retention.bytes": "1",
        "file.delete.delay.ms": "0",
    })  # fmt: skip
    old = pa.array([NOW - HOUR], pa.int64())
    for number in range(15):
        store.append("t", pa.record_batch({"key": [b"k"], "value": [b"%02d" % number + b"." * 39], "timestamp": old}))
    store.clean()
    assert (store.earliest_offset("t", 0) > 0) == goes


def test_the_writer_that_rolls_deletes_old_segments(store, topic, clock):
    clock.ms += HOUR  # Otherwise the files would be younger than every read of the clock.
    folder = topic(retention_bytes=10 * BATCH, file_delete_delay_ms=0)
    append(store, range(60))
    assert 10 <= len(values(store)) <= 15
    assert len(list_segments(folder)) <= 3
    assert names(folder, ".deleted") == []


def test_a_publish_that_rolls_cleans_and_rolls_by_time(store, topic):
    folder = topic(retention_ms=100 * HOUR, segment_ms=HOUR, file_delete_delay_ms=0)
    for number in range(6):
        # Two publishes in each half hour of the records, the first of them too old.
        parts = stage(store, batch(number, NOW - 101 * HOUR + number // 2 * HOUR * 3 // 2))
        publish(store.decisions, "q", number, parts)
    assert list_segments(folder) == [2, 4]
    assert values(store) == [2, 3, 4, 5]


def test_an_append_does_not_fail_for_retention(store, topic, caplog):
    folder = topic(retention_bytes=5 * BATCH)

    def fail(change):
        if change.kind == "rename" and change.target.endswith(".deleted"):
            raise OSError(5, "Input/output error", change.path)

    with observed(fail):
        append(store, range(20))
    assert "old segments could not be removed" in caplog.text
    # Below the log start by now, and gone with the next pass.
    assert store.earliest_offset("t", 0) == 10
    assert values(store) == list(range(10, 20))
    assert store.size("t", 0) == 10 * BATCH
    assert list_segments(folder)[0] == 0
    store.clean()
    assert list_segments(folder)[0] >= 10


def test_deleted_files_stay_for_their_delay_and_a_reader_keeps_reading(store, topic):
    folder = topic(file_delete_delay_ms=HOUR)
    append(store, range(15))
    reader = store.read("t", 0, 0, max_bytes=1)
    seen = [next(reader)["offset"][0].as_py()]
    store.delete_records("t", 0, 12)
    assert list_segments(folder) == [10]
    assert len(names(folder, ".log.deleted")) == 2
    # It has the first segment open; the second is below the log start now.
    with pytest.raises(OffsetOutOfRangeError, match="offset 5 is out of range: the log holds offsets 12 to 15"):
        seen.extend(rows["offset"][0].as_py() for rows in reader)
    assert seen == [0, 1, 2, 3, 4]
    clean_at(store, NOW + HOUR - 1)
    assert len(names(folder, ".log.deleted")) == 2
    clean_at(store, NOW + 2 * HOUR)
    assert names(folder, ".deleted") == []


def test_a_segment_that_is_missing_above_the_log_start_is_damage(store, topic):
    folder = topic()
    append(store, range(15))
    os.rename(f"{folder}/{5:020d}.log", f"{folder}/elsewhere")
    with pytest.raises(LogDamagedError):
        values(store)
    assert values(store, 10) == [10, 11, 12, 13, 14]


@pytest.mark.parametrize(("before", "start", "segments"), [(1, 1, 3), (6, 6, 2), (15, 15, 1), (-1, 15, 1), (0, 0, 3)])
def test_delete_records(store, topic, before, start, segments):
    folder = topic()
    append(store, range(15))
    assert store.delete_records("t", 0, before) == start
    assert len(list_segments(folder)) == segments
    other = Store.open(store.path)
    assert (other.earliest_offset("t", 0), other.latest_offset("t", 0)) == (start, 15)
    assert values(other) == list(range(start, 15))
    if start:
        with pytest.raises(OffsetOutOfRangeError):
            values(other, start - 1)
        assert other.delete_records("t", 0, 0) == start, "a log start never goes back"
        assert other.offset_for_timestamp("t", 0, 0) is None or start < 15
    append(store, [15])
    assert values(other) == list(range(start, 16))


def test_delete_records_is_refused_beyond_the_end_and_where_records_are_not_deleted(store, topic):
    topic()
    append(store, range(3))
    for before in (4, -2):
        with pytest.raises(OffsetOutOfRangeError, match="0 to 3"):
            store.delete_records("t", 0, before)
    store.create_topic("c", 1, {"cleanup.policy": "compact"})
    with pytest.raises(InvalidConfigError, match=r"cleanup\.policy"):
        store.delete_records("c", 0, 0)
    with pytest.raises(InvalidTopicError):
        store.delete_records("__consumer_offsets", 0, 0)
    with pytest.raises(UnknownTopicError):
        store.delete_records("t", 1, 0)
    assert store.earliest_offset("t", 0) == 0


def test_records_are_deleted_after_a_failed_sync(store, topic, fail):
    """The segment that could not be synced becomes inactive first: its last records must be on the disk, or go."""
    folder = topic()
    append(store, range(3))
    fail("sync", ".log", errno.EIO)
    with pytest.raises(OutcomeUnknownError):
        store.append("t", batch(3), sync=True)
    assert store.delete_records("t", 0, 2) == 2
    assert list_segments(folder) == [0, 3]
    append(store, [3])
    assert values(store) == [2, 3]


# ---- rolling by time


def test_a_segment_rolls_by_the_times_of_its_records(store, topic):
    """Kafka's testRollingByTime: no times, then times ahead of the clock."""
    any_time = {"message_timestamp_after_max_ms": 1000 * HOUR}
    folder, span, now = topic(segment_ms=HOUR, segment_bytes=100_000, **any_time), HOUR, NOW
    writer = store.logs.writer("t", 0)
    writer.log.clock = lambda: now

    def count(timestamp):
        append(store, [0], timestamp)
        return len(list_segments(folder))

    now += span + 1
    assert count(-1) == 1, "an empty segment never rolls"
    # The first append made the files when the clock said so.
    writer.log.invalidate()
    for expected in (2, 3):
        os.utime(f"{folder}/{list_segments(folder)[-1]:020d}.timeindex", (now / 1000, now / 1000))
        now += span + 1
        assert count(-1) == expected
    ahead = now + span + 1
    assert count(ahead) == 3
    now += span + 1
    assert count(ahead) == 4, "by the clock, as the first record of the segment has no time"
    now += span + 1
    assert count(ahead) == 4, "by the records, of which none is later than the first"
    now = ahead + span + 1
    assert count(now) == 5
    assert count(now - 10 * span) == 5, "old records never roll"


def test_segments_do_not_roll_all_at_once(store):
    """Each segment has a part of the jitter of its own, the same for all processes."""
    store.create_topic("j", 20, {"segment.ms": str(HOUR), "segment.jitter.ms": str(HOUR)})
    for later in (0, HOUR // 2):
        for partition in range(20):
            data = pa.record_batch({"value": [b"x"], "timestamp": pa.array([NOW + later], pa.int64())})
            Store.open(store.path).append("j", data, partition=partition)
    rolled = [len(store.segment_files("j", partition)) for partition in range(20)]
    assert set(rolled) == {1, 2}


def test_a_compacted_topic_rolls_after_its_longest_lag(store):
    store.create_topic("c", 1, {"cleanup.policy": "compact", "max.compaction.lag.ms": str(HOUR)})
    for later in (0, HOUR, HOUR + 1):
        times = pa.array([NOW - HOUR + later], pa.int64())
        store.append("c", pa.record_batch({"key": [b"k"], "value": [b"v"], "timestamp": times}))
    assert len(store.segment_files("c", 0)) == 2


# ---- warnings


@pytest.mark.parametrize("how", ["append", "stage", "ready-made"])
def test_a_write_past_retention_warns_once(store, topic, caplog, how):
    topic(retention_ms=HOUR)
    caplog.set_level(logging.WARNING)
    old = pa.concat_batches([batch(number, NOW - 2 * HOUR) for number in range(100)])
    new = batch(1, NOW)
    for data, warnings in ((new, 0), (old, 1)):
        caplog.clear()
        if how == "append":
            store.append("t", data)
        elif how == "ready-made":
            time = data["timestamp"].to_pylist()[0]
            store.append_batch("t", 0, ready(0, *data["value"].to_pylist()[:5], producer=warnings, timestamp=time))
        else:
            stage(store, data)
        assert caplog.text.count("are past the topic's retention.ms (3600000) already") == warnings


@pytest.mark.parametrize(
    "configs",
    [
        {},
        {"retention_ms": 1, "cleanup_policy": "compact"},
        {"retention_ms": HOUR, "message_timestamp_type": "LogAppendTime"},
    ],
)
def test_no_warning_where_nothing_goes_by_age(store, topic, caplog, configs):
    topic(**configs)
    publish(store.decisions, "q", 0, stage(store, batch(0, 1000).append_column("key", pa.array([b"k"]))))
    assert caplog.text == ""
