"""Stops and power losses at the changes to files that a program makes, and the tests of what they leave.

Of an operation a class that is `Attacked` says what is before it, what it does, and what must hold after an attack.
Of a workload of many steps (workload.py, compacted.py) a run without interruption is kept first: step by step for
stops (`Undisturbed`), and as a trace for power losses (`record_run`).
"""

import contextlib
import os
import random
import shutil
from bisect import bisect_right

import pytest
from power import Trace
from sampling import PARTS, SEED, sample

from pyspark_log.errors import StoreNotFoundError
from pyspark_log.storage.log.state import state_file
from pyspark_log.storage.publish.pending import help_apply
from pyspark_log.storage.store import Store
from tests.stops import StopBefore, copy_folder, kinds_of_changes, run_until
from tests.store_tools import damages


@contextlib.contextmanager
def naming(*where):
    """Says where something failed that fails inside."""
    try:
        yield
    except Exception as error:
        raise AssertionError(" ".join(map(str, where))) from error


@contextlib.contextmanager
def restarted(number=0):
    """Inside, the machine has been started once more; `number`: which start it is."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(state_file, "this_boot", lambda: b"start%3d" % number)
        yield


def points_of(kinds):
    """Where a program can be stopped: before each of its changes, and half-way in the writes among them."""
    torn = [(change, True) for change, kind in enumerate(kinds) if kind == "write"]
    return sorted([(change, False) for change in range(len(kinds))] + torn)


def try_stops(path, points, begin, check, capsys):
    """Stops a program before changes to files, and half-way in writes.

    Args:
        path: where `begin` makes the store each time.
        points: of each stop the number of the change, whether that is torn, and what else `check` is given.
        begin: for a change makes the store of before; the program, and how many changes it makes before that one.
        check: gets the number of the change, and what else is in the point.
        capsys: reports how many were tried.

    Returns:
        What the checks return. Threads that apply side by side do not always make the very same number of changes, so
        not every stop comes about.
    """
    found = []
    for change, torn, *more in points:
        program, changes = begin(change)
        stop = StopBefore(changes, torn)
        if run_until(program, stop):
            with naming(f"stopped {'half-way in' if torn else 'before'} change {change} ({stop.stopped_at})", *more):
                found.append(check(change, *more))
        shutil.rmtree(path, ignore_errors=True)
    with capsys.disabled():
        print(f"\n{len(found)} stops tried")
    return found


def try_losses(path, trace, chosen, check, parts, capsys):
    """The power fails before changes of a trace, each time with several fates of what was not synced.

    Args:
        path: where what is left is put each time.
        trace: the changes that the program makes.
        chosen: before how many changes the power fails, ascending.
        check: gets how many changes there were, and the number of the fate.
        parts: how often any part of what was not synced is kept, besides nothing and everything.
        capsys: reports how many were tried.

    Returns:
        What the checks return.
    """
    found, modes = [], ["nothing", "everything", *["any part"] * parts]
    with restarted():
        for count, disk in trace.disks(chosen):
            what = trace.changes[count] if count < len(trace.changes) else "the end"
            for number, mode in enumerate(modes):
                choices = random.Random(f"{SEED} {count} {number}")
                fate = disk.any_part(choices) if mode == "any part" else getattr(disk, mode)()
                disk.write(path, fate)
                try:
                    with naming(f"power lost before change {count}, keeping {mode}, seed {SEED}: {what}"):
                        found.append(check(count, number))
                except AssertionError:
                    if kept := os.environ.get("CRASH_KEEP"):
                        shutil.rmtree(kept, ignore_errors=True)
                        disk.write(kept, fate)
                    raise
                shutil.rmtree(path, ignore_errors=True)
    with capsys.disabled():
        print(f"\n{len(found)} power losses tried, at {len(chosen)} of {len(trace.changes)} changes")
    return found


# ---- one operation


class Attacked:
    """Tests of an operation, of which the methods up to `check_losses` say what it is and what must hold.

    Attributes:
        most_stops, most_losses: how many are tried (sampling.py).
        ends: how many of the last points are tried in any case; the first one is, too.
        parts: how often a power loss keeps any part of what was not synced, at least.
        comers: what may come next after a stop: each point is tried with each of them.
        least: how many changes it makes at least.
        trace: of what power losses leave; None: stops are tried.
    """

    most_stops = most_losses = 1_000_000
    ends, parts, comers, least, trace = 1, 1, ("check",), 10, None

    def make(self, path):
        """Makes the store of before the operation."""

    def run(self, path):
        """The operation."""
        raise NotImplementedError

    def check(self, path):
        """What must hold after a stop or a power loss; what it returns is given to the next two."""
        raise NotImplementedError

    def check_left(self, path, count, number):
        """The same after a power loss; after how many changes it came, and the number of the fate."""
        return self.check(path)

    def check_whole(self, path):
        """What must hold without an attack."""

    def check_stops(self, found):
        """What must hold of all that the checks after stops have returned."""

    def check_losses(self, found):
        """What must hold of all that the checks after power losses have returned."""

    def test_stops(self, memory_path, capsys):
        path, before = memory_path / "store", memory_path / "before"
        self.make(before)

        def begin(change):
            if before.exists():
                copy_folder(before, path)
            return lambda: self.run(path), change

        begin(0)
        kinds = kinds_of_changes(lambda: self.run(path))
        self.check_whole(path)
        shutil.rmtree(path)
        points = [(*point, comer) for point in points_of(kinds) for comer in self.comers]
        chosen = sample(points, self.most_stops, ends=self.ends)
        found = try_stops(path, chosen, begin, lambda _change, comer: getattr(self, comer)(path), capsys)
        assert len(kinds) >= self.least
        assert len(found) + 1 >= 0.9 * len(chosen)
        self.check_stops(found)

    def test_power_losses(self, memory_path, capsys):
        path, left = memory_path / "store", memory_path / "left"
        self.make(path)
        trace = self.trace = Trace(path)
        trace.record(lambda: self.run(path))
        chosen = sample(range(1, len(trace.changes) + 1), self.most_losses, ends=self.ends)
        parts = max(self.parts, PARTS) if self.parts else 0
        found = try_losses(left, trace, chosen, lambda *point: self.check_left(left, *point), parts, capsys)
        assert len(trace.changes) >= self.least
        self.check_losses(found)


# ---- a workload of many steps


class Undisturbed:
    """The store and what is in it before each step, and how many changes a step makes.

    Attributes:
        contents: what `look` has found before the first step, and after each.
        starts: the number of the first change of each step, and at the end how many there are.
    """

    def __init__(self, folder, workload, look, nothing):
        """`workload`: makes one for a path; `look`: returns its store's content; `nothing`: that of an empty store."""
        self._folder, self._workload = folder, workload
        self.contents, self.starts, self._kinds = [nothing], [0], []
        self._path = path = folder / "store"
        running = workload(path)
        for step in range(len(running.steps)):
            self._kinds += kinds_of_changes(lambda step=step: running.run(until=step + 1))
            self.starts.append(len(self._kinds))
            self.contents.append(look(path))
            copy_folder(path, folder / f"{step + 1}")
        shutil.rmtree(path)

    def try_stops(self, check, most, share, capsys):
        """Stops the workload before changes to files, and half-way in the writes among them.

        Args:
            check: gets the workload that was stopped, its path and the step; it runs the rest, and checks the contents.
            most: how many stops are tried.
            share: how many of these must come about, but for three: a small sample may have several where the numbers
                of changes differ.
            capsys: reports how many were tried.
        """
        stopped = []

        def begin(change):
            step = bisect_right(self.starts, change) - 1
            if step:
                copy_folder(self._folder / f"{step}", self._path)
            workload = self._workload(self._path, done=step)
            stopped[:] = workload, self._path, step
            return lambda: workload.run(until=step + 1), change - self.starts[step]

        def check_one(_change):
            with naming(f"in step {stopped[2]}"):
                check(*stopped)

        points = points_of(self._kinds)
        chosen = sample(points, most)
        assert len(points) >= 2000
        assert len(try_stops(self._path, chosen, begin, check_one, capsys)) + 3 >= share * len(chosen)


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


def try_losses_of_run(recorded, loss, most, capsys, *, parts=1):
    """Checks what is left of a recorded workload by power losses.

    Args:
        recorded: as of `record_run`.
        loss: the class of the checks, a `PowerLoss`.
        most: before how many changes the power fails.
        capsys: reports how many were tried.
        parts: how often any part of what was not synced is kept, besides nothing and everything.
    """
    trace, held, folder = recorded
    ends, path = [at for at, _ in trace.marks], folder / "after"

    def check(count, _number):
        step = sum(at <= count for at in ends)
        with naming(f"in step {step}"):
            loss(path, held[step], held[min(step + 1, len(held) - 1)]).check()

    assert len(trace.changes) >= 2000
    try_losses(path, trace, sample(range(1, len(trace.changes) + 1), most), check, parts, capsys)


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
