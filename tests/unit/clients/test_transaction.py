"""Transactions in plain Python: all or nothing, with the positions that were read for them, by one instance."""

import multiprocessing
import os
import pickle
import socket
import threading

import pyarrow as pa
import pytest

from pyspark_log.clients.transactions import Transactions
from pyspark_log.errors import (
    InvalidConfigError,
    InvalidRecordError,
    InvalidTopicError,
    OffsetConflictError,
    PublisherFencedError,
    PublishPendingError,
    TransactionStateError,
    UnknownTopicError,
)
from pyspark_log.storage.log_manager.manager import LogManager
from pyspark_log.storage.publish import applier
from pyspark_log.storage.publish.pending import help_apply
from pyspark_log.storage.store import Store
from pyspark_log.types import TopicPartition
from tests.processes import run_at_once
from tests.store_tools import observed

# Between a decision and its application there is nothing in an object store.
IN_A_FOLDER = pytest.mark.parametrize("place", ["folder"], indirect=True)
A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


@pytest.fixture
def store(place):
    store = Store.create(place, {"offsets.topic.num.partitions": "2"})
    store.create_topic("a", 2)
    store.create_topic("b", 1)
    return store


@pytest.fixture
def cannot_apply(monkeypatch):
    """A way to have decisions made and not applied."""

    def stop(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(applier, "apply", stop)
        yield patched


def rows(*values):
    return pa.record_batch({"value": pa.array(values, pa.binary()), "key": pa.array(values, pa.binary())})


def content(store, topic):
    """All values, as a store that was opened afresh reads them."""
    store = Store.open(store.path)
    partitions = range(store.describe_topic(topic).partitions)
    return sorted(v for p in partitions for batch in store.read(topic, p) for v in batch["value"].to_pylist())


def transact(transactions, *values, **offsets):
    """One transaction: values for topic a, and committed offsets."""
    with transactions.begin() as transaction:
        if values:
            transaction.append("a", rows(*values))
        for group, positions in offsets.items():
            transaction.send_offsets(group, positions)
    return transaction


def committed(store, group="g"):
    return {at: kept.offset for at, kept in store.groups[group].committed().items()}


def staged_files(store):
    try:
        return os.listdir(f"{store.path}/staging")
    except FileNotFoundError:
        return []


def test_a_transaction_takes_place_as_a_whole_when_it_commits(store):
    transactions = Transactions(store, "t")
    with transactions.begin() as transaction:
        transaction.append("a", rows(b"1", b"2"))
        transaction.append("b", pa.Table.from_batches([rows(b"3"), rows(b"4")]))
        transaction.append("a", rows(b"5"))
        transaction.send_offsets("g", {A0: (None, 3)})
        assert (content(store, "a"), content(store, "b"), committed(store)) == ([], [], {})
    assert (content(store, "a"), content(store, "b")) == ([b"1", b"2", b"5"], [b"3", b"4"])
    assert committed(store) == {A0: 3}
    assert (transaction.number, transactions.last_number) == (0, 0)


def test_what_is_aborted_leaves_nothing(store):
    transactions = Transactions(store, "t")
    large = rows(*(b"%06d" % number * 20 for number in range(60_000)))
    transaction = transactions.begin()
    transaction.append("a", large)
    transaction.send_offsets("g", {A0: (None, 3)})
    transaction.abort()

    def fails_in_between():
        with transactions.begin() as transaction:
            transaction.append("a", large)
            raise KeyError("nobody")

    with pytest.raises(KeyError, match="nobody"):
        fails_in_between()
    assert (content(store, "a"), committed(store), staged_files(store)) == ([], {}, [])
    assert transact(transactions, b"x").number == 0
    assert content(store, "a") == [b"x"]


def test_a_transaction_of_offsets_alone_and_an_empty_one(store):
    transactions = Transactions(store, "t")
    with transactions.begin() as transaction:
        transaction.send_offsets("g", {A0: (None, 3), A1: (None, 0)})
        transaction.send_offsets("h", {A0: (None, 1)})
    with transactions.begin():
        pass
    assert (committed(store), committed(store, "h")) == ({A0: 3, A1: 0}, {A0: 1})
    assert transactions.last_number == 1
    assert store.groups.log.groups() == ["g", "h"]


def test_committed_offsets_advance_from_call_to_call(store):
    transactions = Transactions(store, "t")
    with transactions.begin() as transaction:
        transaction.send_offsets("g", {A0: (None, 3)})
        transaction.send_offsets("g", {A0: (3, 7)})
        with pytest.raises(InvalidConfigError, match=r"up to offset 7.*cannot continue from 3"):
            transaction.send_offsets("g", {A0: (3, 9)})
        with pytest.raises(InvalidConfigError, match="cannot move from 9 to 8"):
            transaction.send_offsets("g", {A1: (9, 8)})
        with pytest.raises(InvalidConfigError, match="needs a name"):
            transaction.send_offsets("", {A1: (0, 8)})
    assert committed(store) == {A0: 7}


@pytest.mark.parametrize("found", [None, 5, 9])
def test_a_position_that_was_moved_meanwhile_is_a_conflict_and_nothing_is_changed(store, found):
    if found is not None:
        store.groups.log.commit("g", {A0: found})
    transactions = Transactions(store, "t")
    transaction = transactions.begin()
    transaction.append("a", rows(b"x"))
    transaction.send_offsets("g", {A0: (7, 8), A1: (None, 2)})
    with pytest.raises(OffsetConflictError, match=r"group 'g', a-0: this started from offset 7, but ") as caught:
        transaction.commit()
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.group, error.topic, error.partition, error.expected, error.found) == ("g", "a", 0, 7, found)
    assert (content(store, "a"), committed(store)) == ([], {} if found is None else {A0: found})
    assert staged_files(store) == []
    transact(transactions, g={A0: (found, 10)})
    assert committed(store) == {A0: 10}


def test_a_newer_instance_fences_the_older_which_learns_whose_it_is(store):
    older = Transactions(store, "t")
    under_way = older.begin()
    under_way.append("a", rows(b"zombie"))
    newer = Transactions(Store.open(store.path), "t")
    for call in (under_way.commit, older.begin):
        with pytest.raises(PublisherFencedError, match="was replaced by run") as caught:
            call()
        error = pickle.loads(pickle.dumps(caught.value))
        assert (error.host, error.process) == (socket.gethostname(), os.getpid())
        assert f"(process {os.getpid()} on {socket.gethostname()}, since 20" in str(error)
        assert error.since > 1_700_000_000_000
    transact(newer, b"x")
    assert content(store, "a") == [b"x"]


def test_every_older_instance_is_fenced_however_many_there_were(store):
    instances = [Transactions(store, "t") for _ in range(20)]
    for older in instances[:-1]:
        with pytest.raises(PublisherFencedError):
            older.begin()
    transact(instances[-1], b"x")


def test_other_ids_do_not_mind(store):
    one, two = Transactions(store, "one"), Transactions(store, "two")
    with one.begin() as first, two.begin() as second:
        first.append("a", rows(b"1"))
        second.append("a", rows(b"2"))
    assert content(store, "a") == [b"1", b"2"]
    store.publishes.publish("one", 5, [])


@IN_A_FOLDER
def test_a_new_instance_finishes_what_the_one_before_it_has_committed(store, cannot_apply):
    with pytest.raises(PublishPendingError, match="No space"):
        transact(Transactions(store, "t"), b"x", g={A0: (None, 3)})
    assert content(store, "a") == []
    with pytest.raises(PublishPendingError, match="No space"):
        Transactions(store, "t")
    cannot_apply.undo()
    assert Transactions(Store.open(store.path), "t").last_number == 0
    assert (content(store, "a"), committed(store)) == ([b"x"], {A0: 3})


@IN_A_FOLDER
def test_a_commit_that_failed_can_be_asked_for_again(store, cannot_apply):
    transactions = Transactions(store, "t")
    transaction = transactions.begin()
    transaction.append("a", rows(b"x"))
    with pytest.raises(PublishPendingError, match="No space"):
        transaction.commit()
    with pytest.raises(TransactionStateError, match="is still open"):
        transactions.begin()
    with pytest.raises(TransactionStateError, match="is being committed"):
        transaction.append("a", rows(b"y"))
    with pytest.raises(TransactionStateError, match="is committed already"):
        transaction.abort()
    cannot_apply.undo()
    assert transaction.commit().replayed
    with pytest.raises(TransactionStateError, match="has ended"):
        transaction.commit()
    assert transact(transactions, b"y").number == 1
    assert content(store, "a") == [b"x", b"y"]


def test_an_append_that_was_refused_leaves_only_the_abort(store):
    transactions = Transactions(store, "t")
    for topic, kind in (("missing", UnknownTopicError), ("__consumer_offsets", InvalidTopicError)):
        with pytest.raises(kind), transactions.begin() as transaction:
            transaction.append(topic, rows(b"x"))
    transaction = transactions.begin()
    transaction.append("a", rows(b"x"))
    with pytest.raises(InvalidRecordError):
        transaction.append("a", pa.record_batch({"nothing": [1]}))
    with pytest.raises(TransactionStateError, match="can only be aborted"):
        transaction.commit()
    transaction.abort()
    assert content(store, "a") == []


def test_a_transactional_id_and_a_forked_child(store):
    with pytest.raises(InvalidConfigError):
        Transactions(store, "")
    transactions = Transactions(store, "t")
    transaction = transactions.begin()
    context = multiprocessing.get_context("fork")
    answers = context.Queue()

    def child():
        for call in (transactions.begin, transaction.commit):
            try:
                call()
            except TransactionStateError as error:
                answers.put(str(error))

    process = context.Process(target=child, daemon=True)
    process.start()
    assert all("this process is its child" in answers.get(timeout=120) for _ in range(2))
    process.join()
    transaction.commit()


# ---- committed offsets that are moved by hand


@IN_A_FOLDER
def test_a_decided_position_counts_before_it_is_applied(store, cannot_apply):
    store.groups.log.commit("g", {A0: 1, A1: 1})
    with pytest.raises(PublishPendingError, match="No space"):
        transact(Transactions(store, "t"), b"x", g={A0: (1, 3)})
    other = Store.open(store.path)
    assert committed(other) == {A0: 3, A1: 1}
    late = Transactions(other, "another id").begin()
    late.send_offsets("g", {A0: (1, 3)})
    with pytest.raises(OffsetConflictError, match="offset 3 is committed"):
        late.commit()
    with pytest.raises(OSError, match="No space"):
        other.groups.log.commit("g", {A0: 4})
    assert committed(other) == {A0: 3, A1: 1}
    cannot_apply.undo()
    other.groups.log.commit("g", {A0: 4})
    assert committed(store) == {A0: 4, A1: 1}
    help_apply(store.decisions)
    assert committed(Store.open(store.path)) == {A0: 4, A1: 1}
    assert content(store, "a") == [b"x"]


@IN_A_FOLDER
def test_a_commit_by_hand_comes_after_what_was_decided_before_it(store, cannot_apply):
    """Also the commit of another group that lies in the same partition."""
    names = [f"g{number}" for number in range(20)]
    with pytest.raises(PublishPendingError, match="No space"):
        transact(Transactions(store, "t"), g0={A0: (None, 100)})
    cannot_apply.undo()
    for name in names:
        store.groups.log.commit(name, {A0: 150})
    help_apply(Store.open(store.path).decisions)
    assert {name: committed(Store.open(store.path), name) for name in names} == {name: {A0: 150} for name in names}


@IN_A_FOLDER
def test_a_reader_that_may_not_write_sees_what_is_decided(store, cannot_apply, monkeypatch):
    with pytest.raises(PublishPendingError, match="No space"):
        transact(Transactions(store, "t"), g={A0: (None, 3)})
    cannot_apply.undo()
    reader = Store.open(store.path)
    monkeypatch.setattr(LogManager, "writable", False)
    end = sum(reader.latest_offset("__consumer_offsets", partition) for partition in range(2))
    assert (committed(reader), end) == ({A0: 3}, 0)


def test_one_of_many_gets_each_range_and_positions_never_go_back(store):
    """Members that all believe the partition to be theirs, and a member that commits by hand what it has read."""
    target, taken, seen = 60, [], []

    def member(name):
        mine = Store.open(store.path)
        transactions, offsets = Transactions(mine, name), mine.groups.log
        while True:
            start = offsets.fetch("g").get(A0)
            begin = 0 if start is None else start.offset
            seen.append(begin)
            if begin >= target:
                return
            try:
                with transactions.begin() as transaction:
                    transaction.append("b", rows(b"%d" % begin))
                    transaction.send_offsets("g", {A0: (None if start is None else begin, begin + 1)})
                taken.append(begin)
            except OffsetConflictError:
                continue

    threads = [threading.Thread(target=member, args=(f"member {number}",)) for number in range(3)]
    run_at_once(threads)
    assert sorted(taken) == list(range(target))
    assert content(store, "b") == sorted(b"%d" % number for number in range(target))
    assert committed(store) == {A0: target}


@IN_A_FOLDER
def test_no_commit_comes_between_reading_the_committed_offset_and_the_decision(store):
    store.groups.log.commit("g", {A0: 100})
    transaction = Transactions(store, "t").begin()
    transaction.send_offsets("g", {A0: (100, 120)})
    by_hand = threading.Thread(target=lambda: Store.open(store.path).groups.log.commit("g", {A0: 150}))

    def meanwhile(change):
        if change.kind == "write" and "/data/__pylog_publish" in change.path and not by_hand.ident:
            by_hand.start()
            by_hand.join(0.5)

    with observed(meanwhile):
        transaction.commit()
    by_hand.join()
    # It came after the decision, or the decision would have been refused.
    assert committed(Store.open(store.path)) == {A0: 150}
