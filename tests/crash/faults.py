"""Faults of a disk, one at a time: at any change to files, or at any opening of one."""

import contextlib
import errno
import os

from sampling import sample

from pyspark_log.errors import OutcomeUnknownError, PublishFailedError, PublishPendingError
from pyspark_log.storage.fs import files

ATTEMPTS = 10
#: The error, how many times in a row, whether half a write is made, and whether it is openings that fail.
FAULTS = {
    "full disk": (errno.ENOSPC, 1, False, False),
    "full disk, three times": (errno.ENOSPC, 3, False, False),
    "half a write": (errno.ENOSPC, 1, True, False),
    "input/output error": (errno.EIO, 1, False, False),
    "no more open files": (errno.EMFILE, 1, False, True),
    "input/output error at an opening": (errno.EIO, 1, False, True),
}


class Fault:
    """Fails some operations in a row, from one of them on."""

    def __init__(self, first, times, error, short=False):
        self.first, self.times, self.error, self.short = first, times, error, short
        self.seen = 0
        self.failed = []

    def due(self, what):
        self.seen += 1
        if self.first < self.seen <= self.first + self.times:
            self.failed.append(what)
            return True
        return False

    def change(self, change):
        """An observer of changes to files."""
        if self.due(f"{change.kind} {os.path.basename(change.path)}"):
            if self.short and change.kind == "write":
                with open(change.path, "r+b") as file:
                    os.pwrite(file.fileno(), change.data[: len(change.data) // 2], change.position)
            raise OSError(self.error, os.strerror(self.error), change.path)

    def opening(self, real, root):
        """In place of os.open."""

        def opened(path, *args, **kwargs):
            if str(path).startswith(root) and self.due(f"open {os.path.basename(path)}"):
                raise OSError(self.error, os.strerror(self.error), path)
            return real(path, *args, **kwargs)

        return opened


def again_until_done(action):
    """Repeats what may be repeated until it succeeds."""
    for _ in range(ATTEMPTS):
        try:
            action()
        except (OSError, OutcomeUnknownError, PublishFailedError, PublishPendingError):
            continue
        return
    raise AssertionError("never succeeded")


class Disk:
    """Has a fault below a folder, or none during a check (`calm`)."""

    def __init__(self, monkeypatch, root, fault, at_opens):
        self._monkeypatch, self._root, self._fault, self._at_opens = monkeypatch, root, fault, at_opens
        self._open = os.open

    def fail(self):
        if self._at_opens:
            self._monkeypatch.setattr(os, "open", self._fault.opening(self._open, self._root))
        else:
            files.set_observer(self._fault.change)

    def mend(self):
        self._monkeypatch.setattr(os, "open", self._open)
        files.set_observer(None)

    @contextlib.contextmanager
    def calm(self):
        self.mend()
        yield
        self.fail()


def run_with_fault(monkeypatch, work, path, kind, first):
    """Does work (a class) on a store in `path` with a fault from operation number `first` on; how many there were."""
    error, times, short, at_opens = FAULTS[kind]
    fault = Fault(first, times, error, short)
    at_work = work(path)
    disk = Disk(monkeypatch, path, fault, at_opens)
    disk.fail()
    try:
        at_work.run(disk.calm)
        disk.mend()
        at_work.check_at_the_end()
    except Exception as failure:
        raise AssertionError(f"{kind} at operation {first}: {fault.failed}") from failure
    finally:
        disk.mend()
    return fault.seen


def try_faults(monkeypatch, capsys, work, folder, kind, most, least=300):
    """The same for some of those first operations, at most `most` (sampling.py); there are more than `least`."""
    count = run_with_fault(monkeypatch, work, f"{folder}/count", kind, 10**9)
    assert count > least
    chosen = sample(range(count), most)
    for first in chosen:
        run_with_fault(monkeypatch, work, f"{folder}/{first}", kind, first)
    with capsys.disabled():
        print(f"\n{kind}: {len(chosen)} of {count} operations tried")
