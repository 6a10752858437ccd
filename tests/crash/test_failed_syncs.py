"""A sync fails, and what it was to make durable is in memory only, though later syncs succeed; then the power fails.

That is what Linux does: it calls the pages of a failed write clean. Everything that was acknowledged as durable is
there afterwards all the same, once, and no offset that readers have seen has another record.
"""

import contextlib
import errno
import os

import pyarrow as pa
import pytest
from attacks import naming, restarted
from power import Trace
from sampling import sample

from pyspark_log.errors import PylogError
from pyspark_log.storage.fs import files
from pyspark_log.storage.publish.pending import help_apply
from pyspark_log.storage.store import Store
from tests.scratch import memory_folder
from tests.store_tools import Stopped, observed, publish, stage

TOPIC = "t"


def rows(value):
    return pa.record_batch({"value": [value + b"." * 200]})


class Run:
    """Appends, synced and not, and publishes; after an error or a kill it continues as other processes would."""

    def __init__(self, trace):
        self.path, self.trace = str(trace.root), trace
        self.shown = {}  # offset -> value, of what readers saw
        self.durable = set()  # values that were acknowledged as durable
        self.after = []  # after each step: how many changes there were, and these two

    def make(self):
        Store.create(self.path).create_topic(TOPIC, 1, {"segment.bytes": "1500"})

    def run(self):
        for number in range(4):
            self.step(self.append, b"unsynced %d" % number, False)
            self.step(self.append, b"synced %d" % number, True)
            self.step(self.publish, number)
            self.step(self.append, b"between %d" % number, False)

    def step(self, action, *args):
        with contextlib.suppress(OSError, PylogError, Stopped):
            action(Store.open(self.path), *args)
        with contextlib.suppress(OSError, PylogError, Stopped):
            self.shown |= content(self.path)
        self.after.append((len(self.trace.changes), dict(self.shown), set(self.durable)))

    def append(self, store, value, sync):
        store.append(TOPIC, rows(value), sync=sync)
        if sync:
            self.durable.add(value)

    def publish(self, store, number):
        values = [b"published %d, %d" % (number, part) for part in range(2)]
        publish(store.decisions, "query", number, [part for value in values for part in stage(store, rows(value))])
        self.durable.update(values)


def content(path):
    return {
        row["offset"]: row["value"].rstrip(b".")
        for batch in Store.open(path).read(TOPIC, 0)
        for row in batch.select(["offset", "value"]).to_pylist()
    }


class FailingSync:
    """Notes the changes to files. The `number`-th sync that can fail does; `error` says how the program learns."""

    def __init__(self, trace, number, error):
        self.trace, self.number, self.error = trace, number, error
        self.syncs = 0  # how many there were that can fail
        self.at = 0  # after how many changes it failed

    def __call__(self, change):
        if change.kind == "sync" and change.path.endswith((".log", "-0")):
            self.syncs += 1
            if self.syncs == self.number + 1:
                self.at = len(self.trace.changes)
                self.trace.changes.append(files.Change("failed_sync", change.path))
                raise self.error
        self.trace.changes.append(change)


def run_with(folder, number, error):
    """A run in which a sync fails, and what has failed it; a negative number fails none."""
    trace = Trace(folder / "store")
    run = Run(trace)
    trace.record(run.make)
    fault = FailingSync(trace, number, error)
    with observed(fault):
        run.run()
    return run, fault


def check(disk, fate, shown, durable):
    with memory_folder() as above, restarted():
        folder = above / "store"
        disk.write(folder, fate)
        store = Store.open(folder)
        help_apply(store.decisions)
        store.append(TOPIC, rows(b"after"))
        found = content(folder)
        values = list(found.values())
        assert len(values) == len(set(values)), values
        assert durable <= set(values), durable - set(values)
        assert values[-1] == b"after"
        for offset, value in found.items():
            assert shown.get(offset, value) == value


@pytest.mark.sampled
@pytest.mark.parametrize("killed", [False, True])
def test_nothing_acknowledged_is_lost(killed):
    with memory_folder() as folder:
        syncs = run_with(folder, -1, None)[1].syncs
    assert syncs > 20
    for number in sample(range(syncs), syncs):
        with memory_folder() as folder:
            run, fault = run_with(folder, number, Stopped() if killed else OSError(errno.EIO, os.strerror(errno.EIO)))
            at = fault.at
            assert at
            # The power fails after the step of the sync, after the two that follow, or at last.
            steps = [step for step in run.after if step[0] > at]
            for (_, shown, durable), (count, disk) in zip(
                chosen := [*steps[:3], *steps[-1:]], run.trace.disks([step[0] for step in chosen]), strict=True
            ):
                for fate in (disk.nothing(), disk.everything()):
                    with naming(f"sync {number} fails, the power goes after {count} changes"):
                        check(disk, fate, shown, durable)
