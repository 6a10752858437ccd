"""Stops a program before any chosen change to files, as a kill at that moment would."""

import contextlib
import os
import re
import shutil

from tests.store_tools import Stopped, observed

_STATE_FILE = re.compile(r"/state/[A-Za-z0-9_-]{22}-\d+$")


class StopBefore:
    """Lets a number of changes happen, and none after them.

    With `torn`, of a write that comes then the first half is made; but not of a slot of a state file, which a kill
    leaves whole or not at all. (A power loss can tear it: power.py.)
    """

    def __init__(self, changes, torn=False):
        self.left = changes
        self.torn = torn
        self.stopped_at = None

    def __call__(self, change):
        if self.stopped_at is not None:
            raise Stopped
        if self.left == 0:
            self.stopped_at = change.kind
            if self.torn and change.kind == "write" and not _STATE_FILE.search(change.path):
                fd = os.open(change.path, os.O_WRONLY)
                os.pwrite(fd, change.data[: len(change.data) // 2], change.position)
                os.close(fd)
            raise Stopped
        self.left -= 1


def kinds_of_changes(program):
    """The kinds of the changes to files that a program makes, in order."""
    kinds = []
    with observed(lambda change: kinds.append(change.kind)):
        program()
    return kinds


def count_changes(program):
    """How many changes to files a program makes."""
    return len(kinds_of_changes(program))


def run_until(program, stop):
    """Runs a program until it is stopped; False if it came to its end before."""
    with contextlib.suppress(Stopped), observed(stop):
        program()
        return False
    return True


def copy_folder(source, target):
    """Copies a folder; names that are links to one file are so in the copy."""
    made = {}

    def copy(path, new):
        inode = os.stat(path).st_ino
        if inode in made:
            os.link(made[inode], new)
        else:
            made[inode] = shutil.copy2(path, new)
        return new

    shutil.copytree(source, target, copy_function=copy)


def stop_before(condition):
    """An observer that stops a program before each change to files for which a function says so."""

    def observe(change):
        if condition(change):
            raise Stopped

    return observe
