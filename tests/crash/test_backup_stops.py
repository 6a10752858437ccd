"""A backup is stopped before each of its changes to files, or the power fails there.

The store is as it was, and can be used. The folder of the copy is no store, or it is all of it.
"""

import os

import pyarrow as pa
import pytest
from attacks import Attacked
from counted import numbers, rows
from numbered import batch
from sampling import PARTS, SAMPLED

from pyspark_log.clients.transactions import Transactions
from pyspark_log.errors import StoreNotFoundError
from pyspark_log.storage.maintenance.backup import back_up
from pyspark_log.storage.maintenance.janitor import clean
from pyspark_log.storage.store import Store
from tests.store_tools import damages, faults

pytestmark = [pytest.mark.usefixtures("little_sizes"), *SAMPLED]
CONFIGS = {"segment.bytes": "400", "index.interval.bytes": "1", "retention.ms": "-1", "file.delete.delay.ms": "0"}
RECORDS = 12


def make(path):
    """Inactive segments, a numbered producer, and a publisher."""
    store = Store.create(path, {"offsets.topic.num.partitions": "1"})
    store.create_topic("t", 1, CONFIGS)
    for first in range(0, RECORDS, 3):
        store.append("t", rows(first, padding=60))
    store.create_topic("numbered", 1)
    store.append_batch("numbered", 0, batch(0, [b"1", b"2"], 7))
    publish(store)


def publish(store):
    transactions = Transactions(store, "id")
    with transactions.begin() as transaction:
        transaction.append("numbered", pa.record_batch({"value": [b"published %d" % transactions.last_number]}))


def check(path, find=faults):
    """All records are there, and other processes can use the store."""
    assert find(path) == []
    assert numbers(path) == list(range(RECORDS))
    store = Store.open(path)
    # The producer's last batch is known, and the publisher's last number.
    assert store.append_batch("numbered", 0, batch(0, [b"1", b"2"], 7)).base_offset == 0
    publish(store)
    values = [value for part in store.read("numbered", 0) for value in part["value"].to_pylist()]
    assert values[:2] == [b"1", b"2"]
    assert len(set(values)) == 4, "a number was published twice"
    store.append("t", rows(RECORDS, padding=60))
    assert numbers(path) == list(range(RECORDS + 3))
    assert find(path) == []


def is_store(path):
    try:
        Store.open(path)
    except StoreNotFoundError:
        return False
    return True


def names(path):
    return sorted(
        os.path.relpath(os.path.join(folder, name), path) for folder, _, found in os.walk(path) for name in found
    )


class TestBackup(Attacked):
    most_stops, most_losses, least = 40, 20, 40
    ends = 6  # the last changes make it a store

    def make(self, path):
        path.mkdir()
        make(path / "store")
        back_up(Store.open(path / "store"), path / "first")
        self.before = names(path)

    def run(self, path):
        back_up(Store.open(path / "store"), path / "copy")

    def check_whole(self, path):
        self.check(path)
        clean(Store.open(path / "store"))
        check(path / "store")

    def check(self, path):
        """The store is as it was; whether the copy is a store."""
        assert faults(path / "store") == []
        assert [name for name in names(path) if not name.startswith("copy/")] == self.before
        return self.check_copy(path / "copy", faults)

    def check_left(self, path, count, number):
        # The file of inactive segments is never synced, and can be torn.
        return self.check_copy(path / "copy", damages)

    def check_copy(self, copy, find):
        if is_store(copy):
            check(copy, find)
            return True
        return False

    def check_stops(self, found):
        assert sum(found) <= 6, "it is a store long before it is whole"

    def check_losses(self, found):
        assert sum(found) >= 3
        assert all(found[-2 - max(self.parts, PARTS) :]), "it has returned, and the power takes it away"
