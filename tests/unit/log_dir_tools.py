"""Ways in which a store's log dir fails; each is called with the folder, and returns what repairs it."""

import os
import shutil
from pathlib import Path

from pyspark_log.storage.fs import files


def gone(monkeypatch, folder):
    os.rename(folder, f"{folder}.away")
    return lambda: os.rename(f"{folder}.away", folder)


def empty(monkeypatch, folder):
    """Nothing is mounted where it should be."""
    back = gone(monkeypatch, folder)
    os.mkdir(folder)

    def mount():
        os.rmdir(folder)
        back()

    return mount


def swapped(monkeypatch, folder):
    """Another disk of the same store is mounted there."""
    back = gone(monkeypatch, folder)
    shutil.copytree(f"{os.path.dirname(folder)}/store/data", folder)

    def mount():
        shutil.rmtree(folder)
        back()

    return mount


def input_output_errors(monkeypatch, folder):
    def failing(real):
        def call(path, *args, **kwargs):
            if str(path).startswith(str(folder)):
                raise OSError(5, os.strerror(5), path)
            return real(path, *args, **kwargs)

        return call

    def observer(change):
        if change.path.startswith(str(folder)):
            raise OSError(5, os.strerror(5), change.path)

    for name in ("open", "listdir", "stat"):
        monkeypatch.setattr(os, name, failing(getattr(os, name)))
    files.set_observer(observer)

    def mend():
        monkeypatch.undo()
        files.set_observer(None)

    return mend


FAILURES = [gone, empty, swapped, input_output_errors]


def read_only(monkeypatch, folder):
    access, real_open = os.access, os.open
    monkeypatch.setattr(os, "access", lambda path, mode: not str(path).startswith(str(folder)) and access(path, mode))

    def refuse(path, writes):
        if writes and str(path).startswith(str(folder)):
            raise OSError(30, os.strerror(30), path)

    def opened(path, flags, *args, **kwargs):
        refuse(path, flags & (os.O_RDWR | os.O_WRONLY))
        return real_open(path, flags, *args, **kwargs)

    def observer(change):
        refuse(change.path, writes=True)

    monkeypatch.setattr(os, "open", opened)
    files.set_observer(observer)

    def mend():
        monkeypatch.undo()
        files.set_observer(None)

    return mend


def folders(path):
    return sorted(entry.name for entry in Path(path).iterdir() if entry.is_dir())
