"""Transactions that any of several servers decides: which time out, and what one that fails leaves."""

import contextlib
from types import SimpleNamespace

import pytest
from record_tools import Record, build

from pyspark_log import Store, TopicPartition
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.server.network import Loop, Workers
from pyspark_log.server.served.logs import Batch, Stored
from pyspark_log.server.served.objects import ObjectLogs
from pyspark_log.server.state.producer_ids import ProducerIds
from pyspark_log.server.transactions import DecidedTransactions
from pyspark_log.storage.groups import OffsetAndMetadata
from pyspark_log.storage.groups.changes import GroupChange
from pyspark_log.storage.transactions import TransactionState

AT, SECOND = TopicPartition("t", 0), 1000


@pytest.fixture
def store(memory_url):
    store = Store.create(memory_url)
    store.create_topic("t", 2, {"retention.ms": "-1"})
    return store


class Served:
    """The transactions of a server, whose clock a test sets; `ask`: waits for an answer."""

    def __init__(self, store, loop, workers):
        self.now, self.loop = 0.0, loop
        self.logs = ObjectLogs(Store.open(store.path), workers, 3600, None)
        self.logs.clock = lambda: int(self.now * SECOND)
        clock = SimpleNamespace(time=lambda: self.now, call_later=lambda *_: None, start=loop.start)
        self.transactions = DecidedTransactions(clock, self.logs, self.logs.transactions, ProducerIds().next)

    def ask(self, wait):
        wait.then(self.loop.stop)
        self.loop.run()
        return wait.value

    def check(self):
        """What it does each second, and waits until that is decided."""
        self.transactions._check()
        self.ask(self.logs.transactions.change("other", lambda _: None))


@pytest.fixture
def served(store):
    loop = Loop()
    workers = Workers(loop, 1)
    one = Served(store, loop, workers)
    with contextlib.closing(one.logs), one.logs.held(100):
        yield one
    workers.close()
    loop.close()


def begun(served):
    """The id and epoch of a producer, whose transaction is open."""
    error, producer_id, epoch = served.ask(served.transactions.init_producer("tx", 10 * SECOND, (-1, -1)))
    assert error == ErrorCode.NONE
    assert served.ask(served.transactions.add("tx", producer_id, epoch, frozenset(), 0)) == ErrorCode.NONE
    return producer_id, epoch


def test_a_group_starts_over_in_a_transaction(served):
    """With an offset below 0, which must not fail what others want in the same decision."""
    groups = served.logs.groups
    served.logs.servers.register(("host", 9092))
    groups.take_over()
    assert groups.write([GroupChange("g", {AT: OffsetAndMetadata(5, -1, "", 1)})]) == [None]
    producer = begun(served)
    groups.commit_in_transaction("g", {AT: OffsetAndMetadata(-2, -1, "", 1)}, *producer)
    assert list(groups.fetch("g")) == [AT]
    assert served.ask(served.transactions.end("tx", *producer, commit=True, version=0)).error == ErrorCode.NONE
    assert groups.fetch("g") == {}


def test_a_change_that_cannot_be_made_fails_alone(served):
    def fail(_):
        raise ValueError("it makes no sense")

    async def both():
        stored = served.loop.start(served.logs.append([batch], sync=True, on_order=list))
        # It ends the round that the batch has begun.
        with pytest.raises(ValueError, match="it makes no sense"):
            await served.logs.transactions.change("tx", fail)
        return await stored

    batch = Batch(AT, build([Record(value=b"v", timestamp=5)]))
    assert served.ask(served.loop.start(both())) == [Stored(0, 1, 0, -1, False)]


def test_the_time_of_each_transaction_counts_alone(served):
    """A producer of the first version of the protocol has one epoch for all its transactions."""
    transactions = served.transactions
    _, producer_id, epoch = served.ask(transactions.init_producer("tx", 10 * SECOND, (-1, -1)))
    for _ in range(4):
        assert served.ask(transactions.add("tx", producer_id, epoch, frozenset(), 0)) == ErrorCode.NONE
        # At each look one is open, but none for long.
        served.now += 4
        served.check()
        ended = served.ask(transactions.end("tx", producer_id, epoch, commit=True, version=0))
        assert ended == (ErrorCode.NONE, producer_id, epoch)
    assert served.ask(transactions.add("tx", producer_id, epoch, frozenset(), 0)) == ErrorCode.NONE
    served.check()
    served.now += 11
    served.check()
    known = served.logs.transactions.of("tx")
    assert (known.state, known.epoch) == (TransactionState.COMPLETE_ABORT, epoch + 1)
