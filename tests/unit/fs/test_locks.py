"""Locks between threads and processes: exclusion, turns, forks, time-outs that name the holder."""

import contextlib
import errno
import fcntl
import os
import statistics
import sys
import threading
import time

import pytest

from pyspark_log.errors import LockTimeoutError
from pyspark_log.storage.fs import contextmanager
from pyspark_log.storage.fs.locking import locks
from tests import processes
from tests.processes import PROCESSES, run_at_once

# How long something may take that nothing hinders, in seconds, on a machine that has much else to do.
PATIENCE = 120


def _hold(path, held, mark_deleted):
    lock = locks.lock_for(path)
    lock.acquire()
    held.set()
    mark_deleted.wait(PATIENCE)
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
    workers = [PROCESSES.Process(target=_count_up, args=(path, counter, 300), daemon=True) for _ in range(2)]
    workers += [threading.Thread(target=_count_up, args=(path, counter, 300), daemon=True) for _ in range(2)]
    run_at_once(workers)
    assert counter.read_bytes() == b"1200"


def test_a_timeout_names_the_process_that_holds_the_lock(path):
    held, mark_deleted = PROCESSES.Event(), PROCESSES.Event()
    other = PROCESSES.Process(target=_hold, args=(path, held, mark_deleted), daemon=True)
    other.start()
    assert held.wait(PATIENCE), "the other process does not get the lock"
    with pytest.raises(LockTimeoutError, match=f"process {other.pid} "):
        locks.lock_for(path).acquire(timeout=0.05)
    mark_deleted.set()
    other.join()
    lock = locks.lock_for(path)
    lock.acquire(timeout=PATIENCE)
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
    held, mark_deleted = PROCESSES.Event(), PROCESSES.Event()
    other = PROCESSES.Process(target=_hold, args=(path, held, mark_deleted), daemon=True)
    other.start()
    assert held.wait(PATIENCE), "the other process does not get the lock"
    other.kill()
    other.join()
    lock = locks.lock_for(path)
    lock.acquire(timeout=PATIENCE)
    lock.release()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_neither_has_nor_releases_its_parents_lock(path):
    lock = locks.lock_for(path)
    lock.acquire()

    def take():
        with pytest.raises(LockTimeoutError):
            locks.lock_for(path).acquire(timeout=0.05)

    with processes.forked(take):
        pass
    # The child is gone, and with it its copies of the open files; the lock must still be ours.
    other = PROCESSES.Process(target=_expect_timeout, args=(path,), daemon=True)
    other.start()
    other.join()
    assert other.exitcode == 0
    lock.release()


@pytest.fixture
def forked():
    """Runs something in a forked child as soon as it is called; gives what it returned, or the name of its error."""

    @contextlib.contextmanager
    def run(work):
        start_read, start_write = os.pipe()
        told_read, told_write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.read(start_read, 1)
                told = str(work())
            except BaseException as error:  # noqa: BLE001  (the child ends here, whatever it is)
                told = type(error).__name__
            os.write(told_write, told.encode())
            os._exit(0)

        def finish():
            os.write(start_write, b".")
            return os.read(told_read, 1000).decode()

        try:
            yield finish
        finally:
            for fd in (start_write, start_read, told_read, told_write):
                os.close(fd)
            os.waitpid(child, 0)

    return run


def _try(path):
    lock = locks.lock_for(path)
    lock.acquire(timeout=0.05)  # A lock that is free is taken, however long that takes.
    lock.release()
    return "acquired"


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_shares_no_open_file_with_its_parent(path, forked):
    """What its parent locks later, the child would hold too."""
    lock = locks.lock_for(path)
    lock.acquire()
    lock.release()
    with forked(lambda: _try(path)) as finish:
        lock.acquire()
        assert finish() == "LockTimeoutError"
        lock.release()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_does_not_wait_for_a_lock_that_its_parent_gave_back(path, forked):
    lock = locks.lock_for(path)
    lock.acquire()
    with forked(lambda: _try(path)) as finish:
        lock.release()
        assert finish() == "acquired"


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_mutex_that_a_thread_holds_is_free_in_a_forked_child(forked):
    mutex = locks.Mutex()
    with mutex.lock, forked(lambda: mutex.lock.acquire(blocking=False)) as finish:
        assert finish() == "True"


def test_a_waiter_for_a_lock_whose_file_was_replaced_gets_the_new_files_lock(path, tmp_path):
    """The store's folder was replaced by a copy, and another process holds the lock in it."""
    lock = locks.lock_for(path)
    lock.acquire()
    lock.release()
    copy = tmp_path / "copy"
    copy.write_bytes(b"")
    os.replace(copy, path)
    with open(path, "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(LockTimeoutError):
            lock.acquire(timeout=0.05)
    lock.acquire(timeout=0.05)
    assert os.path.samestat(os.fstat(lock.file.fd), os.stat(path))
    lock.release()


def _expect_timeout(path):
    with pytest.raises(LockTimeoutError):
        locks.lock_for(path).acquire(timeout=0.05)


def _greedy(path, stop, taken):
    lock = locks.lock_for(path)
    while not stop.is_set():
        lock.acquire()
        taken.value += 1
        time.sleep(0.002)
        lock.release()


def test_a_waiter_gets_its_turn_beside_a_process_that_never_pauses(path):
    stop, taken = PROCESSES.Event(), PROCESSES.Value("q", 0)
    other = PROCESSES.Process(target=_greedy, args=(path, stop, taken), daemon=True)
    other.start()
    lock, overtaken, before = locks.lock_for(path), [], 0
    for _ in range(50):
        deadline = time.monotonic() + PATIENCE
        while taken.value == before:  # This process must not be the one without pauses.
            assert time.monotonic() < deadline, "the other process does not get the lock"
            time.sleep(0.0001)
        before = taken.value
        lock.acquire(timeout=PATIENCE)
        overtaken.append(taken.value - before)
        before = taken.value
        lock.release()
    stop.set()
    other.join()
    # However busy the machine is. Without turns it is overtaken ten times and more.
    assert statistics.median(overtaken) <= 1, overtaken


def test_a_lock_that_could_not_be_unlocked_is_free_all_the_same(path, monkeypatch):
    def refuses(fd, operation):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    lock = locks.lock_for(path)
    with monkeypatch.context() as patched, pytest.raises(OSError, match="Input/output error"), lock.held():
        patched.setattr(fcntl, "flock", refuses)
    with open(path, "rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with lock.held(timeout=0.05):
        pass


@pytest.mark.parametrize("error", [StopIteration(), StopIteration(1), KeyError("k"), KeyboardInterrupt()])
def test_a_context_manager_of_ours_gives_errors_back_as_they_are(error):
    @contextmanager
    def held():
        yield 1

    with pytest.raises(type(error)) as raised, held():
        raise error
    assert raised.value is error


def test_a_context_manager_of_ours_may_swallow_and_change_errors():
    @contextmanager
    def changes():
        try:
            yield
        except KeyError:
            raise ValueError("changed") from None
        except OSError as error:
            raise ValueError("explained") from error
        except IndexError:
            pass

    with pytest.raises(ValueError, match="changed"), changes():
        raise KeyError
    with pytest.raises(ValueError, match="explained"), changes():
        raise OSError
    with changes():
        raise IndexError


def test_no_python_code_runs_when_a_lock_dies(tmp_path):
    """A Ctrl-C that comes in such code is lost."""
    called = []
    lock, mutex = locks.lock_for(str(tmp_path / "file")), locks.Mutex()
    sys.setprofile(lambda frame, event, _: called.append(frame.f_code.co_name) if event == "call" else None)
    try:
        del lock, mutex
    finally:
        sys.setprofile(None)
    assert called == []


def test_the_table_of_locks_does_not_grow(tmp_path):
    living = [locks.lock_for(str(tmp_path / str(number))) for number in range(10)]
    for number in range(1000):
        locks.lock_for(str(tmp_path / f"dead {number}"))
    assert len(locks._table._references) < 500
    assert [locks.lock_for(lock.path) for lock in living] == living
