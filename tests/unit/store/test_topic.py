"""Topics and groups as a Python user holds them: `store.topic`, `store.groups`."""

import threading
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

from pyspark_log import EARLIEST, LATEST, AppendResult, IsolationLevel, Store, TopicPartition, Transactions
from pyspark_log.errors import InvalidConfigError, OffsetOutOfRangeError, UnknownTopicError

HOUR = timedelta(hours=1)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def store(place):
    store = Store.create(place, {"offsets.topic.num.partitions": "2"})
    store.create_topic("orders", 3, {"retention.ms": "-1"})
    return store


@pytest.fixture
def topic(store):
    """Nine records in three partitions, an hour apart."""
    topic = store.topic("orders")
    for number in range(9):
        at = NOON + number * HOUR
        topic.append([{"value": f"v{number}", "timestamp": at, "partition": number % 3}])
    return topic


def values(batches):
    return sorted(value.decode() for batch in batches for value in batch["value"].to_pylist())


def test_a_topic_that_is_not_there(store):
    with pytest.raises(UnknownTopicError):
        store.topic("none")


def test_rows_are_appended_to_a_partition(store):
    topic = store.topic("orders")
    (result,) = topic.append([{"key": "k", "value": "v"}], partition=2, sync=True)
    assert result == AppendResult(2, 0, 1)
    assert topic.read(columns=["key", "value"]).to_table().to_pylist() == [{"key": b"k", "value": b"v"}]


def test_a_read_is_a_data_frame_of_pandas(store):
    topic = store.topic("orders")
    topic.append([{"value": "a"}, {"value": "b"}], partition=0)
    assert topic.read().to_pandas()["value"].tolist() == [b"a", b"b"]


def test_a_bound_of_numpy(topic):
    assert values(topic.read(np.int64(1))) == values(topic.read(1))


def test_a_bound_that_is_none(topic):
    with pytest.raises(InvalidConfigError, match="'2026-01-01': must be an offset, a datetime, or offsets by"):
        topic.read("2026-01-01")


def test_all_partitions_are_read_in_one_call(topic):
    scan = topic.read()
    assert values(scan) == values(scan) == [f"v{n}" for n in range(9)]
    assert scan.to_reader().read_all() == scan.to_table()
    assert scan.schema.names == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert topic.read(headers=True).schema.names[-1] == "headers"
    assert topic.read(partitions=[1]).ranges == {1: (0, 3)}
    assert topic.read(columns=["offset", "key"]).to_table() == topic.read().to_table().select(["offset", "key"])
    with pytest.raises(InvalidConfigError, match="no column 'val'; these are: key, value"):
        topic.read(columns=["val"])


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (EARLIEST, LATEST, range(9)),
        (1, 2, [3, 4, 5]),
        ({0: 2}, LATEST, [1, 2, 4, 5, 6, 7, 8]),
        (EARLIEST, {0: 1, 1: 0, 2: 0}, [0]),
        (NOON + 4 * HOUR, LATEST, [4, 5, 6, 7, 8]),
        (NOON + 2 * HOUR, NOON + 5 * HOUR, [2, 3, 4]),
        (NOON + 100 * HOUR, LATEST, []),
        (EARLIEST, NOON, []),
        (LATEST, EARLIEST, []),
    ],
)
def test_offsets_and_times_bound_what_is_read(topic, start, end, expected):
    assert values(topic.read(start, end)) == sorted(f"v{number}" for number in expected)


def test_an_offset_beyond_the_end_is_an_error(topic):
    with pytest.raises(OffsetOutOfRangeError):
        topic.read(0, 4).to_table()


def test_offsets_by_time(topic):
    found = topic.offsets_for(NOON + 3 * HOUR)
    assert {number: one.offset for number, one in found.items()} == {0: 1, 1: 1, 2: 1}
    assert topic.offsets_for(int((NOON + 8 * HOUR).timestamp() * 1000))[0] is None
    assert topic.earliest_offsets() == dict.fromkeys(range(3), 0)
    assert topic.latest_offsets() == dict.fromkeys(range(3), 3)


def test_only_committed_records(store):
    topic, level = store.topic("orders"), IsolationLevel.READ_COMMITTED
    with Transactions(store, "t").begin() as transaction:
        transaction.append("orders", pa.record_batch({"value": [b"v"]}))
    assert topic.read(isolation_level=level).to_table().num_rows == 1
    assert sum(topic.latest_offsets(isolation_level=level).values()) == 1


def test_a_topic_is_followed_also_in_partitions_that_are_added(topic):
    seen, ready = [], threading.Event()

    def follow():
        for batch in topic.follow({0: 2}, timeout=240):
            seen.extend(value.decode() for value in batch["value"].to_pylist())
            ready.set()
            if seen[-1] == "last":
                return

    thread = threading.Thread(target=follow)
    thread.start()
    assert ready.wait(120)
    topic.store.add_partitions("orders", 4)
    topic.append([{"value": "last"}], partition=3)
    thread.join(120)
    assert (sorted(seen[:-1]), seen[-1]) == (["v1", "v2", "v4", "v5", "v6", "v7", "v8"], "last")


def test_following_ends_when_nothing_comes(topic):
    assert list(topic.follow(timeout=0.2)) == []
    # What is there has arrived.
    for timeout in (0, 0.2):
        assert values(topic.follow(EARLIEST, timeout=timeout, partitions=[0])) == ["v0", "v3", "v6"]


@pytest.mark.parametrize("place", ["folder"], indirect=True)
def test_an_append_that_fails_says_which_partitions_have_their_records(store, monkeypatch):
    topic, real = store.topic("orders"), store.logs.writer_of

    def no_third(name, partition):
        if partition == 2:
            raise OSError(28, "No space left on device")
        return real(name, partition)

    monkeypatch.setattr(store.logs, "writer_of", no_third)
    with pytest.raises(OSError, match="No space") as caught:
        topic.append([{"value": "v", "partition": number} for number in range(3)])
    assert caught.value.results == [AppendResult(0, 0, 1), AppendResult(1, 0, 1)]
    assert topic.read(partitions=[0, 1]).to_table().num_rows == 2


def test_groups_are_held_by_their_names(store):
    group, at, other = store.groups["g"], TopicPartition("orders", 0), TopicPartition("orders", 1)
    assert (group.committed(), list(store.groups), "g" in store.groups) == ({}, [], False)
    group.commit({at: 5, other: 7}, "me")
    assert {where: kept.offset for where, kept in store.groups["g"].committed().items()} == {at: 5, other: 7}
    assert (list(store.groups), "g" in store.groups, len(store.groups)) == (["g"], True, 1)
    assert group.describe().state.value == "Empty"
    assert group.delete_offsets([other]) == [other]
    group.delete()
    assert "g" not in store.groups


def test_what_a_notebook_shows(topic):
    store = topic.store
    store.groups["g"].commit({TopicPartition("orders", 0): 1})
    assert repr(topic) == f"Topic('orders', partitions=3, store={store.path!r})"
    assert repr(topic.read()) == "Scan('orders', 3 partitions, at most 9 records)"
    assert repr(store.groups) == "Groups(['g'])"
    assert repr(store.groups["g"]) == "Group('g', 1 committed offsets)"
