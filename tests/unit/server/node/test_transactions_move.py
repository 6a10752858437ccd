"""Transactions whose coordinator changes while a decision is being written."""

import pytest

from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.server.network import Loop, Workers
from pyspark_log.server.served.folder import FolderLogs
from pyspark_log.server.served.servers import OnlyServer
from pyspark_log.server.transactions import Transactions
from pyspark_log.storage.folder_store import FolderStore
from pyspark_log.storage.transactions import TransactionState
from pyspark_log.types import TopicPartition

AT = TopicPartition("t", 0)


class Moving:
    """A cluster of one: when it is armed, the partition of an id begins a new leader epoch while something is written.

    What is loaded then lacks what is being written, as not all replicas had it.
    """

    def __init__(self):
        self.transactions, self.is_armed, self.marked = None, False, []

    async def written(self, name):
        if self.is_armed:
            self.is_armed = False
            known = self.transactions.metadata[name]
            self.transactions.give_up([name])
            self.transactions.take_over({name: known})
        return ErrorCode.NONE

    async def mark(self, at, _producer_id, _epoch, marker):
        self.marked.append((at, marker.commit))
        return True


@pytest.fixture
def transactions(tmp_path):
    with FolderStore.open_or_create(tmp_path / "store") as store:
        store.create_topic("t", 1)
        loop = Loop()
        workers = Workers(loop, 1)
        cluster, ids = Moving(), iter(range(1000, 2000))
        logs = FolderLogs(store, workers, OnlyServer(1))
        made = cluster.transactions = Transactions(loop, workers, logs, ids.__next__, sync=False, cluster=cluster)

        def run(wait):
            wait.then(loop.stop)
            loop.run()
            return wait.value

        yield made, cluster, run
        workers.close()


def test_no_commit_is_confirmed_that_the_new_epoch_may_not_know(transactions):
    made, cluster, run = transactions
    begun = run(made.init_producer("x", 60_000, (-1, -1)))
    assert run(made.add("x", begun.producer_id, begun.epoch, frozenset({AT}), 0)) == ErrorCode.NONE
    cluster.is_armed = True
    ended = run(made.end("x", begun.producer_id, begun.epoch, commit=True, version=0))
    assert ended.error == ErrorCode.NOT_COORDINATOR
    assert made.metadata["x"].state is TransactionState.ONGOING
    assert cluster.marked == []
    # The client asks again.
    assert run(made.end("x", begun.producer_id, begun.epoch, commit=True, version=0)).error == ErrorCode.NONE
    assert cluster.marked == [(AT, True)]
