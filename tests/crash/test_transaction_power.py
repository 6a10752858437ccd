"""The power fails while a program reads, transforms and writes in transactions, before any change to files.

Whatever stays of what was not synced: what was committed is there, and the sink holds what the committed offset
says, no more and no less; and any worker that resumes there copies each record once.
"""

import random
import shutil

import pytest
from copying import RECORDS, Worker, committed_offset, make_store, sink
from power import Trace
from sampling import PARTS, SAMPLED, SEED, sample

from pyspark_log.storage.log.state import state_file
from pyspark_log.storage.publish.pending import help_apply
from pyspark_log.storage.store import Store
from tests.scratch import memory_folder

pytestmark = SAMPLED
# Three fates besides nothing and everything, as there are few changes.
ROUNDS = max(PARTS, 3)


@pytest.fixture(scope="module")
def recorded():
    """The trace of an undisturbed run in a folder of its own, in memory where there is such a place."""
    with memory_folder() as folder:
        make_store(f"{folder}/store")
        trace = Trace(folder / "store")
        trace.record(Worker(trace.root, "worker", trace.mark).run)
        assert sink(trace.root) == [list(range(RECORDS))] * 2
        yield trace, folder / "after"


def check(path, acknowledged, checker):
    """The first checker is a reader, or else the next worker."""
    if checker == "reader":
        help_apply(Store.open(path).decisions)
        reached = committed_offset(path)
        assert sink(path) == [list(range(reached))] * 2
        assert reached >= acknowledged
    Worker(path, checker).run()
    help_apply(Store.open(path).decisions)
    assert sink(path) == [list(range(RECORDS))] * 2
    assert committed_offset(path) == RECORDS


def test_power_losses(recorded, capsys, monkeypatch):
    trace, path = recorded
    monkeypatch.setattr(state_file, "this_boot", lambda: b"rebooted")
    chosen, tried = sample(range(1, len(trace.changes) + 1), len(trace.changes)), 0
    for count, disk in trace.disks(chosen):
        acknowledged = max([end for at, end in trace.marks if at <= count], default=0)
        fates = [disk.nothing(), disk.everything()]
        fates += [disk.any_part(random.Random(f"{SEED} {count} {number}")) for number in range(ROUNDS)]
        for number, fate in enumerate(fates):
            checker = ("reader", "worker", "another")[(count + number) % 3]
            shutil.rmtree(path, ignore_errors=True)
            disk.write(str(path), fate)
            try:
                check(path, acknowledged, checker)
            except Exception as error:
                raise AssertionError(f"power lost before change {count}, fate {number}, {SEED=}, {checker}") from error
            tried += 1
    with capsys.disabled():
        print(f"\n{tried} power losses tried, at {len(chosen)} of {len(trace.changes)} changes")
    assert tried == (2 + ROUNDS) * len(chosen)
