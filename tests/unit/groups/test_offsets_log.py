"""Committed offsets of groups: one log, many readers of it."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from group_tools import ORDERS_0, ORDERS_1, append, members, offsets

from pyspark_log.errors import (
    CorruptRecordError,
    GroupNotEmptyError,
    InvalidConfigError,
    OffsetConflictError,
    UnknownGroupError,
)
from pyspark_log.storage.catalog.topics import OFFSETS_TOPIC
from pyspark_log.storage.groups.log import records, view
from pyspark_log.storage.groups.log.metadata import GroupState
from pyspark_log.storage.groups.log.view import OffsetAndMetadata
from pyspark_log.storage.groups.offsets import OffsetsLog
from pyspark_log.storage.log.read.reader import LogReader
from pyspark_log.storage.log.state import state_file
from pyspark_log.storage.store import Store
from pyspark_log.types import TopicPartition

# How long a process waits for a lock, in seconds; others take far less than half of it, however busy the machine is.
PATIENCE = 240


@pytest.fixture
def store(tmp_path):
    return Store.create(tmp_path / "store", {"offsets.topic.num.partitions": "4"})


def reads_of(monkeypatch) -> list[int]:
    """Where each later read of a partition begins."""
    starts, read = [], LogReader.read_pairs
    monkeypatch.setattr(
        LogReader, "read_pairs", lambda self, start, end, **more: starts.append(start) or read(self, start, end, **more)
    )
    return starts


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
    starts = reads_of(monkeypatch)
    log.commit("g", {ORDERS_0: 1, ORDERS_1: 1})
    log.fetch("g")
    log.fetch("g")
    log.commit("g", {ORDERS_0: 2})
    log.fetch("g")
    assert starts == [0, 2]


def test_a_waiter_for_a_partitions_lock_blocks_no_read_of_committed_offsets(store, monkeypatch):
    """After a restart of the machine: one waits to put the partition right, whose lock another one has."""
    OffsetsLog(store).commit("g", {ORDERS_0: 1})
    fresh, waits, boot = Store.open(store.path), threading.Event(), state_file.this_boot()

    def this_boot():
        if threading.current_thread() is not other:
            return boot
        waits.set()
        return b"another one".ljust(len(boot))

    monkeypatch.setattr(state_file, "this_boot", this_boot)
    monkeypatch.setattr("pyspark_log.storage.fs.locking.timeouts.RECOVERY", PATIENCE)
    other = threading.Thread(target=OffsetsLog(fresh).fetch, args=("g",))
    partition = records.partition_for("g", fresh.describe_topic(OFFSETS_TOPIC).partitions)
    with fresh.logs.writer(OFFSETS_TOPIC, partition).hold():
        other.start()
        assert waits.wait(PATIENCE), "the other one does not put the partition right"
        time.sleep(0.1)
        began = time.monotonic()
        assert fresh.committed_offsets.committed("g")[ORDERS_0].offset == 1
        assert time.monotonic() - began < PATIENCE / 2, "it has waited for the waiter"
    other.join()


def test_one_commit_is_one_batch_in_the_groups_partition(store):
    OffsetsLog(store).commit("g", {ORDERS_0: 5, ORDERS_1: 7})
    partition = records.partition_for("g", 4)
    ends = [store.latest_offset(OFFSETS_TOPIC, number) for number in range(4)]
    assert ends == [2 if number == partition else 0 for number in range(4)]


def test_the_topic_is_made_as_kafka_makes_it_with_smaller_segments(tmp_path):
    store = Store.create(tmp_path / "default")
    OffsetsLog(store).commit("g", {ORDERS_0: 5})
    topic = store.describe_topic(OFFSETS_TOPIC)
    assert topic.partitions == 50
    assert topic.configs["cleanup.policy"] == "compact"
    assert topic.configs["segment.bytes"] == "262144"


def test_groups_of_all_partitions_are_listed_in_order(store):
    names = [f"group-{number}" for number in range(10)]
    for name in reversed(names):
        OffsetsLog(store).commit(name, {ORDERS_0: 1})
    assert OffsetsLog(store).groups() == names


def test_a_tombstone_takes_a_committed_offset_back_and_a_group_without_any_is_gone(store):
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
    ("key", "value"), [(b"\xff\xff is no version", b"x"), (bytes.fromhex("0001 0001 67 0001 74 00000000"), b"no value")]
)
def test_a_record_that_is_no_groups_is_named_with_its_place(store, key, value):
    log = OffsetsLog(store)
    log.commit("g", {ORDERS_0: 5})
    append(store, "g", key, value)
    with pytest.raises(CorruptRecordError, match=r"__consumer_offsets-\d.*offset 1 "):
        OffsetsLog(store).fetch("g")


@pytest.mark.parametrize(
    ("group", "offset", "metadata"), [("", 0, ""), ("g", -1, ""), ("g", 0, "x" * 4097), ("g" * 32768, 0, "")]
)
def test_a_bad_commit_is_refused_before_anything_is_written(store, group, offset, metadata):
    with pytest.raises(InvalidConfigError):
        OffsetsLog(store).commit(group, {ORDERS_0: offset}, metadata)
    assert store.topics(internal=True) == []


def test_a_commit_says_when_it_expires_and_kafkas_old_version_of_the_value_has_it(store):
    OffsetsLog(store, clock=lambda: 1.0).commit("g", {ORDERS_0: 5}, "m", expire_timestamp=7000)
    assert OffsetsLog(store).fetch("g") == {ORDERS_0: OffsetAndMetadata(5, -1, "m", 1000, 7000)}
    (value,) = next(store.read(OFFSETS_TOPIC, records.partition_for("g", 4)))["value"].to_pylist()
    assert value.hex() == "0001000000000000000500016d00000000000003e80000000000001b58"


def test_a_commit_is_refused_where_a_committed_offset_is_not_the_expected_one(store):
    log = OffsetsLog(store)
    log.commit("g", {ORDERS_0: 5}, expected={ORDERS_0: None})
    with pytest.raises(OffsetConflictError) as refused:
        log.commit("g", {ORDERS_0: 9, ORDERS_1: 9}, expected={ORDERS_1: None, ORDERS_0: 4})
    assert (refused.value.expected, refused.value.found) == (4, 5)
    assert offsets(log, "g") == {ORDERS_0: 5}
    log.commit("g", {ORDERS_0: 9, ORDERS_1: 9}, expected={ORDERS_1: None, ORDERS_0: 5})
    assert offsets(log, "g") == {ORDERS_0: 9, ORDERS_1: 9}


def test_a_commit_larger_than_a_segment_is_taken(store):
    many = {TopicPartition("orders", number): number for number in range(2_000)}
    OffsetsLog(store).commit("g", many, "x" * 300)
    assert offsets(OffsetsLog(Store.open(store.path)), "g") == many
    assert len(store.segment_files(OFFSETS_TOPIC, records.partition_for("g", 4))) == 3


def test_of_many_records_only_the_newest_of_each_key_are_taken_apart(store, monkeypatch):
    log, decode, decoded = OffsetsLog(store), records.decode_offset_value, []
    for number in range(40):
        log.commit("g", {ORDERS_0: number, ORDERS_1: 100 - number})
    monkeypatch.setattr(view.records, "decode_offset_value", lambda data: decoded.append(data) or decode(data))
    assert offsets(OffsetsLog(Store.open(store.path)), "g") == {ORDERS_0: 39, ORDERS_1: 61}
    assert len(decoded) == 2


def test_an_older_version_of_the_key_is_the_same_committed_offset(store):
    log = OffsetsLog(store)
    for number in range(40):
        log.commit("g", {ORDERS_0: number})
    key = records.encode_offset_key(records.OffsetCommitKey("g", "orders", 0))
    append(store, "g", b"\0\0" + key[2:], records.encode_offset_value(records.OffsetCommitValue(77, -1, "", 0)))
    assert offsets(OffsetsLog(Store.open(store.path)), "g") == {ORDERS_0: 77}


def test_a_view_that_has_slept_for_long_may_have_missed_tombstones_and_starts_over(store, monkeypatch):
    log, now = OffsetsLog(store), store.logs.clock()
    log.commit("g", {ORDERS_0: 5, ORDERS_1: 7})
    assert len(log.fetch("g")) == 2
    starts = reads_of(monkeypatch)
    half_a_day = 12 * 3600 * 1000
    for later, expected in ((half_a_day - 60_000, []), (2 * half_a_day, [0]), (0, [0, 0])):
        store.logs.clock.read = lambda later=later: now + later
        assert len(log.fetch("g")) == 2
        assert starts == expected


def test_a_log_that_could_not_be_read_was_not_followed(store, monkeypatch):
    """What compaction removed meanwhile is not missed, however often it was tried."""
    log, now = OffsetsLog(store), store.logs.clock()
    log.commit("g", {ORDERS_0: 5})
    log.fetch("g")
    log.commit("g", {ORDERS_0: 6})
    name = store.segment_files(OFFSETS_TOPIC, records.partition_for("g", 4))[0]
    whole = Path(name).read_bytes()
    Path(name).write_bytes(whole[:-1] + b"?")
    ten_hours = 10 * 3600 * 1000
    store.logs.clock.read = lambda: now + ten_hours
    with pytest.raises(CorruptRecordError):
        log.fetch("g")
    Path(name).write_bytes(whole)
    store.logs.clock.read = lambda: now + 2 * ten_hours
    starts = reads_of(monkeypatch)
    assert offsets(log, "g") == {ORDERS_0: 6}
    assert starts == [0]


def test_replaying_the_log_twice_gives_the_same(store):
    log = OffsetsLog(store)
    for number in range(30):
        log.commit(f"g{number % 3}", {ORDERS_0: number, ORDERS_1: 2 * number})
    log.delete_offsets("g1", [ORDERS_0])
    log.delete_group("g2")
    seen = [{group: OffsetsLog(Store.open(store.path)).fetch(group) for group in ("g0", "g1", "g2")} for _ in range(2)]
    assert seen[0] == seen[1] == {group: log.fetch(group) for group in ("g0", "g1", "g2")}
    assert {group: len(found) for group, found in seen[0].items()} == {"g0": 2, "g1": 1, "g2": 0}


def test_the_log_is_compacted_as_it_is_written_to(store):
    """A group commits 2 MB; of the inactive segments only the last records are left, its own and its neighbour's."""
    log, later = OffsetsLog(store), Store.open(store.path)
    many = {TopicPartition("orders", number): number for number in range(400)}
    partition = records.partition_for("g", 4)
    neighbour = next(name for name in map(str, range(100)) if records.partition_for(name, 4) == partition)
    log.commit(neighbour, {ORDERS_0: 3})
    OffsetsLog(later).fetch("g")
    for turn in range(24):
        log.commit("g", dict.fromkeys(many, turn), "x" * 150)
    assert store.size(OFFSETS_TOPIC, partition) < 400_000
    for reader in (OffsetsLog(Store.open(store.path)), OffsetsLog(later), log):
        assert offsets(reader, "g") == dict.fromkeys(many, 23)
        assert offsets(reader, neighbour) == {ORDERS_0: 3}


# ---- members, and taking back


def test_a_groups_state_is_what_its_records_say(store):
    log = OffsetsLog(store)
    assert log.describe("g").state is GroupState.DEAD
    log.commit("g", {ORDERS_0: 5})
    assert log.describe("g").state is GroupState.EMPTY
    append(store, "g", records.encode_group_key("g"), members("orders", "bills"))
    found = log.describe("g")
    assert (found.state, found.protocol, found.topics) == (GroupState.STABLE, "range", {"orders", "bills"})
    assert [(member.member_id, member.client_host) for member in found.members] == [("c-1", "/127.0.0.1")]
    append(store, "g", records.encode_group_key("g"), members())
    assert log.describe("g").state is GroupState.EMPTY
    append(store, "g", records.encode_group_key("g"), b"\0\3 no members")
    with pytest.raises(CorruptRecordError, match="members of group 'g'"):
        log.describe("g")


def test_a_group_is_deleted_with_all_of_its_records_once_it_is_empty(store):
    log = OffsetsLog(store)
    with pytest.raises(UnknownGroupError):
        log.delete_group("g")
    assert store.topics(internal=True) == []
    log.commit("g", {ORDERS_0: 5, ORDERS_1: 6})
    append(store, "g", records.encode_group_key("g"), members("orders"))
    with pytest.raises(GroupNotEmptyError):
        log.delete_group("g")
    append(store, "g", records.encode_group_key("g"), members())
    log.delete_group("g")
    assert (log.fetch("g"), log.groups()) == ({}, [])
    assert OffsetsLog(Store.open(store.path)).groups() == []
    with pytest.raises(UnknownGroupError):
        log.delete_group("g")


def test_committed_offsets_are_deleted_where_no_member_reads(store):
    log, bills = OffsetsLog(store), TopicPartition("bills", 0)
    with pytest.raises(UnknownGroupError):
        log.delete_offsets("g", [ORDERS_0])
    log.commit("g", {ORDERS_0: 5, ORDERS_1: 6, bills: 7})
    append(store, "g", records.encode_group_key("g"), members("bills"))
    with pytest.raises(GroupNotEmptyError, match="bills"):
        log.delete_offsets("g", [ORDERS_0, bills])
    assert len(log.fetch("g")) == 3
    assert log.delete_offsets("g", [ORDERS_0, TopicPartition("orders", 9)]) == [ORDERS_0]
    assert offsets(log, "g") == {ORDERS_1: 6, bills: 7}
    append(store, "g", records.encode_group_key("g"), members("bills", protocol_type="connect"))
    with pytest.raises(GroupNotEmptyError):
        log.delete_offsets("g", [ORDERS_1])
