"""A run of a workload that nobody stops, step by step, from which any of its changes to files can be reached."""

from bisect import bisect_right

from stops import copy_folder, count_changes


class Undisturbed:
    """The store and what is in it before each step, and how many changes a step makes.

    Attributes:
        contents: what `look` has found before the first step, and after each.
        starts: the number of the first change of each step, and at the end how many there are.
    """

    def __init__(self, folder, workload, look, nothing):
        """`workload`: makes one for a path; `look`: says what is in its store; `nothing`: what it would say of none."""
        self._folder = folder
        self.contents, self.starts = [nothing], [0]
        path = folder / "store"
        running = workload(path)
        for step in range(len(running.steps)):
            self.starts.append(self.starts[-1] + count_changes(lambda step=step: running.run(until=step + 1)))
            self.contents.append(look(path))
            copy_folder(path, folder / f"{step + 1}")

    def begin(self, change, path):
        """Makes the store of before the step that makes a change; the step, and how many changes it makes before."""
        step = bisect_right(self.starts, change) - 1
        if step:
            copy_folder(self._folder / f"{step}", path)
        return step, change - self.starts[step]
