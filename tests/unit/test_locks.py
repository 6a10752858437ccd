"""Locks between threads and processes: exclusion, turns, forks, time-outs that name the holder."""

import multiprocessing
import os
import threading
import time

import pytest

from pyspark_log.storage import locks
from pyspark_log.storage.errors import LockTimeoutError

# A spawned process shares nothing with this one, as in life.
PROCESSES = multiprocessing.get_context("spawn")


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "lock"
    file.write_bytes(b"")
    return str(file)


def _hold(path, held, let_go):
    lock = locks.lock_for(path)
    lock.acquire()
    held.set()
    let_go.wait(30)
    lock.release()


def _count_up(path, counter, times):
    lock = locks.lock_for(path)
    for _ in range(times):
        lock.acquire()
        with open(counter, "r+b") as file:
            number = int(file.read())
            file.seek(0)
            file.write(b"%d" % (number + 1))
        lock.release()


def test_processes_and_threads_exclude_each_other(path, tmp_path):
    counter = tmp_path / "counter"
    counter.write_bytes(b"0")
    workers = [PROCESSES.Process(target=_count_up, args=(path, counter, 300)) for _ in range(2)]
    workers += [threading.Thread(target=_count_up, args=(path, counter, 300)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert counter.read_bytes() == b"1200"


def test_a_timeout_names_the_process_that_holds_the_lock(path):
    held, let_go = PROCESSES.Event(), PROCESSES.Event()
    other = PROCESSES.Process(target=_hold, args=(path, held, let_go))
    other.start()
    assert held.wait(30)
    with pytest.raises(LockTimeoutError, match=f"process {other.pid} "):
        locks.lock_for(path).acquire(timeout=0.05)
    let_go.set()
    other.join()
    lock = locks.lock_for(path)
    lock.acquire(timeout=5)
    lock.release()


def test_a_timeout_within_a_process_says_so(path):
    lock = locks.lock_for(path)
    lock.acquire()
    failed = []

    def attempt():
        try:
            lock.acquire(timeout=0.05)
        except LockTimeoutError as error:
            failed.append(str(error))

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    lock.release()
    assert "another thread of this process" in failed[0]


def test_the_lock_of_a_killed_process_is_free(path):
    held, let_go = PROCESSES.Event(), PROCESSES.Event()
    other = PROCESSES.Process(target=_hold, args=(path, held, let_go))
    other.start()
    assert held.wait(30)
    other.kill()
    other.join()
    lock = locks.lock_for(path)
    lock.acquire(timeout=5)
    lock.release()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_neither_has_nor_releases_its_parents_lock(path):
    lock = locks.lock_for(path)
    lock.acquire()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            locks.lock_for(path).acquire(timeout=0.05)
        except LockTimeoutError:
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    # The child is gone, and with it its copies of the open files; the lock must still be ours.
    other = PROCESSES.Process(target=_expect_timeout, args=(path,))
    other.start()
    other.join()
    assert other.exitcode == 0
    lock.release()


def _expect_timeout(path):
    with pytest.raises(LockTimeoutError):
        locks.lock_for(path).acquire(timeout=0.05)


def _greedy(path, stop):
    lock = locks.lock_for(path)
    while not stop.is_set():
        lock.acquire()
        time.sleep(0.002)
        lock.release()


def test_a_waiter_gets_its_turn_beside_a_process_that_never_pauses(path):
    stop = PROCESSES.Event()
    other = PROCESSES.Process(target=_greedy, args=(path, stop))
    other.start()
    lock, waits = locks.lock_for(path), []
    time.sleep(0.5)
    for _ in range(50):
        started = time.monotonic()
        lock.acquire(timeout=20)
        waits.append(time.monotonic() - started)
        lock.release()
    stop.set()
    other.join()
    # Without turns the median is near a second (flock wakes the one that has just let go).
    assert sorted(waits)[25] < 0.05
