"""Batches on their way into the partitions of a folder: what waits is woken for each as soon as it is there."""

from contextlib import ExitStack

import pytest
from record_tools import Record, build

from pyspark_log import Store
from pyspark_log.server.network import Workers
from pyspark_log.server.served import Batch, Stored
from pyspark_log.server.served.folder.logs import append
from pyspark_log.types import TopicPartition


@pytest.fixture
def store(tmp_path):
    with Store.create(tmp_path / "store") as store:
        store.create_topic("t", 2)
        yield store


@pytest.fixture
def said():
    return []


@pytest.fixture
def ask(store, said, loop):
    """Appends values, each to the partition of its number; the outcomes. What is said is noted, in order."""
    workers, logs = Workers(loop, 1), Store.open(store.path).logs

    def batch(partition, value):
        at = TopicPartition("t", partition)

        def on_written(_topic_id, number):
            said.append(("written", number))

        def on_stored(_topic_id, base_offset, as_left):
            log = None if as_left is None else as_left()
            at_hand = None if log is None else log.batches(base_offset, base_offset + 1, 1 << 20)
            said.append(("stored", partition, None if at_hand is None else bytes(at_hand.records)[-2:-1]))

        return Batch(at, build([Record(value=value, timestamp=5)]), on_written, on_stored)

    def ask(*values):
        said.clear()
        batches = [batch(partition, value) for partition, value in enumerate(values)]
        answer = loop.start(append(logs, workers, batches, sync=False))
        answer.then(loop.stop)
        loop.run()
        return answer.value

    yield ask
    workers.close()


def test_what_is_appended_at_once_is_at_hand(said, ask):
    """The first batches find no state that this process has left."""
    assert ask(b"a", b"b") == [Stored(0, 1, 0, -1, False)] * 2
    assert said == [("stored", 0, None), ("stored", 1, None)]
    ask(b"c", b"d")
    assert said == [("written", 0), ("stored", 0, b"c"), ("written", 1), ("stored", 1, b"d")]


def test_one_that_waits_for_a_lock_keeps_no_consumer_of_another_waiting(store, said, ask, loop):
    ask(b"a", b"b")
    with ExitStack() as held:
        held.enter_context(store.logs.writer("t", 1).hold())
        held.callback(said.append, "released")
        loop.call_soon(held.close)
        assert ask(b"c", b"d") == [Stored(1, 2, 0, -1, False)] * 2
    assert said == [("written", 0), ("stored", 0, b"c"), "released", ("stored", 1, None)]
