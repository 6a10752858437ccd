"""Committed offsets of groups: one log, many readers of it."""

from __future__ import annotations

import threading
import time

import pyarrow as pa
import pytest

from pyspark_log.storage import coordinator_records as records
from pyspark_log.storage import state_file
from pyspark_log.storage.errors import CorruptRecordError, InvalidConfigError
from pyspark_log.storage.group_positions import OffsetAndMetadata, committed
from pyspark_log.storage.offsets_log import OffsetsLog
from pyspark_log.storage.store import Store
from pyspark_log.storage.topics import OFFSETS_TOPIC
from pyspark_log.storage.types import TopicPartition

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture
def store(tmp_path):
    return Store.create(tmp_path / "store", {"offsets.topic.num.partitions": "4"})


def append(store: Store, group: str, key: bytes | None, value: bytes | None) -> None:
    """A record as another program might write it to the group's partition."""
    batch = pa.record_batch({"key": pa.array([key], pa.binary()), "value": pa.array([value], pa.binary())})
    count = store.describe_topic(OFFSETS_TOPIC).partitions
    store.append_to(OFFSETS_TOPIC, batch, partition=records.partition_for(group, count))


def offsets(log: OffsetsLog, group: str) -> dict[TopicPartition, int]:
    return {at: kept.offset for at, kept in log.fetch(group).items()}


def test_nothing_is_known_and_nothing_is_made_before_the_first_commit(store):
    log = OffsetsLog(store)
    assert log.fetch("g") == {}
    assert log.groups() == []
    log.commit("g", {})
    assert store.topics(internal=True) == []


def test_a_commit_is_fetched_with_all_that_belongs_to_it(store):
    OffsetsLog(store, clock=lambda: 1700000000.25).commit("g", {ORDERS_0: 5, ORDERS_1: 0}, "from a test")
    assert OffsetsLog(store).fetch("g") == {
        ORDERS_0: OffsetAndMetadata(5, -1, "from a test", 1700000000250),
        ORDERS_1: OffsetAndMetadata(0, -1, "from a test", 1700000000250),
    }


def test_the_newest_commit_counts_and_others_stay(store):
    log = OffsetsLog(store)
    log.commit("g", {ORDERS_0: 5, ORDERS_1: 7})
    log.commit("g", {ORDERS_0: 9})
    log.commit("g", {ORDERS_0: 6})  # a group may step back
    assert offsets(log, "g") == {ORDERS_0: 6, ORDERS_1: 7}


def test_a_view_follows_what_others_commit(store):
    mine, theirs = OffsetsLog(store), OffsetsLog(Store.open(store.path))
    assert mine.fetch("g") == {}
    theirs.commit("g", {ORDERS_0: 1})
    assert offsets(mine, "g") == {ORDERS_0: 1}
    theirs.commit("g", {ORDERS_0: 2})
    assert offsets(mine, "g") == {ORDERS_0: 2}


def test_a_fetch_reads_only_what_is_new(store, monkeypatch):
    log = OffsetsLog(store)
    starts = []
    read = store.read

    def noted(topic, partition, start, end, **more):
        starts.append(start)
        return read(topic, partition, start, end, **more)

    monkeypatch.setattr(store, "read", noted)
    log.commit("g", {ORDERS_0: 1, ORDERS_1: 1})
    log.fetch("g")
    log.fetch("g")
    log.commit("g", {ORDERS_0: 2})
    log.fetch("g")
    assert starts == [0, 2]


def test_who_waits_for_a_partitions_lock_keeps_nobody_from_positions(store, monkeypatch):
    """After a restart of the machine: one waits to put the partition right, whose lock another one has."""
    OffsetsLog(store).commit("g", {ORDERS_0: 1})
    fresh, waits, boot = Store.open(store.path), threading.Event(), state_file.this_boot()

    def this_boot():
        if threading.current_thread() is not other:
            return boot
        waits.set()
        return b"another one".ljust(len(boot))

    monkeypatch.setattr(state_file, "this_boot", this_boot)
    other = threading.Thread(target=OffsetsLog(fresh).fetch, args=("g",))
    partition = records.partition_for("g", fresh.describe_topic(OFFSETS_TOPIC).partitions)
    with fresh.appender(OFFSETS_TOPIC, partition).hold():
        other.start()
        waits.wait(20)
        time.sleep(0.1)
        began = time.monotonic()
        assert committed(fresh, "g")[ORDERS_0].offset == 1
        assert time.monotonic() - began < 5
    other.join()


def test_one_commit_is_one_batch_in_the_groups_partition(store):
    OffsetsLog(store).commit("g", {ORDERS_0: 5, ORDERS_1: 7})
    partition = records.partition_for("g", 4)
    ends = [store.latest_offset(OFFSETS_TOPIC, number) for number in range(4)]
    assert ends == [2 if number == partition else 0 for number in range(4)]


def test_the_topic_is_made_as_kafka_makes_it(tmp_path):
    store = Store.create(tmp_path / "default")
    OffsetsLog(store).commit("g", {ORDERS_0: 5})
    topic = store.describe_topic(OFFSETS_TOPIC)
    assert topic.partitions == 50
    assert topic.configs["cleanup.policy"] == "compact"
    assert topic.configs["segment.bytes"] == "104857600"


def test_groups_of_all_partitions_are_listed_in_order(store):
    names = [f"group-{number}" for number in range(10)]
    for name in reversed(names):
        OffsetsLog(store).commit(name, {ORDERS_0: 1})
    assert OffsetsLog(store).groups() == names


def test_a_tombstone_takes_a_position_back_and_a_group_without_any_is_gone(store):
    log = OffsetsLog(store)
    log.commit("g", {ORDERS_0: 5, ORDERS_1: 7})
    append(store, "g", records.encode_offset_key(records.OffsetCommitKey("g", "orders", 0)), None)
    assert offsets(log, "g") == {ORDERS_1: 7}
    append(store, "g", records.encode_offset_key(records.OffsetCommitKey("g", "orders", 1)), None)
    assert log.groups() == []


def test_members_and_kinds_of_later_brokers_are_passed_over(store):
    log = OffsetsLog(store)
    log.commit("g", {ORDERS_0: 5})
    append(store, "g", bytes.fromhex("0002 0001 67"), b"\x00\x03 and what a group's members are")
    append(store, "g", bytes.fromhex("0003 0001 67"), b"\x00\x00\x00\x00\x00\x01\x00")
    assert offsets(log, "g") == {ORDERS_0: 5}


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"\xff\xff is no version", b"x"), (bytes.fromhex("0001 0001 67 0001 74 00000000"), b"no value")],
)
def test_a_record_that_is_no_groups_is_named_with_its_place(store, key, value):
    log = OffsetsLog(store)
    log.commit("g", {ORDERS_0: 5})
    append(store, "g", key, value)
    with pytest.raises(CorruptRecordError, match=r"__consumer_offsets-\d.*offset 1 "):
        OffsetsLog(store).fetch("g")


@pytest.mark.parametrize(
    ("group", "offset", "metadata"), [("", 0, ""), ("g", -1, ""), ("g", 0, "x" * 4097)]
)
def test_a_bad_commit_is_refused_before_anything_is_written(store, group, offset, metadata):
    with pytest.raises(InvalidConfigError):
        OffsetsLog(store).commit(group, {ORDERS_0: offset}, metadata)
    assert store.topics(internal=True) == []
