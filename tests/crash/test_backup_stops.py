"""A backup is stopped before each of its changes to files, or the power fails there.

The store is as it was, and can be used. The folder of the copy is no store, or it is all of it.
"""

import os
import random
import shutil

import pyarrow as pa
import pytest
from numbered import batch
from power import Trace
from sampling import SAMPLED, sample
from stops import StopBefore, count_changes, run_until

from pyspark_log.clients.transactions import Transactions
from pyspark_log.errors import StoreNotFoundError
from pyspark_log.storage.log.state import state_file
from pyspark_log.storage.maintenance.backup import back_up
from pyspark_log.storage.maintenance.janitor import clean
from pyspark_log.storage.store import Store
from tests.store_tools import faults

pytestmark = [pytest.mark.usefixtures("little_sizes"), *SAMPLED]
CONFIGS = {"segment.bytes": "400", "index.interval.bytes": "1", "retention.ms": "-1", "file.delete.delay.ms": "0"}
RECORDS = 12


def make(path):
    """Inactive segments, a numbered producer, and a publisher."""
    store = Store.create(path, {"offsets.topic.num.partitions": "1"})
    store.create_topic("t", 1, CONFIGS)
    for first in range(0, RECORDS, 3):
        append(store, first)
    store.create_topic("numbered", 1)
    store.append_batch("numbered", 0, batch(0, [b"1", b"2"], 7))
    publish(store)


def append(store, first):
    store.append("t", pa.record_batch({"value": [b"%d" % (first + row) + b"." * 60 for row in range(3)]}))


def publish(store):
    transactions = Transactions(store, "id")
    with transactions.begin() as transaction:
        transaction.append("numbered", pa.record_batch({"value": [b"published %d" % transactions.last_number]}))


def numbers(path):
    return [int(v.rstrip(b".")) for b in Store.open(path).read("t", 0) for v in b["value"].to_pylist()]


def check(path):
    """All records are there, and other processes can use the store."""
    assert faults(path) == []
    assert numbers(path) == list(range(RECORDS))
    store = Store.open(path)
    # The producer's last batch is known, and the publisher's last number.
    assert store.append_batch("numbered", 0, batch(0, [b"1", b"2"], 7)).base_offset == 0
    publish(store)
    values = [value for part in store.read("numbered", 0) for value in part["value"].to_pylist()]
    assert values[:2] == [b"1", b"2"]
    assert len(set(values)) == 4, "a number was published twice"
    append(store, RECORDS)
    assert numbers(path) == list(range(RECORDS + 3))
    assert faults(path) == []


def is_store(path):
    try:
        Store.open(path)
    except StoreNotFoundError:
        return False
    return True


def names(path):
    return sorted(os.path.join(folder, name) for folder, _, found in os.walk(path) for name in found)


def test_a_backup_that_is_stopped(memory_path):
    store, copy = memory_path / "store", memory_path / "copy"
    make(store)
    back_up(Store.open(store), memory_path / "first")
    before = names(store)
    count = count_changes(lambda: back_up(Store.open(store), memory_path / "second"))
    whole = 0
    for change, torn in sample([(change, torn) for change in range(count) for torn in (False, True)], 40):
        stop = StopBefore(change, torn)
        assert run_until(lambda: back_up(Store.open(store), copy), stop)
        try:
            if is_store(copy):
                whole += 1
                check(copy)
            assert faults(store) == []
            assert names(store) == before
        except Exception as error:
            raise AssertionError(f"stopped {'in' if torn else 'before'} change {change} ({stop.stopped_at})") from error
        shutil.rmtree(copy, ignore_errors=True)
    assert count >= 40
    assert whole <= 6, "it is a store long before it is whole"
    clean(Store.open(store))
    check(store)


def test_a_backup_in_which_the_power_goes(memory_path, monkeypatch):
    store, copy = memory_path / "store", memory_path / "copy"
    make(store)
    copy.mkdir()
    trace = Trace(copy)
    trace.record(lambda: back_up(Store.open(store), copy))
    trace.changes[:] = [change for change in trace.changes if change.path.startswith(str(copy))]
    monkeypatch.setattr(state_file, "this_boot", lambda: b"rebooted")
    whole = 0
    # The last changes make it a store.
    last = len(trace.changes)
    for count, disk in trace.disks(sorted({*sample(range(1, last + 1), 20), *range(last - 5, last + 1)})):
        for number, fate in enumerate((disk.nothing(), disk.everything(), disk.any_part(random.Random(count)))):
            path = memory_path / f"{count} {number}"
            disk.write(path, fate)
            if not is_store(path):
                assert count < last, "it has returned, and the power takes it away"
                continue
            whole += 1
            try:
                check(path)
            except Exception as error:
                raise AssertionError(f"power lost before change {count}, fate {number}") from error
    assert whole >= 3
