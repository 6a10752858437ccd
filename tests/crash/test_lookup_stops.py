"""Look-ups by time are right after any stop and power loss, whatever was being written of inactive segments."""

import pyarrow as pa
from attacks import Attacked
from sampling import SAMPLED

from pyspark_log.storage.publish.pending import help_apply
from pyspark_log.storage.store import Store
from pyspark_log.types import OffsetAndTimestamp
from tests.store_tools import cut_log, publish, stage

pytestmark = SAMPLED

CONFIG = {"segment.bytes": "400", "index.interval.bytes": "0", "retention.ms": "-1", "file.delete.delay.ms": "0"}


def run(path):
    """Rolls, installs, a truncation after which the same offsets get later times, and deletions."""
    store = Store.create(path)
    store.create_topic("t", 1, CONFIG)
    append(store, [3, 1, 2, 9, 1, 1, 4])
    publish(store.decisions, "p", 0, stage(store, [row(time) for time in range(10, 16)]))
    cut_log(store, 5)
    append(store, range(20, 30))
    store.delete_records("t", 0, 4)
    append(store, [8, 7, 6, 50, 5])
    store.delete_records("t", 0, 16)
    append(store, [1, 2, 3, 4])
    store.clean()


def append(store, times):
    """A batch for each record, all of one size: three are a segment."""
    for time in times:
        store.append("t", row(time))


def row(time):
    return pa.record_batch({"value": [b"." * 50], "timestamp": pa.array([time], pa.int64())})


def check(store):
    """Every look-up gives what a read of everything gives."""
    there = [
        OffsetAndTimestamp(offset, time // 1000)
        for batch in store.read("t", 0)
        for offset, time in zip(
            batch["offset"].to_pylist(), batch["timestamp"].cast(pa.int64()).to_pylist(), strict=True
        )
    ]
    largest = max(there, key=lambda record: (record.timestamp, -record.offset), default=None)
    assert store.offset_of_max_timestamp("t", 0) == largest
    for time in {0, 52, *(record.timestamp + more for record in there for more in (0, 1))}:
        wanted = next((record for record in there if record.timestamp >= time), None)
        assert store.offset_for_timestamp("t", 0, time) == wanted, time


class TestLookups(Attacked):
    least, parts = 100, 1

    def run(self, path):
        run(path)

    def check(self, path):
        if has_topic(path):
            check(Store.open(path))
        self.check_left(path, 0, 0)

    def check_left(self, path, count, number):
        """Others roll over the same offsets. The first writer recovers the partition."""
        if has_topic(path):
            help_apply(Store.open(path).decisions)
            for time in range(40, 47):
                append(Store.open(path), [time])
                check(Store.open(path))


def has_topic(path):
    return (path / "store.json").exists() and Store.open(path).topics() == ["t"]
