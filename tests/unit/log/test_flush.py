"""When what was appended is synced: by flush.messages and flush.ms, by a flush, and by closing the store."""

import errno
import os

import pyarrow as pa
import pytest
from producer_tools import ready

from pyspark_log.errors import OutcomeUnknownError
from pyspark_log.storage.catalog import log_dirs
from pyspark_log.storage.catalog.kafka_files import read_offsets
from pyspark_log.storage.store import Store
from pyspark_log.types import TopicPartition
from tests.store_tools import observed, open_files


@pytest.fixture
def make(tmp_path):
    """Makes a store with the topic `t` of two partitions."""

    def make(**configs):
        store = Store.create(tmp_path / "store")
        store.create_topic("t", 2, {name.replace("_", "."): str(value) for name, value in configs.items()})
        return store

    return make


@pytest.fixture
def syncs():
    """The names of the logs that were synced, in order."""
    seen = []

    def observer(change):
        if change.kind == "sync" and change.path.endswith(".log"):
            seen.append(os.path.basename(os.path.dirname(change.path)))

    with observed(observer):
        yield seen


def append(store, count=1, partition=0, **options):
    return store.append("t", pa.record_batch({"value": [b"." * 50] * count}), partition=partition, **options)


def unsynced(store, partition=0):
    """Bytes of the log that a power loss could take, and offsets that are kept from use for that."""
    state = store.logs.reader("t", partition).state()
    return state.position - state.synced, max(state.reserve - state.next_offset, 0)


# ---- flush.messages


def test_by_default_nothing_is_synced_unasked(make, syncs):
    store = make()
    for _ in range(50):
        append(store)
    assert syncs == []
    append(store, sync=True)
    store.append_batch("t", 1, ready(0, b"v"), sync=True)
    assert syncs == ["t-0", "t-1"]
    assert [unsynced(store, partition)[0] for partition in range(2)] == [0, 0]


def test_every_append_is_synced_before_it_is_acknowledged(make, syncs):
    store = make(flush_messages=1)
    for number in range(1, 4):
        append(store)
        assert len(syncs) == number
        assert unsynced(store) == (0, 0)
    store.append_batch("t", 1, ready(0, b"v"))
    assert unsynced(store, 1) == (0, 0)


def test_an_append_that_makes_the_count_reach_the_setting_syncs(make, syncs):
    store = make(flush_messages=5)
    counts = []
    for records in (1, 3, 1, 4, 2, 1, 5, 4, 1):
        append(store, records)
        counts.append(len(syncs))
    #        1  4  5! 4  6! 1  6! 4  5!
    assert counts == [0, 0, 1, 1, 2, 2, 3, 3, 4]


def test_all_processes_count_together(make, syncs):
    stores = [make(flush_messages=5)]
    stores += [Store.open(stores[0].path) for _ in range(2)]
    counts = []
    for number in range(15):
        append(stores[number % 3])
        counts.append(len(syncs))
    assert counts == [number // 5 for number in range(1, 16)]
    # A newly opened one, with 2 unsynced records after the synced ones.
    append(stores[0], 2)
    append(Store.open(stores[0].path), 2)
    assert len(syncs) == 3
    append(Store.open(stores[0].path))
    assert len(syncs) == 4


def test_the_count_restarts_at_any_other_sync(make, syncs):
    store = make(flush_messages=5, segment_bytes=1500)
    append(store, 4)
    append(store, sync=True)
    append(store, 4)
    store.flush("t")
    append(store, 4)
    assert len(syncs) == 2
    while len(store.segment_files("t", 0)) == 1:
        append(store, 4)
    del syncs[:]
    append(store, 1)  # The roll has synced the segment before; in this one there are 4.
    assert len(syncs) == 1


def test_a_setting_that_is_made_smaller_counts_from_the_next_append(make, syncs):
    store = make()
    append(store, 10)
    store.alter_configs("t", {"flush.messages": "11"})
    append(store)
    assert len(syncs) == 1


def test_a_batch_that_is_sent_again_is_answered_as_safe_as_the_first_time(make, syncs):
    store = make()
    store.append_batch("t", 0, ready(0, b"v"))
    store.alter_configs("t", {"flush.messages": "1"})
    assert store.append_batch("t", 0, ready(0, b"v")).duplicate
    assert unsynced(store) == (0, 0)
    assert store.append_batch("t", 0, ready(0, b"v")).duplicate
    assert len(syncs) == 1


def test_a_sync_by_the_setting_that_fails_is_reported(make, fail):
    store = make(flush_messages=2)
    append(store)
    fail("sync", ".log", errno.EIO)
    with pytest.raises(OutcomeUnknownError, match="could not be synced"):
        append(store)
    assert store.latest_offset("t", 0) == 1
    append(store)
    assert len(store.segment_files("t", 0)) == 2


# ---- flush.ms


def test_an_append_that_finds_records_unsynced_for_so_long_syncs(make, syncs, clock):
    store = make(flush_ms=1000)
    append(store)
    clock.ms += 999
    append(store)
    assert len(syncs) == 0
    clock.ms += 1
    append(store)
    assert (len(syncs), unsynced(store)[0]) == (1, 0)
    append(store)
    clock.ms += 999
    append(store)
    assert len(syncs) == 1, "the time begins anew with the first append behind the sync"


def test_processes_that_live_for_one_append_sync_in_time(make, syncs, clock):
    path = make(flush_ms=1000).path
    counts = []
    for _ in range(6):
        append(Store.open(path))
        clock.ms += 400
        counts.append(len(syncs))
    # At 0, 400, 800, 1200!, 1600, 2000
    assert counts == [0, 0, 0, 1, 1, 1]


def test_a_clock_that_was_set_back_puts_off_nothing(make, syncs, clock):
    store = make(flush_ms=1000)
    append(store)
    clock.ms -= 1_000_000
    append(store)
    assert len(syncs) == 1


# ---- closing


def test_closing_makes_durable_what_this_object_has_written(make, syncs):
    store = make()
    other = Store.open(store.path)
    append(other, partition=1)
    with store:
        append(store)
        assert unsynced(store)[1] > 0
    assert syncs == ["t-0"]
    assert unsynced(store) == (0, 0)
    assert unsynced(store, 1)[1] > 0
    with Store.open(store.path) as reader:
        assert sum(batch.num_rows for batch in reader.read("t", 1)) == 1
    append(other)
    store.close()
    assert syncs == ["t-0"]


def test_closing_lets_all_files_go_and_the_store_can_be_used_again(make):
    store = make()
    for partition in range(2):
        append(store, partition=partition)
    assert open_files(store.path) > 0
    store.close()
    assert open_files(store.path) == 0
    store.close()
    append(store)
    assert unsynced(store)[1] > 0
    store.close()
    assert unsynced(store) == (0, 0)
    assert sum(batch.num_rows for batch in store.read("t", 0)) == 2


def test_closing_writes_the_checkpoints(make, monkeypatch):
    monkeypatch.setattr(log_dirs, "INTERVAL", 0)
    with make() as store:
        append(store, 3)
    for name in ("recovery-point-offset", "replication-offset"):
        assert read_offsets(f"{store.path}/data/{name}-checkpoint") == {TopicPartition("t", 0): 3}


def test_partitions_whose_files_are_closed_already_are_settled_too(make):
    store = make()
    store.logs.most_writers = 2
    store.add_partitions("t", 5)
    for partition in range(5):
        append(store, partition=partition)
    store.close()
    assert {unsynced(store, partition) for partition in range(5)} == {(0, 0)}


@pytest.mark.parametrize("again", [False, True])
def test_a_topic_that_is_gone_has_nothing_to_be_closed(make, again):
    store = make()
    append(store)
    other = Store.open(store.path)
    other.delete_topic("t")
    if again:
        topic_id = other.create_topic("t", 1).topic_id
    store.close()
    assert not os.path.exists(f"{store.path}/data/t-0")
    assert not again or not os.path.exists(f"{store.path}/state/{topic_id}-0")


def test_a_partition_that_cannot_be_synced_is_reported_and_tried_again(make, caplog):
    store = make()
    for partition in range(2):
        append(store, partition=partition)

    def fail(change):
        if change.kind == "sync" and change.path.endswith("t-0/" + "0" * 20 + ".log"):
            raise OSError(errno.EIO, "Input/output error")

    with observed(fail), pytest.raises(OutcomeUnknownError, match="could not be synced"):
        store.close()
    assert "t-0 could not be synced" in caplog.text
    assert unsynced(store)[1] > 0
    assert unsynced(store, 1) == (0, 0)
    store.close()
    assert unsynced(store) == (0, 0)
    assert sum(batch.num_rows for batch in store.read("t", 0)) == 1
