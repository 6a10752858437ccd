"""A program that reads a topic, and writes what it has read to another one, in transactions."""

import pyarrow as pa

from pyspark_log.clients.transactions import Transactions
from pyspark_log.storage.groups.offsets import OffsetsLog
from pyspark_log.storage.store import Store
from pyspark_log.types import TopicPartition

RECORDS, STEP = 12, 4
GROUP, SOURCE = "copy", TopicPartition("source", 0)


def make_store(path):
    """A store with the topic to read, and an empty one to write to."""
    store = Store.create(path, {"offsets.topic.num.partitions": "1"})
    store.create_topic("source", 1)
    store.create_topic("sink", 2, {"segment.bytes": "600"})
    values = [b"%d" % number for number in range(RECORDS)]
    store.append("source", pa.record_batch({"value": values}), sync=True)
    return store


class Worker:
    """Copies the source to both partitions of the sink, some records a transaction.

    Attributes:
        transaction: the last one.
    """

    def __init__(self, path, transactional_id, after=lambda _offset: None):
        """`after` is called after each commit, with the committed offset."""
        self.store = Store.open(path)
        self.offsets = OffsetsLog(self.store)
        self.transaction = None
        self._id = transactional_id
        self._after = after

    def run(self):
        transactions = Transactions(self.store, self._id)
        while True:
            committed = self.offsets.fetch(GROUP).get(SOURCE)
            start = None if committed is None else committed.offset
            begin = start or 0
            if begin == RECORDS:
                return
            end = begin + STEP
            self.transaction = transactions.begin()
            with self.transaction as transaction:
                for batch in self.store.read("source", 0, begin, end):
                    transaction.append("sink", copies(batch["value"].to_pylist()))
                transaction.send_offsets(GROUP, {SOURCE: (start, end)})
            self._after(end)


def copies(values):
    """Each value goes to both partitions."""
    return pa.record_batch(
        {
            "value": [value + b"." * 60 for value in values for _ in range(2)],
            "partition": pa.array([0, 1] * len(values), pa.int32()),
        }
    )


def committed_offset(path):
    """How far the group has come."""
    found = OffsetsLog(Store.open(path)).fetch(GROUP).get(SOURCE)
    return 0 if found is None else found.offset


def sink(path):
    """The numbers of the records in each partition of the sink, in order."""
    store = Store.open(path)
    return [
        [int(v.rstrip(b".")) for batch in store.read("sink", partition) for v in batch["value"].to_pylist()]
        for partition in range(2)
    ]
