"""Records whose times are too far from the clock are refused, wherever records are written."""

import time

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from producer_tools import ready
from record_tools import Record, build

from pyspark_log.config import LONG_MAX, TopicConfig
from pyspark_log.errors import InvalidRecordError
from pyspark_log.storage.ingest.encoder import check_times
from pyspark_log.storage.record.walk import check_records
from pyspark_log.types import NO_TIMESTAMP
from tests.store_tools import stage, store_with

HOUR = 3_600_000
NOW = time.time_ns() // 1_000_000


def config(**bounds):
    return TopicConfig.resolve({f"message.timestamp.{side}.max.ms": str(ms) for side, ms in bounds.items()}, {})


def refused(times, settings):
    """The row that is refused, and the setting that does it."""
    known = [time for time in times if time is not None] or [NOW]
    try:
        check_times((min(known), max(known)), lambda: times, settings, NOW, "t")
    except InvalidRecordError as error:
        words = str(error).split()
        return int(words[words.index("record") + 1]), "before" if "before.max" in str(error) else "after"
    return None


@pytest.mark.parametrize(
    ("times", "settings", "expected"),
    [
        ([NOW + HOUR, 0, NO_TIMESTAMP, None], config(), None),
        ([NOW, None, NOW + HOUR + 1, NOW + 2 * HOUR], config(), (2, "after")),
        ([NOW - 100, NOW + 100, NO_TIMESTAMP, None], config(before=100, after=100), None),
        ([NOW, NO_TIMESTAMP, None, NOW - 101], config(before=100), (3, "before")),
        ([NOW + 1], config(after=0), (0, "after")),
        ([NOW - 1, NOW], config(before=0), (0, "before")),
        ([LONG_MAX], config(after=LONG_MAX), None),
        ([], config(before=0), None),
        ([None, None], config(before=0, after=0), None),
    ],
)
def test_bounds_are_kafkas(times, settings, expected):
    assert refused(times, settings) == expected


@given(
    st.lists(st.tuples(st.integers(0, 2**50), st.none() | st.binary(max_size=300)), min_size=1, max_size=200),
    st.sampled_from(["none", "lz4"]),
)
def test_a_check_finds_the_times_and_missing_keys_of_records(records, codec):
    batch = build([Record(key, b"v", time) for time, key in records], codec)
    found = check_records(batch, 2**31 - 64)
    times = [time for time, _ in records]
    assert (found.oldest, found.newest) == (min(times), max(times))
    assert found.keyless == sum(key is None for _, key in records)


store = store_with()


def rows(*times):
    return pa.record_batch({"value": [b"v"] * len(times), "timestamp": pa.array(times, pa.int64())})


def test_a_time_far_ahead_is_refused_and_nothing_is_appended(store):
    ahead = time.time_ns() // 1_000_000 + 2 * HOUR
    message = r"t: record 1 has the time \d+ \(ms\).* more than message\.timestamp\.after\.max\.ms \(3600000\)"
    with pytest.raises(InvalidRecordError, match=message):
        store.append("t", rows(NOW, ahead))
    with pytest.raises(InvalidRecordError, match=message):
        stage(store, rows(NOW, ahead))
    with pytest.raises(InvalidRecordError, match=r"t-0: record 0 .*after\.max\.ms"):
        store.append_batch("t", 0, ready(0, b"v", timestamp=ahead))
    assert store.latest_offset("t", 0) == 0
    store.alter_configs("t", {"message.timestamp.after.max.ms": str(3 * HOUR)})
    store.append("t", rows(NOW, ahead))
    store.append_batch("t", 0, ready(0, b"v", timestamp=ahead))
    assert stage(store, rows(NOW, ahead))
    assert store.latest_offset("t", 0) == 3


def test_with_log_append_time_the_records_timestamps_are_not_read(store):
    store.alter_configs("t", {"message.timestamp.type": "LogAppendTime", "message.timestamp.before.max.ms": "0"})
    before = time.time_ns() // 1_000_000
    store.append("t", rows(0, NOW + 2 * HOUR))
    store.append_batch("t", 0, build([Record(None, b"v", 5), Record(None, b"w", NOW + 2 * HOUR)], "none"))
    table = pa.Table.from_batches(store.read("t", 0))
    assert table["timestampType"].to_pylist() == [1] * 4
    times = table["timestamp"].cast(pa.int64()).to_pylist()
    assert before * 1000 <= min(times) <= max(times) <= time.time_ns() // 1000
