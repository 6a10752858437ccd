"""Offsets that clients commit in transactions count once these are committed."""

import pytest

from pyspark_log import Store
from pyspark_log.storage.groups import OffsetAndMetadata
from pyspark_log.storage.record.end_txn_marker import EndTxnMarker
from pyspark_log.storage.transactions import TransactionLog
from pyspark_log.types import TopicPartition

AT, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def store(tmp_path):
    with Store.create(tmp_path / "store", {"offsets.topic.num.partitions": "1"}) as store:
        store.create_topic("t", 2)
        yield store


def commit(store, producer_id, offset, at=AT, group="g", epoch=0):
    store.groups.log.commit_in_transaction(group, {at: OffsetAndMetadata(offset, -1, "", 1)}, producer_id, epoch)


def end(store, producer_id, *, commits, epoch=0):
    at = store.groups.log.membership.partition_of("g")
    TransactionLog(store.logs).end(at, producer_id, epoch, EndTxnMarker(commits, 0), sync=False)


def offsets(store, group="g"):
    """The committed offsets, as a process that has followed the log has them, and one that begins now."""
    followed = {at: one.offset for at, one in store.groups.log.fetch(group).items()}
    with Store.open(store.path) as other:
        assert {at: one.offset for at, one in other.groups.log.fetch(group).items()} == followed
        assert other.committed_offsets.pending(group) == store.committed_offsets.pending(group)
    return followed


def test_a_commit_counts_from_the_marker_on(store):
    commit(store, 7, 10)
    assert (offsets(store), store.committed_offsets.pending("g")) == ({}, {AT})
    assert store.committed_offsets.pending("other") == set()
    commit(store, 7, 11)
    commit(store, 7, 5, OTHER)
    end(store, 7, commits=True)
    assert (offsets(store), store.committed_offsets.pending("g")) == ({AT: 11, OTHER: 5}, set())


def test_an_abort_leaves_what_was_committed(store):
    store.groups["g"].commit({AT: 3})
    commit(store, 7, 10)
    assert offsets(store) == {AT: 3}
    end(store, 7, commits=False)
    assert (offsets(store), store.committed_offsets.pending("g")) == ({AT: 3}, set())
    commit(store, 7, 12, epoch=1)
    end(store, 7, commits=True, epoch=1)
    assert offsets(store) == {AT: 12}


def test_an_open_transaction_holds_up_no_other_commit(store):
    commit(store, 7, 10)
    store.groups["other"].commit({AT: 4})
    store.groups["g"].commit({OTHER: 5})
    assert (offsets(store), offsets(store, "other")) == ({OTHER: 5}, {AT: 4})


def test_a_later_commit_stays_when_an_earlier_one_is_decided(store):
    commit(store, 7, 10)
    store.groups["g"].commit({AT: 20})
    end(store, 7, commits=True)
    assert offsets(store) == {AT: 20}
    commit(store, 8, 30)
    commit(store, 9, 40)
    end(store, 9, commits=True)
    end(store, 8, commits=True)
    assert offsets(store) == {AT: 40}


def test_offsets_survive_compaction_as_they_are(store):
    for number in range(3000):
        store.groups["g"].commit({OTHER: number})
        if number % 100 == 0:
            commit(store, 7, number, epoch=number)
            end(store, 7, commits=number % 200 == 0, epoch=number)
    commit(store, 8, 9999)
    # Commits compact the log now and then.
    assert sum(rows.num_rows for rows in store.read("__consumer_offsets", 0)) < 3000
    assert (offsets(store), store.committed_offsets.pending("g")) == ({AT: 2800, OTHER: 2999}, {AT})
    end(store, 8, commits=True)
    assert offsets(store) == {AT: 9999, OTHER: 2999}
