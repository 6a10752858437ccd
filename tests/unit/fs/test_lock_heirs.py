"""Processes that inherit a locked file from the process that locked it, which is then killed."""

import os
import subprocess
import sys

import pytest

from pyspark_log.errors import LockTimeoutError
from pyspark_log.storage.fs.locking import locks

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the names in libc and /proc are Linux's")

# How long something may take that nothing hinders, in seconds, on a machine that has much else to do.
PATIENCE = 120

# What each of these processes does first. PyDLL keeps the interpreter's lock, so that the child needs no thread for it.
_BEGIN = """
import ctypes, fcntl, os, subprocess, sys
from pyspark_log.storage.fs import files
from pyspark_log.storage.fs.locking import locks
from pyspark_log.storage.log.state import state_file

libc = ctypes.PyDLL(None)

def fork():
    child = libc.fork()
    if child == 0:
        libc.pause()
    return child

path = sys.argv[1]
lock = locks.lock_for(path)
"""
_FORKS_WHILE_IT_HOLDS = """
lock.acquire()
child = fork()
"""
_FORKS_BEFORE_IT_HOLDS = """
lock.acquire()
lock.release()
child = fork()
lock.acquire()
"""
_FORKS_WHILE_IT_LOOKS = """
file = files.open_read(path)
assert state_file._is_free(file)
child = fork()
"""
# A file that is handed on is shared, whatever code forks.
_HANDS_ON = """
file = os.open(path, os.O_RDWR)
fcntl.flock(file, fcntl.LOCK_EX)
child = subprocess.Popen(["sleep", "1000"], pass_fds=[file]).pid
"""
_TELL = """
print(child, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def heir_of():
    """Runs a program that has a child, and kills it; gives the ids of both. The child lives on to the test's end."""
    heirs = []

    def run(program, path):
        command = [sys.executable, "-c", _BEGIN + program + _TELL, path]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            heirs.append(int(process.stdout.readline()))
            process.kill()
        return process.pid, heirs[-1]

    yield run
    for heir in heirs:
        os.kill(heir, 9)


@pytest.mark.parametrize("program", [_FORKS_WHILE_IT_HOLDS, _FORKS_BEFORE_IT_HOLDS, _FORKS_WHILE_IT_LOOKS])
def test_a_child_that_c_code_forks_does_not_hold_the_lock_of_its_killed_parent(path, heir_of, program):
    heir_of(program, path)
    with locks.lock_for(path).held(PATIENCE):
        pass


# In a process that runs no other thread of Python: a child in which such a thread is missing may wait for it forever.
_EXCLUDES_ITS_PARENT = """
import os
from pyspark_log.errors import LockTimeoutError

with lock.held():
    child = libc.fork()
    if child == 0:
        lock.release()
        try:
            lock.acquire(timeout=0.05)
        except LockTimeoutError:
            libc._exit(0)
        libc._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    with files.open_read(path) as other:
        assert not state_file._is_free(other)
"""


def test_a_child_that_c_code_forks_excludes_its_parent_and_does_not_unlock_its_lock(path):
    subprocess.run([sys.executable, "-c", _BEGIN + _EXCLUDES_ITS_PARENT, path], check=True, timeout=PATIENCE)


def test_a_timeout_names_the_process_that_holds_what_one_that_has_ended_locked(path, heir_of):
    ended, heir = heir_of(_HANDS_ON, path)
    with pytest.raises(LockTimeoutError) as raised:
        locks.lock_for(path).acquire(timeout=0.05)
    assert f"by process {ended}, which has ended and left it to process {heir} (sleep 1000);" in str(raised.value)
