"""Each topic config that concerns an append is obeyed by each way in which records get into a log.

What is appended in packs of 16 MiB takes the same steps as rows that are encoded meanwhile.
"""

import os
from collections import Counter

import pyarrow as pa
import pytest
from record_tools import Record, build

from pyspark_log.config import TOPIC_CONFIGS
from pyspark_log.errors import InvalidRecordError, RecordTooLargeError
from pyspark_log.storage.fs import guarded
from pyspark_log.storage.log import LogWriter, Turnstile
from pyspark_log.storage.log.appending.new_segment import NewSegment
from pyspark_log.storage.log_manager import append as log_manager_append
from pyspark_log.storage.publish import applier
from pyspark_log.storage.publish.staging import staged_file, staged_writer
from pyspark_log.storage.record import layout
from pyspark_log.storage.segment import SegmentReader
from pyspark_log.storage.segment.file_names import INDEX, TIME_INDEX, list_segments, segment_path
from pyspark_log.storage.store import Store
from tests.store_tools import faults, new_store, publish, stage, values

DAY = 24 * 3600 * 1000
VALUE = b"." * 100


class Ways:
    """The ways to append one record after the other, unsynced, to partition 0 of `t`; each record is a batch."""

    def __init__(self, store, clock, monkeypatch):
        self.store, self.clock, self._monkeypatch, self._published = store, clock, monkeypatch, 0

    def append(self, times, value=VALUE, key=b"k"):
        for time in times:
            # Each time the lock is taken again.
            Store.open(self.store.path).append("t", _rows(time, value, key))

    def append_in_a_row(self, times, value=VALUE, key=b"k"):
        for name, number in (("TURN", 60_000_000_000), ("USES_IN_A_ROW", 0)):
            self._monkeypatch.setattr(guarded, name, number)
        for time in times:
            self.store.append("t", _rows(time, value, key))

    def append_encoded_meanwhile(self, times, value=VALUE, key=b"k"):
        # Where segments are smaller than the second they are not.
        for name, size in (("PIECE_SIZE", 1), ("APPEND_BYTES", 2000)):
            self._monkeypatch.setattr(log_manager_append, name, size)
        for time in times:
            self.store.append("t", _rows(time, value, key))

    def client_batches(self, times, value=VALUE, key=b"k"):
        for time in times:
            batch = build([Record(key, value, time)], "none")
            [outcome] = self.store.append_batches("t", 0, [batch])
            if isinstance(outcome, Exception):
                raise outcome

    def publish_by_copy(self, times, value=VALUE, key=b"k"):
        for time in times:
            self._publish(_rows(time, value, key))

    def publish_by_install(self, times, value=VALUE, key=b"k"):
        self._monkeypatch.setattr(staged_writer, "INLINE_LIMIT", 0)
        for name in ("_COPY_LEAST", "_COPY_MOST", "_INSTALL_MOST"):
            self._monkeypatch.setattr(staged_file, name, 0)
        self._monkeypatch.setattr(staged_file, "install_size", lambda _: 0)
        for time in times:
            self._publish(_rows(time, value, key))

    def _publish(self, rows):
        publish(self.store.decisions, "p", self._published, stage(self.store, rows))
        self._published += 1


WAYS = [name for name in vars(Ways) if not name.startswith("_")]


def _rows(time, value, key):
    times = pa.array([time], pa.int64())
    return pa.record_batch({"key": pa.array([key], pa.binary()), "value": [value], "timestamp": times})


@pytest.fixture(params=WAYS)
def appended(request, tmp_path, clock, monkeypatch):
    """Appends to a new topic with some configs, in one of the ways; returns the store."""

    def append(configs, times=None, value=VALUE, key=b"k"):
        store = new_store(tmp_path, {"retention.ms": "-1", **configs})
        times = [clock.ms] * 40 if times is None else times
        getattr(Ways(store, clock, monkeypatch), request.param)(times, value, key)
        return store

    append.way = request.param
    return append


def _segments(store):
    """The headers of the batches of each segment, by base offset."""
    folder, found = store.logs.reader("t", 0).place.folder, {}
    for base in list_segments(folder):
        with SegmentReader(folder, base) as reader:
            found[base] = list(reader.headers(0, reader.log.size()))
    return found


def _state(store):
    return store.logs.reader("t", 0).state()


OBEYED = {}


def obeys(name):
    """Marks a test as that of a config."""

    def note(test):
        OBEYED.setdefault(name, []).append(test)
        return test

    return note


@obeys("segment.bytes")
def test_segment_bytes(appended):
    store = appended({"segment.bytes": "1000"})
    sizes = [sum(header.size for header in headers) for headers in _segments(store).values()]
    assert len(sizes) >= 7
    assert max(sizes) <= 1000


@obeys("segment.ms")
@obeys("segment.jitter.ms")
def test_segment_ms(appended, clock):
    store = appended({"segment.ms": str(DAY)}, [clock.ms - DAY - 1, clock.ms - DAY // 2, clock.ms])
    assert 2 in _segments(store)


@obeys("segment.index.bytes")
def test_segment_index_bytes(appended):
    store = appended({"segment.index.bytes": "48", "index.interval.bytes": "0"})
    folder = store.logs.reader("t", 0).place.folder
    assert len(list_segments(folder)) > 1
    for base in list_segments(folder):
        assert os.path.getsize(segment_path(folder, base, TIME_INDEX)) <= 48
        assert os.path.getsize(segment_path(folder, base, INDEX)) <= 48


@obeys("index.interval.bytes")
@pytest.mark.parametrize("interval", [0, 300, 100_000])
def test_index_interval_bytes(appended, interval):
    store = appended({"index.interval.bytes": str(interval)})
    assert faults(store.path) == []  # An entry that is missing would be one, and one too many.


@obeys("flush.messages")
def test_flush_messages(appended, clock):
    state = _state(appended({"flush.messages": "4"}, [clock.ms] * 4))
    assert state.synced == state.position > 0


@obeys("flush.ms")
def test_flush_ms(appended):
    state = _state(appended({"flush.ms": "0"}))
    assert state.synced == state.position > 0


def test_without_either_nothing_is_synced(appended):
    """So that the two tests before this one can fail."""
    state = _state(appended({}))
    assert (state.synced == state.position) == appended.way.startswith("publish")


@obeys("message.timestamp.type")
def test_log_append_time(appended, clock):
    store = appended({"message.timestamp.type": "LogAppendTime"}, [clock.ms - DAY] * 3)
    headers = [header for found in _segments(store).values() for header in found]
    assert [header.max_timestamp for header in headers] == [clock.ms] * 3
    assert all(header.attributes & layout.LOG_APPEND_TIME for header in headers)


@obeys("message.timestamp.before.max.ms")
@obeys("message.timestamp.after.max.ms")
@pytest.mark.parametrize(("side", "sign"), [("before", -1), ("after", 1)])
def test_time_bounds(appended, clock, side, sign):
    with pytest.raises(InvalidRecordError, match=rf"message\.timestamp\.{side}\.max\.ms"):
        appended({f"message.timestamp.{side}.max.ms": "1000"}, [clock.ms + sign * 1001])


@obeys("max.message.bytes")
def test_max_message_bytes(appended, clock):
    with pytest.raises(RecordTooLargeError, match=r"max\.message\.bytes"):
        appended({"max.message.bytes": "1000"}, [clock.ms], b"." * 1001)


@obeys("compression.type")
@obeys("compression.gzip.level")
@obeys("compression.lz4.level")
@obeys("compression.zstd.level")
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compression_type(appended, clock, codec):
    store = appended({"compression.type": codec}, [clock.ms] * 3)
    headers = [header for found in _segments(store).values() for header in found]
    assert {header.attributes & 7 for header in headers} == {layout.CODECS.index(codec)}
    assert values(store) == [VALUE] * 3


@obeys("cleanup.policy")
def test_a_compacted_topic_refuses_records_without_a_key(appended, clock):
    with pytest.raises(InvalidRecordError, match="the topic is compacted"):
        appended({"cleanup.policy": "compact"}, [clock.ms], key=None)


@obeys("retention.bytes")
def test_retention_bytes(appended):
    store = appended({"segment.bytes": "1000", "retention.bytes": "2000"})
    assert 0 < store.earliest_offset("t", 0) < 40


@obeys("retention.ms")
def test_retention_ms(appended, clock):
    store = appended({"segment.bytes": "1000", "retention.ms": str(DAY)}, [clock.ms - 2 * DAY] * 20 + [clock.ms] * 20)
    assert 0 < store.earliest_offset("t", 0) <= 20


# What concerns no append, but the cleaner, the removal of files, only batches of clients, and readers of values.
_LATER = {
    "delete.retention.ms",
    "file.delete.delay.ms",
    "max.compaction.lag.ms",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "source.position.header",
    "key.format",
    "schema.registry",
    "value.format",
}


def test_every_config_has_a_test_here_or_concerns_no_append():
    assert OBEYED.keys() | _LATER == TOPIC_CONFIGS.keys()
    assert not OBEYED.keys() & _LATER


def test_the_ways_are_those_that_they_are_named_for(tmp_path, clock, monkeypatch):
    """Otherwise the tests above would try one of them twice."""
    made = Counter()

    def count(owner, name):
        real = getattr(owner, name)

        def counted(*given, **named):
            result = real(*given, **named)
            made[name] += not (name == "_append_at_rest" and result is None)
            return result

        monkeypatch.setattr(owner, name, counted)

    count(Turnstile, "_append_at_rest")
    count(applier, "append")
    count(LogWriter, "append_pieces")
    count(NewSegment, "put")
    for way in WAYS:
        store = Store.create(tmp_path / way)
        store.create_topic("t", 1, {"retention.ms": "-1"})
        made.clear()
        with monkeypatch.context() as patched:
            getattr(Ways(store, clock, patched), way)([clock.ms] * 5)
        if way != "client_batches":  # These may come in a row, too.
            assert (made["_append_at_rest"] > 0) == (way == "append_in_a_row"), way
        assert made["append_pieces"] == (5 if way == "append_encoded_meanwhile" else 0), way
        assert made["append"] == (5 if way.startswith("publish") else 0), way
        assert made["put"] == (5 if way == "publish_by_install" else 0), way
