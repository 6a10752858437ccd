"""A run of a workload without interruption, step by step, from which any of its changes to files can be reached."""

import shutil
import tempfile
from bisect import bisect_right
from pathlib import Path

from sampling import sample
from stops import StopBefore, copy_folder, count_changes, run_until


class Undisturbed:
    """The store and what is in it before each step, and how many changes a step makes.

    Attributes:
        contents: what `look` has found before the first step, and after each.
        starts: the number of the first change of each step, and at the end how many there are.
    """

    def __init__(self, folder, workload, look, nothing):
        """`workload`: makes one for a path; `look`: returns its store's content; `nothing`: that of an empty store."""
        self._folder, self._workload = folder, workload
        self.contents, self.starts = [nothing], [0]
        path = folder / "store"
        running = workload(path)
        for step in range(len(running.steps)):
            self.starts.append(self.starts[-1] + count_changes(lambda step=step: running.run(until=step + 1)))
            self.contents.append(look(path))
            copy_folder(path, folder / f"{step + 1}")

    def _begin(self, change, path):
        """Makes the store of before the step that makes a change; the step, and how many changes it makes before."""
        step = bisect_right(self.starts, change) - 1
        if step:
            copy_folder(self._folder / f"{step}", path)
        return step, change - self.starts[step]

    def try_stops(self, check, most, share, capsys):
        """Stops the workload before changes to files, and half-way in the writes among them.

        Args:
            check: gets the workload that was stopped, its path and the step; it runs the rest, and checks the contents.
            most: how many stops are tried.
            share: how many of these must come about, but for three: threads that apply side by side do not always make
                the very same number of changes, and a small sample may have several where they differ.
            capsys: reports how many were tried.
        """
        points = [(change, torn) for change in range(self.starts[-1]) for torn in (False, True)]
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            path, chosen = Path(folder) / "store", sample(points, most)
            tried = 0
            for change, torn in chosen:
                tried += self._try_stop(check, path, change, torn)
                shutil.rmtree(path, ignore_errors=True)
        with capsys.disabled():
            print(f"\n{tried} stops tried, of {len(points)}")
        assert len(points) >= 2000
        assert tried + 3 >= share * len(chosen)

    def _try_stop(self, check, path, change, torn):
        step, changes = self._begin(change, path)
        workload, stop = self._workload(path, done=step), StopBefore(changes, torn)
        if not run_until(lambda: workload.run(until=step + 1), stop):
            return False
        try:
            check(workload, path, step)
        except Exception as error:
            where = f"stopped {'half-way in' if torn else 'before'} change {change} ({stop.stopped_at}) in step {step}"
            raise AssertionError(where) from error
        return True
