"""Transactions of Kafka's clients: what readers see of them, which producers are fenced, and what a kill leaves."""

import contextlib
import itertools
import os
import signal
import threading
import time

import pytest
from server_requests import LATEST, batch, list_offset, produce

from pyspark_log import Store
from pyspark_log.kafka import messages as m
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.server.network import Loop, Workers
from pyspark_log.server.served.folder import FolderLogs
from pyspark_log.server.served.servers import OnlyServer
from pyspark_log.server.transactions import Transactions
from pyspark_log.storage.transactions import TransactionLog, TransactionState
from pyspark_log.types import TopicPartition
from tests import requests as r
from tests.server_tools import Peer, Server, served
from tests.store_tools import values
from tests.waiting import wait_until

AGAIN = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS)


class Producer:
    """A transactional producer, as one of Kafka's clients.

    Attributes:
        id, epoch: of it.
    """

    def __init__(self, peer, name="t", timeout=60_000, known=(-1, -1)):
        """Begins: earlier producers of its name are fenced."""
        self.peer, self.name, self.sequences = peer, name, {}
        request = m.InitProducerIdRequest(name, timeout, *known)
        answer = self.ask(request, 5, lambda one: one.error_code)
        assert answer.error_code == ErrorCode.NONE
        self.id, self.epoch = answer.producer_id, answer.producer_epoch

    def ask(self, request, version, error):
        """The answer, once it is not that the client is to ask again."""

        def answered():
            answer = self.peer.ask(request, version)
            return None if error(answer) in AGAIN else answer

        return wait_until(answered, f"{request} is not to be asked again")

    def add(self, topic, *numbers):
        """Adds partitions to the transaction; the errors."""

        def errors(answer):
            [of_topic] = answer.results_by_topic_v3_and_below
            return [one.partition_error_code for one in of_topic.results_by_partition]

        request = r.add_partitions(self.name, (self.id, self.epoch), {topic: numbers})
        return set(errors(self.ask(request, 3, lambda answer: errors(answer)[0])))

    def produce(self, topic, value, partition=0, version=12):
        """Appends a record in the transaction; the answer of its partition."""
        place = topic, partition, self.epoch
        data = batch(
            value, transactional=True, producer_id=self.id, producer_epoch=self.epoch,
            base_sequence=self.sequences.get(place, 0),
        )  # fmt: skip
        request = r.produce(topic, (partition, data), transactional_id=self.name)
        [[answer]] = [one.partition_responses for one in self.peer.ask(request, version).responses]
        if not answer.error_code:
            self.sequences[place] = self.sequences.get(place, 0) + 1
        return answer

    def commit_offset(self, group, at, offset):
        """Commits an offset in the transaction; the error."""
        request = r.commit_in_transaction(self.name, group, (self.id, self.epoch), at.topic, offset, at.partition)
        return self.ask(request, 5, _offset_error).topics[0].partitions[0].error_code

    def end(self, *, commit, version=5):
        """Ends the transaction, with all its markers; the error."""
        error = self.ask_to_end(commit=commit, version=version)
        if not error:
            self.await_markers()
        return error

    def await_markers(self):
        """Returns when the last ones are written, which may be after the answer."""
        request = m.DescribeTransactionsRequest([self.name])
        while self.peer.ask(request, 0).transaction_states[0].transaction_state.startswith("Prepare"):
            time.sleep(0.01)

    def ask_to_end(self, *, commit, version):
        """Ends the transaction; the error."""
        answer = self.ask(m.EndTxnRequest(self.name, self.id, self.epoch, commit), version, lambda one: one.error_code)
        if version >= 5 and not answer.error_code:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
        return answer.error_code


def committed_values(store, topic, partition=0):
    return values(store, partition, topic, isolation_level="read_committed")


def _offset_error(answer):
    return answer.topics[0].partitions[0].error_code


def test_clients_learn_that_both_versions_of_the_protocol_are_served(peer):
    answers = [peer.ask(m.ApiVersionsRequest("tests", "1"), version) for version in (2, 3, 4)]
    final = [[tuple(one) for one in answer.finalized_features] for answer in answers]
    assert final == [[], [("transaction.version", 2, 2)], [("transaction.version", 2, 2)]]
    # Before version 4 the lowest level of a feature cannot be 0.
    supported = [[tuple(one) for one in answer.supported_features] for answer in answers]
    assert supported == [[], [], [("transaction.version", 0, 2)]]


@pytest.mark.parametrize("version", [9, 12])
@pytest.mark.parametrize("commit", [True, False])
def test_records_and_offsets_count_when_they_are_committed(peer, store, topic, version, commit):
    producer = Producer(peer, f"of {topic}")
    if version < 12:
        assert producer.add(topic, 0) == {ErrorCode.NONE}
    assert producer.produce(topic, b"a", version=version).error_code == ErrorCode.NONE
    at = TopicPartition(topic, 0)
    assert producer.commit_offset("g", at, 1) == ErrorCode.NONE
    assert list_offset(peer, topic, LATEST, isolation_level=1).offset == 0
    assert values(store, 0, topic) == [b"a"]
    assert not committed_values(store, topic)
    assert at not in store.groups["g"].committed()
    assert producer.end(commit=commit, version=3 if version < 12 else 5) == ErrorCode.NONE
    assert list_offset(peer, topic, LATEST, isolation_level=1).offset == 2
    assert committed_values(store, topic) == ([b"a"] if commit else [])
    assert (at in store.groups["g"].committed()) == commit
    assert producer.epoch == (0 if version < 12 else 1)


def test_a_producer_is_fenced_by_the_next_one_of_its_name(peer, store, topic):
    first = Producer(peer, "fenced")
    assert first.produce(topic, b"lost").error_code == ErrorCode.NONE
    second = Producer(peer, "fenced")
    assert (second.id, second.epoch) == (first.id, 2)
    assert first.produce(topic, b"late").error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert first.end(commit=True) == ErrorCode.PRODUCER_FENCED
    assert second.produce(topic, b"new").error_code == ErrorCode.NONE
    assert second.end(commit=True) == ErrorCode.NONE
    assert committed_values(store, topic) == [b"new"]


def test_a_transaction_that_takes_too_long_is_aborted(peer, store, topic):
    producer = Producer(peer, "slow", timeout=300)
    assert producer.produce(topic, b"late").error_code == ErrorCode.NONE
    wait_until(lambda: list_offset(peer, topic, LATEST, isolation_level=1).offset, "it is aborted")
    assert not committed_values(store, topic)
    assert producer.end(commit=True, version=3) == ErrorCode.PRODUCER_FENCED
    # There its epoch is what it would be after an end that was not answered.
    assert producer.end(commit=True) == ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("timeout", [0, -1, 900_001])
def test_a_timeout_that_no_transaction_may_have(peer, timeout):
    answer = peer.ask(m.InitProducerIdRequest("t", timeout), 4)
    assert answer.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_what_is_not_in_the_transaction_is_refused(peer, topic):
    producer = Producer(peer, "strict")
    answer = producer.produce(topic, b"a", version=9)
    assert (answer.error_code, "strict" in answer.error_message) == (ErrorCode.INVALID_TXN_STATE, True)
    assert producer.produce(topic, b"a", version=11).error_code == ErrorCode.TRANSACTION_ABORTABLE
    assert producer.add(topic, 0, 7) == {ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    data = batch(b"a", transactional=True, producer_id=producer.id, producer_epoch=0, base_sequence=0)
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert produce(peer, topic, data).error_code == refused
    assert list_offset(peer, topic, LATEST).offset == 0


@pytest.fixture
def coordinator(tmp_path):
    """A coordinator in this process, and a function that runs its loop until a wait has ended; what has come of it."""
    with Store.create(tmp_path / "store") as store:
        loop = Loop()
        workers = Workers(loop, 1)

        def done(wait):
            wait.then(loop.stop)
            loop.run()
            return wait.value

        yield (
            Transactions(
                loop, workers, FolderLogs(store, workers, OnlyServer(1)), iter(range(99)).__next__, sync=False
            ),
            done,
            loop,
            workers,
            store,
        )
        workers.close()
        loop.close()


def test_a_transaction_ends_after_what_is_being_appended(coordinator):
    transactions, done, loop, workers, _ = coordinator
    begun, at = done(transactions.init_producer("t", 900_000, (-1, -1))), TopicPartition("x", 0)
    producer = "t", begun.producer_id, begun.epoch
    admitted = done(loop.start(transactions.admit(*producer, {at}, adds=True)))
    assert admitted == {at: ErrorCode.NONE}
    end = transactions.end(*producer, commit=True, version=2)
    ended = []
    end.then(lambda: ended.append(1))
    # What it would have written in another thread would be written by then.
    done(workers.run(int))
    assert not ended
    assert transactions.metadata["t"].state is TransactionState.ONGOING
    # Nothing more is appended meanwhile.
    refused = done(loop.start(transactions.admit(*producer, {at}, adds=False)))
    assert refused == {at: ErrorCode.CONCURRENT_TRANSACTIONS}
    transactions.release("t", 0)
    transactions.release("t", 0)
    assert done(end).error == ErrorCode.NONE
    assert transactions.metadata["t"].state is TransactionState.COMPLETE_COMMIT


@pytest.mark.parametrize("adds", [True, False])
def test_a_partition_in_the_transaction_stays_writable_while_others_join(coordinator, adds):
    transactions, done, loop, workers, _ = coordinator
    begun = done(transactions.init_producer("t", 900_000, (-1, -1)))
    at, other = TopicPartition("x", 0), TopicPartition("x", 1)
    producer = "t", begun.producer_id, begun.epoch
    assert not done(transactions.add(*producer, {at}, 0))
    may_write = threading.Event()
    workers.run(may_write.wait)  # The only thread that writes.
    joins = transactions.add(*producer, {other}, 0)
    admits = loop.start(transactions.admit(*producer, {at, other}, adds=adds))
    # The other one is not in it yet.
    assert admits.value == {at: ErrorCode.NONE, other: ErrorCode.CONCURRENT_TRANSACTIONS}
    # It ends after that append, and when the other one is in it.
    assert transactions.end(*producer, commit=True, version=2).value.error == ErrorCode.CONCURRENT_TRANSACTIONS
    may_write.set()
    assert not done(joins)
    end = transactions.end(*producer, commit=True, version=2)
    assert done(loop.start(transactions.admit(*producer, {at}, adds=adds))) == {at: ErrorCode.CONCURRENT_TRANSACTIONS}
    for _ in range(2):
        transactions.release("t", 0)
    assert not done(end).error


def test_an_id_that_nothing_uses_is_forgotten(coordinator, monkeypatch):
    transactions, done, _, workers, store = coordinator
    for name in ("idle", "open"):
        assert not done(transactions.init_producer(name, 900_000, (-1, -1))).error
    partitions = {TopicPartition("x", 0)}
    assert not done(transactions.add("open", transactions.metadata["open"].producer_id, 0, partitions, 0))
    week = 7 * 24 * 60 * 60 * 1000
    now = store.logs.clock()
    for later, left in ((week - 60_000, {"idle", "open"}), (week + 60_000, {"open"})):
        monkeypatch.setattr(store.logs, "clock", lambda time=now + later: time)
        transactions.forget_idle()
        # After what that has begun.
        done(workers.run(int))
        assert set(TransactionLog(store.logs).load()) == left


# ---- kills


class ServerToKill(Server):
    """A server that is killed before a change to files, counted from `count` on."""

    program = ("-m", "tests.server_to_kill")

    def count(self):
        os.kill(self.process.pid, signal.SIGUSR1)


def seen(path):
    """What readers of committed records see of a store, without a server: values by partition, and the offset."""
    with Store.open(path) as store:
        found = {}
        for topic, partition in (("x", 0), ("x", 1), ("y", 0)):
            found[topic, partition] = committed_values(store, topic, partition)
            assert store.latest_offset(topic, partition, isolation_level="read_committed") == store.latest_offset(
                topic, partition
            )
        offset = store.groups["g"].committed().get(TopicPartition("x", 0))
        return found, None if offset is None else offset.offset


def killed_while_it_ends(folder, number, version):
    """A transaction whose server is killed before its change of that number while it commits.

    A producer that begins after that finds it whole or not at all; whether it is whole, and the server was not killed.
    """
    os.environ["STOP_AT"] = str(number)
    path = folder / f"store{number}"
    with Store.create(path, {"offsets.topic.num.partitions": "1"}) as store:
        store.create_topic("x", 2)
        store.create_topic("y", 1)
    server = ServerToKill(path, folder).start()
    try:
        with Peer(server) as peer:
            producer = Producer(peer)
            for topic, partition in (("x", 0), ("x", 1), ("y", 0)):
                assert not producer.produce(topic, b"first", partition).error_code
            assert not producer.commit_offset("g", TopicPartition("x", 0), 1)
            assert not producer.end(commit=True)
            for topic, partition in (("x", 0), ("x", 1), ("y", 0)):
                assert not producer.produce(topic, b"second", partition).error_code
            assert not producer.commit_offset("g", TopicPartition("x", 0), 2)
            server.count()
            answered, survives = None, False
            with contextlib.suppress(ConnectionError):
                answered = producer.ask_to_end(commit=True, version=version)
                producer.await_markers()
                survives = True
            assert answered in (None, ErrorCode.NONE)
    finally:
        server.kill()
    with served(path, folder) as again, Peer(again) as peer:
        later = Producer(peer)
        assert not later.produce("y", b"third").error_code
        assert not later.end(commit=True)
    found, offset = seen(path)
    is_whole = found["x", 0] == [b"first", b"second"]
    assert is_whole or answered is None
    both = [b"first", b"second"] if is_whole else [b"first"]
    assert (found, offset) == ({("x", 0): both, ("x", 1): both, ("y", 0): [*both, b"third"]}, 2 if is_whole else 1)
    return is_whole, survives


@pytest.mark.slow
@pytest.mark.parametrize("version", [3, 5])
def test_a_kill_while_it_commits(tmp_path, version):
    outcomes = []
    for number in itertools.count():
        is_whole, survives = killed_while_it_ends(tmp_path, number, version)
        outcomes.append(is_whole)
        if survives:
            break
    # The decision, four markers and that they are written: two changes each at least.
    assert len(outcomes) > 12
    # It is nothing up to some change, and all from then on.
    assert outcomes == sorted(outcomes)
    assert not outcomes[0]
