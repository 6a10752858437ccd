"""Committed offsets of idle groups expire by Kafka's rules, and never while a process uses them."""

from __future__ import annotations

import pytest
from group_tools import ORDERS_0, ORDERS_1, append, members, offsets

from pyspark_log.clients.transactions import Transactions
from pyspark_log.spark_connector.reading.stream_reader import GroupOffsets
from pyspark_log.storage.catalog.topics import OFFSETS_TOPIC
from pyspark_log.storage.groups import committed_offsets, expiry
from pyspark_log.storage.groups import offsets as offsets_log
from pyspark_log.storage.groups.committed_offsets import OffsetMoves
from pyspark_log.storage.groups.log import records
from pyspark_log.storage.groups.log.records import NEVER
from pyspark_log.storage.groups.log.view import GroupRecords, OffsetAndMetadata
from pyspark_log.storage.groups.offsets import OffsetsLog
from pyspark_log.storage.maintenance import janitor
from pyspark_log.storage.store import Store
from pyspark_log.types import OffsetStep, TopicPartition
from tests.store_tools import publish

BILLS = TopicPartition("bills", 0)
MINUTE = 60_000


class Clock:
    """A time in ms that a test moves; OffsetsLog asks for seconds."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def __call__(self) -> float:
        return self.ms / 1000


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(tmp_path):
    settings = {"offsets.topic.num.partitions": "3", "offsets.retention.minutes": "10"}
    return Store.create(tmp_path / "store", settings)


@pytest.fixture
def log(store, clock):
    return OffsetsLog(store, clock)


def kept(commit_timestamp: int, expire_timestamp: int = -1) -> OffsetAndMetadata:
    return OffsetAndMetadata(5, -1, "", commit_timestamp, expire_timestamp)


def nulls(store: Store, group: str) -> list[bool]:
    """Of each record in the group's partition, whether its value is null."""
    batches = store.read(OFFSETS_TOPIC, records.partition_for(group, 3))
    return [value is None for batch in batches for value in batch["value"].to_pylist()]


@pytest.mark.parametrize(
    ("metadata", "gone"),
    [
        # The members are not managed: from the commit.
        (None, [ORDERS_0, BILLS]),
        # There never were any.
        (members(protocol_type="", since=9_900), [ORDERS_0, BILLS]),
        # From when the last one left; an expiry of its own counts all the same.
        (members(since=9_900), [BILLS]),
        (members(since=8_000), [ORDERS_0, ORDERS_1, BILLS]),
        # Only what no member reads.
        (members("bills"), [ORDERS_0]),
        (members("bills", "orders"), []),
        # What members of other protocols read, only they know.
        (members("x", protocol_type="connect"), []),
    ],
)
def test_the_clock_starts_where_kafkas_does(metadata, gone):
    group = GroupRecords({ORDERS_0: kept(9_000), ORDERS_1: kept(9_001), BILLS: kept(9_999, 10_000)}, metadata)
    assert expiry.expired(group, 10_000, retention_ms=1_000) == gone


def test_what_has_no_end_does_not_end():
    assert expiry.expired(GroupRecords({ORDERS_0: kept(0, NEVER)}), NEVER - 1, retention_ms=1) == []


def test_idle_committed_offsets_go_with_a_record_that_says_so(store, log, clock):
    log.commit("idle", {ORDERS_0: 5, ORDERS_1: 6})
    log.commit("monthly", {ORDERS_0: 7}, expire_timestamp=NEVER)
    clock.ms += 9 * MINUTE
    log.commit("idle", {ORDERS_1: 8})
    assert log.expire() == 0
    clock.ms += MINUTE
    assert log.expire() == 1
    assert offsets(OffsetsLog(Store.open(store.path)), "idle") == offsets(log, "idle") == {ORDERS_1: 8}
    clock.ms += 1_000 * MINUTE
    assert log.expire() == 1
    assert log.groups() == ["monthly"]
    ends = [store.latest_offset(OFFSETS_TOPIC, partition) for partition in range(3)]
    assert log.expire() == 0
    assert [store.latest_offset(OFFSETS_TOPIC, partition) for partition in range(3)] == ends


def test_of_an_empty_group_the_record_of_its_members_goes_with_its_last_committed_offset(store, log, clock):
    log.commit("g", {ORDERS_0: 5})
    append(store, "g", records.encode_group_key("g"), members("orders"))
    clock.ms += 11 * MINUTE
    assert log.expire() == 0
    append(store, "g", records.encode_group_key("g"), members(since=clock.ms))
    clock.ms += 9 * MINUTE
    assert (log.expire(), log.groups()) == (0, ["g"])
    clock.ms += MINUTE
    assert (log.expire(), log.groups()) == (1, [])
    assert OffsetsLog(Store.open(store.path)).groups() == []


def test_a_group_whose_members_are_not_known_stays_and_holds_up_no_other(store, log, clock, caplog):
    for name in ("g", "h", "i", "j"):
        log.commit(name, {ORDERS_0: 5})
    append(store, "g", records.encode_group_key("g"), b"\0\3 no members")
    clock.ms += 11 * MINUTE
    assert log.expire() == 3
    assert log.groups() == ["g"]
    assert "group 'g' is kept" in caplog.text


def test_a_committer_checks_for_expired_offsets_now_and_then(store, log, clock):
    """Kafka's interval is ten minutes, as long as these committed offsets live."""
    log.commit("idle", {ORDERS_0: 5})
    clock.ms += 10 * MINUTE - 1
    log.commit("busy", {ORDERS_0: 1})
    assert log.groups() == ["busy", "idle"]
    clock.ms += 1
    log.commit("busy", {ORDERS_0: 2})
    assert log.groups() == ["busy"]


def test_a_commit_stays_even_if_the_check_after_it_fails(store, log, clock, monkeypatch, caplog):
    log.commit("idle", {ORDERS_0: 5})
    clock.ms += 10 * MINUTE
    monkeypatch.setattr(offsets_log.expiry, "expired", lambda *_: (_ for _ in ()).throw(OSError("no disk")))
    log.commit("busy", {ORDERS_0: 1})
    assert "no disk" in caplog.text
    assert log.groups() == ["busy", "idle"]


def test_pylog_clean_takes_expired_committed_offsets_too(store, clock):
    store.logs.clock.read = lambda: clock.ms
    OffsetsLog(store).commit("busy", {ORDERS_0: 5})
    OffsetsLog(store, clock=lambda: 1.0).commit("idle", {ORDERS_0: 5})
    assert OffsetsLog(store).groups() == ["busy", "idle"]
    janitor.clean(store)
    assert OffsetsLog(store).groups() == ["busy"]


def test_what_a_publish_or_a_query_has_read_never_expires(store, log, clock):
    with Transactions(store, "t").begin() as transaction:
        transaction.send_offsets("exact", {ORDERS_0: (None, 5)})
    GroupOffsets("").commit(store, "query", {ORDERS_0: 6})
    for fetched in (log.fetch("exact"), log.fetch("query")):
        assert fetched[ORDERS_0].expire_timestamp == NEVER
    clock.ms = NEVER // 2
    assert log.expire() == 0


def test_what_a_query_without_a_group_of_the_users_has_read_expires_after_it(store, log, clock, monkeypatch):
    """As long as the query runs, it has its offsets, also of partitions that get no records."""
    monkeypatch.setattr(store.logs.clock, "read", lambda: clock.ms)
    monkeypatch.setattr("pyspark_log.storage.fs.clock.now_ms", lambda: clock.ms)
    query = GroupOffsets("")
    for minute in range(60):
        query.commit(store, "query", {ORDERS_0: minute // 20, ORDERS_1: 7}, expire=True)
        clock.ms += MINUTE
        assert log.expire() == 0
    assert nulls(store, "query").count(False) <= 2 * 60 // 5
    clock.ms += 4 * MINUTE
    assert (log.expire(), offsets(log, "query")) == (0, {ORDERS_0: 2, ORDERS_1: 7})
    clock.ms += 10 * MINUTE
    assert (log.expire(), log.groups()) == (2, [])


def test_offsets_that_a_publish_has_committed_do_not_come_to_expire(store, log, clock, monkeypatch):
    monkeypatch.setattr(store.logs.clock, "read", lambda: clock.ms)
    log.commit("query", {ORDERS_0: 5}, expire_timestamp=NEVER)
    GroupOffsets("").commit(store, "query", {ORDERS_0: 5, ORDERS_1: 6}, expire=True)
    clock.ms += 11 * MINUTE
    assert (log.expire(), offsets(log, "query")) == (1, {ORDERS_0: 5})


def test_a_publish_that_is_decided_keeps_its_committed_offset(store, log, clock, monkeypatch):
    """It moves an expired offset: first the publish is applied, and then there is nothing left to remove."""
    log.commit("g", {ORDERS_0: 5})
    clock.ms += 11 * MINUTE
    with monkeypatch.context() as stopped:
        stopped.setattr("pyspark_log.storage.publish.publishing.apply_decision", lambda *_: None)
        publish(
            store.decisions,
            "p",
            0,
            [],
            participants=[OffsetMoves(store.committed_offsets, [OffsetStep("g", ORDERS_0, 5, 9)])],
        )
    fresh = Store.open(store.path)
    assert OffsetsLog(fresh, clock).expire() == 0
    assert offsets(OffsetsLog(fresh), "g") == {ORDERS_0: 9}
    assert nulls(store, "g") == [False, False]


def test_a_commit_between_the_look_and_the_lock_saves_a_committed_offset(store, log, clock, monkeypatch):
    log.commit("g", {ORDERS_0: 5})
    clock.ms += 11 * MINUTE
    apply_in = committed_offsets.apply_in

    def commit_first(*place: object) -> None:
        monkeypatch.setattr(committed_offsets, "apply_in", apply_in)
        OffsetsLog(Store.open(store.path), clock).commit("g", {ORDERS_0: 6})
        apply_in(*place)

    monkeypatch.setattr(committed_offsets, "apply_in", commit_first)
    assert log.expire() == 0
    assert offsets(log, "g") == {ORDERS_0: 6}


def test_nothing_is_made_where_nothing_was_committed(store, log):
    assert log.expire() == 0
    assert store.topics(internal=True) == []


def test_what_takes_a_committed_offset_back_is_a_tombstone(store, log, clock):
    log.commit("g", {ORDERS_0: 5})
    clock.ms += 11 * MINUTE
    log.expire()
    assert nulls(store, "g") == [False, True]
