"""A partition that transactions are written to, as producers and a coordinator do; and what must be seen of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
from producer_tools import NOW, end_transaction, ready

from pyspark_log import Store
from pyspark_log.types import EARLIEST, READ_COMMITTED

LEVEL = {"isolation_level": READ_COMMITTED}


class Log:
    """A partition that producers write transactions to, and what must be seen of it."""

    def __init__(self, folder):
        self.store = Store.create(folder)
        self.store.logs.clock.read = lambda: NOW  # a producer that is idle for long is forgotten
        self.store.create_topic("t", 1, {"segment.bytes": "900", "index.interval.bytes": "150", "retention.ms": "-1"})
        self.rows = {}  # offset -> value, of what is committed
        self.open = {}  # producer -> {offset: value}
        self.sequences = {}

    @property
    def end(self):
        return self.store.latest_offset("t", 0)

    @property
    def stable(self):
        return min((min(part) for part in self.open.values()), default=self.end)

    def plain(self, *values):
        end = self.end
        self.store.append("t", pa.record_batch({"value": list(values)}))
        self.rows |= dict(enumerate(values, end))

    def write(self, producer, *values, codec="none"):
        sequence, end = self.sequences.get(producer, 0), self.end
        data = ready(sequence, *values, producer=producer, transactional=True, codec=codec)
        self.store.append_batch("t", 0, data)
        self.sequences[producer] = sequence + len(values)
        self.open.setdefault(producer, {}).update(enumerate(values, end))

    def finish(self, producer, *, commit):
        end_transaction(self.store, commit, producer=producer)
        part = self.open.pop(producer, {})
        self.rows |= part if commit else {}

    def seen(self, start, end):
        return [(offset, self.rows[offset]) for offset in sorted(self.rows) if start <= offset < end]


def rows(store, start=EARLIEST, end=None, **more):
    found = []
    for part in store.read("t", 0, start, end, **LEVEL, **more):
        found += zip(part["offset"].to_pylist(), part["value"].to_pylist(), strict=True)
    return found


def as_brokers(log, folder):
    log.store.close()
    shutil.copytree(Path(log.store.path) / "data", folder)
    return Store.open(folder)
