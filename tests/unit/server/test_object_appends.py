"""Appends of clients over an object store: collected, decided together, and answered each for itself."""

import contextlib
import threading
from types import SimpleNamespace

import pytest
from record_tools import Record, build

from pyspark_log import Store, TopicPartition
from pyspark_log.errors import (
    CorruptRecordError,
    InvalidRecordError,
    ObjectStoreError,
    OutOfOrderSequenceError,
    UnknownTopicError,
)
from pyspark_log.server.network import Loop, Workers
from pyspark_log.server.served.logs import Batch, Refused, Stored
from pyspark_log.server.served.objects import ObjectLogs, collector
from pyspark_log.storage.objects.observer import set_observer
from tests.store_tools import values

AT, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
CONFIGS = {"retention.ms": "-1"}


@pytest.fixture
def store(memory_url):
    store = Store.create(memory_url)
    store.create_topic("t", 2, CONFIGS)
    return store


@contextlib.contextmanager
def serving(store, linger=0.0):
    """The logs of a store; `ask`: appends requests that come at once, and gives their answers."""
    loop = Loop()
    workers = Workers(loop, 2)
    own = Store.open(store.path)
    logs = ObjectLogs(own, workers, linger, None)

    def ask(*requests):
        waits = [loop.start(logs.append(request, sync=True, on_order=list)) for request in requests]
        left = [len(waits)]

        def ended():
            left[0] -= 1
            if not left[0]:
                loop.stop()

        for wait in waits:
            wait.then(ended)
        loop.run()
        return [wait.value for wait in waits]

    try:
        with logs.held(100):
            yield SimpleNamespace(logs=logs, ask=ask, store=own, loop=loop)
    finally:
        logs.close()
        workers.close()
        loop.close()


def batch(value=b"v", at=AT, **fields):
    return Batch(at, build([Record(value=value, timestamp=5)], **fields))


def numbered(sequence, value=b"v", at=AT):
    return batch(value, at, producer_id=7, producer_epoch=0, base_sequence=sequence)


@pytest.fixture
def puts():
    """The keys of objects that are written from now on."""
    made = []
    set_observer(lambda request: None if request.is_done or request.kind == "get" else made.append(request.key))
    yield made
    set_observer(None)


def test_what_comes_at_once_is_one_request(store, puts, monkeypatch):
    requests = [batch(b"a"), batch(b"b", OTHER)], [batch(b"c")], [batch(b"d")]
    monkeypatch.setattr(collector, "_ROUND_BYTES", 4 * len(batch().records))
    with serving(store, linger=3600) as served:
        answered = served.ask(*requests)
        assert answered == [
            [Stored(0, 1, 0, -1, False), Stored(0, 1, 0, -1, False)], [Stored(1, 2, 0, -1, False)],
            [Stored(2, 3, 0, -1, False)],
        ]  # fmt: skip
        # Clients of this server see it at once.
        assert served.logs.topic("t").view(0, may_wait=False).next_offset == 3
    assert [key.split("/")[0] for key in puts] == ["log"]
    assert values(store) == [b"a", b"c", b"d"]
    assert values(store, 1) == [b"b"]


def test_each_batch_is_answered_for_itself(store):
    damaged = Batch(AT, batch().records[:-1] + b"?")
    with serving(store) as served:
        [answers] = served.ask(
            [batch(), batch(at=TopicPartition("t", 2)), damaged, batch(at=TopicPartition("u", 0)), batch(b"w")]
        )
    kinds = [type(one.error) if isinstance(one, Refused) else one.base_offset for one in answers]
    assert kinds == [0, UnknownTopicError, CorruptRecordError, UnknownTopicError, 1]


def test_a_topic_of_its_own_is_known_at_once(store):
    with serving(store) as served:
        # As the handler of CreateTopics does, in another thread.
        thread = threading.Thread(target=served.store.create_topic, args=("u", 1, CONFIGS))
        thread.start()
        thread.join()
        [[answer]] = served.ask([batch(at=TopicPartition("u", 0))])
    assert answer.base_offset == 0


def test_a_retry_at_another_server_is_stored_once(store):
    with serving(store) as first, serving(store) as second:
        assert first.ask([numbered(0)], [numbered(1)]) == [[Stored(0, 1, 0, -1, False)], [Stored(1, 2, 0, -1, False)]]
        # The second server has not heard of that: its decision is refused by the log, and repeated.
        assert second.ask([numbered(1)]) == [[Stored(1, 2, 0, -1, True)]]
        # That another one is faster has it decide less often.
        assert (first.logs._collector._pace, second.logs._collector._pace) == (1.0, 1.25)
        [[gap]] = second.ask([numbered(7)])
        assert isinstance(gap.error, OutOfOrderSequenceError)
        assert second.ask([numbered(2, b"w")]) == [[Stored(2, 3, 0, -1, False)]]
        assert first.ask([numbered(2, b"w")]) == [[Stored(2, 3, 0, -1, True)]]
        [entry] = first.logs.producers(AT)
        assert (entry.producer_id, entry.epoch, entry.last_sequence) == (7, 0, 2)
    assert values(store) == [b"v", b"v", b"w"]


def test_rules_of_the_topic(store):
    store.create_topic("c", 1, {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"})
    with serving(store) as served:
        [[refused]] = served.ask([batch(at=TopicPartition("c", 0))])
        keyed = Batch(TopicPartition("c", 0), build([Record(key=b"k", value=b"v", timestamp=5)]))
        [[stored]] = served.ask([keyed])
    assert isinstance(refused.error, InvalidRecordError)
    assert refused.log_start == 0
    assert stored.time > 5
    [row] = store.read("c", 0)
    assert row["timestamp"].cast("int64").to_pylist() == [stored.time * 1000]


@pytest.mark.parametrize("inline", [0, 1 << 20])
def test_large_rounds(store, puts, monkeypatch, inline):
    """What is too large for an entry is an object, with the records of a partition one after the other."""
    monkeypatch.setattr(collector, "MOST_INLINE", inline)
    monkeypatch.setattr(collector, "_ROUND_BYTES", 300)
    sent = [[batch(b"%d" % number, TopicPartition("t", number % 2))] for number in range(24)]
    with serving(store, linger=0.01) as served:
        answers = served.ask(*sent)
        assert [one.base_offset for [one] in answers] == [number // 2 for number in range(24)]
        view = served.logs.topic("t").view(1, may_wait=False)
        # What this server has written it need not read.
        assert view.is_near(0, committed=False)
    for partition in (0, 1):
        assert values(store, partition) == [b"%d" % number for number in range(partition, 24, 2)]
    assert any(key.startswith("data/") for key in puts) == (inline == 0)
    assert any(len(log.pieces) < 12 for log in store.log.follow().partitions.values())


def test_an_object_that_is_not_written_fails_its_batches_alone(store, monkeypatch):
    monkeypatch.setattr(collector, "MOST_INLINE", 300)
    monkeypatch.setattr(collector, "_ROUND_BYTES", 300)

    def fail(request):
        if request.kind == "put" and not request.is_done and request.key.startswith("data/"):
            raise ObjectStoreError("it is full", retriable=False)

    with serving(store) as served:
        set_observer(fail)
        try:
            large, small = served.ask([batch(b"x" * 900)], [batch(b"y")])
        finally:
            set_observer(None)
    assert isinstance(large[0].error, ObjectStoreError)
    assert small == [Stored(0, 1, 0, -1, False)]
    assert values(store) == [b"y"]


def test_more_than_may_wait_is_refused(store, monkeypatch):
    monkeypatch.setattr(collector, "_MOST_BYTES", 300)
    with serving(store) as served:
        [[large]], [[small]] = served.ask([batch(b"x" * 900)]), served.ask([batch(b"y")])
        assert isinstance(large.error, ObjectStoreError)
        assert small.base_offset == 0
        # What was decided waits no more.
        assert [served.ask([batch(b"%d" % number)])[0][0].base_offset for number in range(1, 9)] == list(range(1, 9))


def test_what_was_given_is_decided_before_the_end(store):
    with serving(store, linger=3600) as served:
        loop = served.loop
        wait = loop.start(served.logs.append([batch()], sync=True, on_order=list))
        served.logs.close()
        wait.then(loop.stop)
        loop.run()
        assert wait.value == [Stored(0, 1, 0, -1, False)]
