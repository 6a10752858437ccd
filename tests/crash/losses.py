"""Power losses before chosen changes to files of a workload, each with several fates of what was not synced."""

import os
import random
import shutil

import pytest
from power import Trace
from sampling import SEED, sample

from pyspark_log.errors import StoreNotFoundError
from pyspark_log.storage.publish.pending import help_apply
from pyspark_log.storage.store import Store
from tests.store_tools import damages


def record_run(workload_of, nothing, folder):
    """Runs a workload without interruption.

    Args:
        workload_of: makes it for a path.
        nothing: what holds before its first step; `after(workload, step)` gives what holds one step later.
        folder: where its store is made, and those that power losses leave.

    Returns:
        The trace, what holds before the first step and after each, and the folder.
    """
    trace = Trace(folder / "store")
    workload, held = workload_of(trace.root), [nothing]

    def mark():
        held.append(held[-1].after(workload, workload.done - 1))
        trace.mark(workload.done)

    trace.record(lambda: workload.run(after=mark))
    return trace, held, folder


def try_losses(recorded, check, most, capsys, *, parts=1):
    """Checks what is left of a recorded workload by power losses.

    Args:
        recorded: as of `record_run`.
        check: gets the path of what is left, what held, and what the step leads to that was under way.
        most: before how many changes the power fails.
        capsys: reports how many were tried.
        parts: how often any part of what was not synced is kept, besides nothing and everything.
    """
    trace, held, folder = recorded
    modes = ["nothing", "everything", *["any part"] * parts]
    chosen = sample(range(1, len(trace.changes) + 1), most)
    tried = 0
    ends = [at for at, _ in trace.marks]
    for count, disk in trace.disks(chosen):
        step = sum(at <= count for at in ends)
        for number, mode in enumerate(modes):
            choices = random.Random(f"{SEED} {count} {number}")
            fate = disk.any_part(choices) if mode == "any part" else getattr(disk, mode)()
            path = folder / "after"
            disk.write(path, fate)
            try:
                check(path, held[step], held[min(step + 1, len(held) - 1)])
            except Exception as error:
                kept = os.environ.get("CRASH_KEEP")
                if kept:
                    shutil.rmtree(kept, ignore_errors=True)
                    disk.write(kept, fate)
                what = trace.changes[count] if count < len(trace.changes) else "the end"
                where = f"power lost before change {count} in step {step}, keeping {mode}, seed {SEED}: {what}"
                raise AssertionError(where) from error
            shutil.rmtree(path, ignore_errors=True)
            tried += 1
    with capsys.disabled():
        print(f"\n{tried} power losses tried, at {len(chosen)} of {len(trace.changes)} changes")
    assert tried == len(modes) * len(chosen)
    assert len(trace.changes) >= 2000


class PowerLoss:
    """One power loss, and the checks of what is left."""

    def __init__(self, path, before, after):
        """`before` held; the step that leads to `after` was under way."""
        self.path, self.before, self.after = path, before, after

    def check(self):
        """First readers look, then a process that looks for what was decided, then writers come."""
        if not (self.path / "store.json").exists():
            assert not self.before.seen
            with pytest.raises(StoreNotFoundError):
                Store.open(self.path)
            return
        self.check_readers()
        help_apply(Store.open(self.path).decisions)
        self.check_written(Store.open(self.path))

    def check_healthy(self):
        """Nothing is damaged."""
        wrong = damages(self.path)
        assert not wrong, "\n".join(map(str, wrong))
