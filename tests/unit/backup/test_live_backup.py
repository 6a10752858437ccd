"""Backups of a store in which several processes append, publish, commit, compact and delete all the time."""

import pyarrow as pa
import pytest

from pyspark_log.clients.transactions import Transactions
from pyspark_log.storage.compaction import compact
from pyspark_log.storage.groups.offsets import OffsetsLog
from pyspark_log.storage.maintenance.backup import back_up
from pyspark_log.storage.publish.recovery import recover
from pyspark_log.storage.store import Store
from pyspark_log.types import TopicPartition
from tests.processes import started
from tests.scratch import memory_folder
from tests.store_tools import faults, rows, values

BACKUPS = 4
CONFIGS = {"segment.bytes": "4000", "index.interval.bytes": "300", "retention.ms": "-1", "file.delete.delay.ms": "0"}


def until_told(connection, work):
    """Repeats `work` with 0, 1 ... until the block of `started` ends."""
    number = 0
    while not connection.poll():
        work(number)
        number += 1
        if number == 3:
            connection.send("it runs")


def both(number):
    """A record for each of two partitions."""
    return pa.record_batch({"value": [b"%d" % number + b"." * 100] * 2, "partition": pa.array([0, 1], pa.int32())})


def append(connection, path, topic):
    """Each number goes to partition 0, and then to partition 1."""
    store = Store.open(path)

    def work(number):
        for partition in (0, 1):
            store.append(topic, rows(b"%d" % number + b"." * 100), partition=partition)

    until_told(connection, work)


def publish(connection, path, topic):
    """Each number goes to both partitions at once, with the offset of a group."""
    store = Store.open(path)
    transactions = Transactions(store, topic)

    def work(number):
        with transactions.begin() as transaction:
            transaction.append(topic, both(number))
            transaction.send_offsets(topic, {TopicPartition(topic, 0): (number or None, number + 1)})

    until_told(connection, work)


def commit(connection, path):
    """A group that commits the end of what it sees."""
    store = Store.open(path)

    def work(_number):
        store.groups["reader"].commit({TopicPartition("plain", 1): store.latest_offset("plain", 1)})

    until_told(connection, work)


def tend(connection, path):
    """Compacts, retains, makes topics and deletes them."""
    store = Store.open(path)

    def work(number):
        keys = [{"key": b"%d" % (key % 7), "value": b"%d" % number + b"." * 100} for key in range(20)]
        store.topic("keys").append(keys, partition=0)
        list(compact(store.logs, "keys"))
        store.clean("short")
        store.append("short", rows(b"%d" % number + b"." * 300))
        store.create_topic("passing", 1)
        store.append("passing", rows(b"1"))
        store.delete_topic("passing")

    until_told(connection, work)


def numbers(store, topic, partition):
    return [int(value.rstrip(b".")) for value in values(store, partition, topic)]


def check(path):
    """The copy is the store at one moment; returns what is in it."""
    assert faults(path) == []
    copy = Store.open(path)
    recover(copy.decisions)  # What is decided and not applied yet.
    ends = []
    for topic in ("plain", "other"):
        first, second = numbers(copy, topic, 0), numbers(copy, topic, 1)
        assert first == list(range(len(first)))
        assert second == list(range(len(second)))
        assert len(first) - len(second) in (0, 1), "the partitions are of different moments"
        ends += [len(first), len(second)]
    for topic in ("one", "two"):
        committed = OffsetsLog(copy).fetch(topic)[TopicPartition(topic, 0)].offset
        copied = numbers(copy, topic, 0), numbers(copy, topic, 1)
        assert copied == (list(range(committed)), list(range(committed)))
        ends.append(committed)
    committed = OffsetsLog(copy).fetch("reader")[TopicPartition("plain", 1)].offset
    assert 0 < committed <= copy.latest_offset("plain", 1)
    keys = [key for batch in copy.read("keys", 0) for key in batch["key"].to_pylist()]
    assert set(keys) == {b"%d" % key for key in range(7)}
    return ends


def resume(path):
    """The publisher's next number is taken, and an append."""
    copy = Store.open(path)
    before = numbers(copy, "one", 0)
    with Transactions(copy, "one").begin() as transaction:
        transaction.append("one", both(len(before)))
        transaction.send_offsets("one", {TopicPartition("one", 0): (len(before), len(before) + 1)})
    copy.append("plain", rows(b"%d" % len(numbers(copy, "plain", 1))), partition=1)
    assert faults(path) == []


@pytest.mark.slow
def test_processes_keep_working_while_the_store_is_copied():
    with memory_folder() as folder:
        settings = {"log.dirs": f"data,{folder}/second", "offsets.topic.num.partitions": "3"}
        store = Store.create(folder / "store", settings)
        for topic in ("plain", "other", "one", "two"):
            store.create_topic(topic, 2, CONFIGS)
        store.create_topic("keys", 1, {**CONFIGS, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"})
        store.create_topic("short", 1, {**CONFIGS, "retention.bytes": "5000"})
        path, last, pauses = store.path, [0] * 6, []
        with (
            started(append, path, "plain"),
            started(append, path, "other"),
            started(publish, path, "one"),
            started(publish, path, "two"),
            started(commit, path),
            started(tend, path),
        ):
            for number in range(BACKUPS):
                done = back_up(store, folder / f"copy{number}")
                ends = check(done.path)
                assert all(before < now for before, now in zip(last, ends, strict=True)), "a process is not at work"
                last = ends
                pauses.append(round(done.pause, 3))
                resume(done.path)
        print("writers waited for", pauses, "s")
        assert check(path) > last
