"""A cleaner on a shared file system loses its lock while it works, another one begins and is killed, the first
continues.

As in test_lost_locks.py: its lock is none, and from the moment when it is lost writes to the locked file are refused.
"""

import errno
import os

import pyarrow as pa
import pytest

from pyspark_log.storage.compaction import partition_cleaner
from pyspark_log.storage.compaction.cleaner import compact_partition
from pyspark_log.storage.fs import files
from pyspark_log.storage.fs.locking import locks
from pyspark_log.storage.log import lease
from pyspark_log.storage.store import Store
from pyspark_log.types import TopicPartition
from tests.stops import StopBefore, run_until
from tests.store_tools import faults

AT = TopicPartition("t", 0)
APPENDS = 8


@pytest.fixture(autouse=True)
def shared_file_system(monkeypatch):
    monkeypatch.setattr(lease, "is_shared", lambda folder: True)


def make_store(path):
    store = Store.create(path)
    store.create_topic("t", 1, {"cleanup.policy": "compact", "segment.bytes": "1000"})
    for append in range(APPENDS):
        numbers = range(3 * append, 3 * append + 3)
        rows = {"key": [b"%d" % (number % 5) for number in numbers], "value": [b"%050d" % number for number in numbers]}
        store.append("t", pa.record_batch(rows), partition=0)
    return store


def last_of_each_key(path):
    return {
        key: value
        for batch in Store.open(path).read("t", 0)
        for key, value in zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True)
    }


# The first changes of the other cleaner, up to a log of which nothing, a part, or all is written.
@pytest.mark.parametrize("changes", range(4, 14))
def test_a_cleaner_that_lost_its_lock_does_not_put_in_place_what_another_has_begun(changes, tmp_path, monkeypatch):
    store = make_store(tmp_path / "store")
    before, rewrite = last_of_each_key(store.path), partition_cleaner.rewrite
    cleaner_path = os.path.realpath(store.logs.reader("t", 0).place.cleaner_path)

    def refuse(change):
        if os.path.realpath(change.path) == cleaner_path and change.kind in ("write", "sync"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), change.path)

    def lost_meanwhile(*arguments):
        done = rewrite(*arguments)
        monkeypatch.undo()
        monkeypatch.setattr(lease, "is_shared", lambda folder: True)
        lock = locks.lock_for(cleaner_path)
        lock.release()
        run_until(lambda: compact_partition(Store.open(store.path).logs, AT), StopBefore(changes))
        lock.acquire()
        files.set_observer(refuse)
        return done

    monkeypatch.setattr(partition_cleaner, "rewrite", lost_meanwhile)
    try:
        assert compact_partition(store.logs, AT).problem
    finally:
        files.set_observer(None)
    assert last_of_each_key(store.path) == before
    assert compact_partition(Store.open(store.path).logs, AT).problem == ""
    assert last_of_each_key(store.path) == before
    assert faults(store.path) == []
