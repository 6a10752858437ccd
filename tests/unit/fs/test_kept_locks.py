"""A lock that is used in a row stays locked between uses: when, how long, and what its user may rely on."""

import errno
import fcntl
import os
import threading
import time
from types import SimpleNamespace

import pytest

from pyspark_log.storage.fs import guarded
from pyspark_log.storage.fs.files import open_read
from pyspark_log.storage.fs.locking import locks
from tests.processes import PROCESSES, forked, run_at_once

# How long something may take that nothing hinders, in seconds, on a machine that has much else to do.
PATIENCE = 120
# More uses than make a row.
MANY = 50


def is_locked(path):
    """Whether anything holds the lock, or keeps it."""
    with open_read(path) as file:
        try:
            fcntl.flock(file.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def kept(lock, user):
    """Uses a lock until it is kept; the machine may pause for longer than it is kept, so it is tried again."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        for _ in range(MANY):
            with lock.held(PATIENCE, user):
                pass
        if is_locked(lock.path):
            return
    raise AssertionError("a lock that is used in a row is not kept")


def until_unlocked(path):
    started = time.monotonic()
    while is_locked(path):
        assert time.monotonic() - started < PATIENCE, "a lock that was kept is not given back"
        time.sleep(0.0002)


def test_a_lock_is_kept_after_many_uses_and_given_back_soon(path):
    lock, user = locks.lock_for(path), object()
    with lock.held(PATIENCE, user):
        pass
    assert not is_locked(path)
    for _ in range(5):
        kept(lock, user)
        until_unlocked(path)


def test_a_lock_that_is_used_now_and_then_is_never_kept(path):
    lock, user = locks.lock_for(path), object()
    for _ in range(MANY):
        with lock.held(PATIENCE, user):
            pass
        assert not is_locked(path)
        time.sleep(0.002)


def test_a_lock_without_a_user_is_never_kept(path):
    lock = locks.lock_for(path)
    for _ in range(MANY):
        with lock.held():
            pass
        assert not is_locked(path)


def test_a_lock_is_unlocked_after_an_error(path):
    lock, user = locks.lock_for(path), object()
    kept(lock, user)
    with pytest.raises(ValueError, match="something"), lock.held(PATIENCE, user):
        raise ValueError("something")
    assert not is_locked(path)


def test_its_user_learns_whether_it_had_the_lock_all_the_time(path):
    lock, user = locks.lock_for(path), object()
    with lock.held(PATIENCE, user):
        assert not lock.stayed
    uses_until(lock, lambda stayed: stayed, user)
    until_unlocked(path)
    with lock.held(PATIENCE, user):
        assert not lock.stayed


def uses_until(lock, is_seen, user):
    """Uses a lock in a row until something is seen after a use."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with lock.held(PATIENCE, user):
            stayed = lock.stayed
        if is_seen(stayed):
            return
    raise AssertionError("not seen")


def test_a_lock_stays_with_its_user_as_long_as_no_process_waits(path):
    began = time.monotonic()

    def stays_for_ten_turns(stayed):
        nonlocal began
        if not stayed:
            began = time.monotonic()
        return time.monotonic() - began > 0.010

    uses_until(locks.lock_for(path), stays_for_ten_turns, object())


def test_a_lock_is_given_back_after_a_turn_if_a_process_waits(path):
    lock, user = locks.lock_for(path), object()
    for _ in range(5):
        kept(lock, user)
        with open_read(path + ".turn") as turn:
            with lock.held(PATIENCE, user):
                fcntl.flock(turn.fd, fcntl.LOCK_EX)
                time.sleep(2 * guarded.TURN / 1e9)
            assert not is_locked(path)


def test_a_lock_is_given_back_after_a_turn_if_a_thread_waits(path, monkeypatch):
    monkeypatch.setattr(guarded, "MOST_TURNS", 1 << 20)
    waits, mutex = threading.Event(), threading.Lock()

    def acquire(*arguments):
        if threading.current_thread() is not threading.main_thread():
            waits.set()  # It counts as waiting by now.
        return mutex.acquire(*arguments)

    watched = SimpleNamespace(acquire=acquire, release=mutex.release)
    monkeypatch.setattr(guarded, "threading", SimpleNamespace(Lock=lambda: watched))
    lock, user = locks.lock_for(path), object()

    def wait():
        with lock.held(PATIENCE, user):
            stayed.append(lock.stayed)

    for _ in range(3):
        kept(lock, user)
        thread, stayed = threading.Thread(target=wait), []
        with lock.held(PATIENCE, user):
            thread.start()
            assert waits.wait(PATIENCE)
            time.sleep(2 * guarded.TURN / 1e9)
        thread.join()
        assert stayed == [False]
        waits.clear()


def test_a_lock_is_given_back_after_some_turns_so_another_file_of_its_path_is_found(path, tmp_path):
    lock, user = locks.lock_for(path), object()
    for number in range(5):
        kept(lock, user)
        with lock.held(PATIENCE, user):
            (tmp_path / "other").write_bytes(b"." * number)
            (tmp_path / "other").replace(path)
            time.sleep(guarded.MOST_TURNS * guarded.TURN / 1e9)
        with lock.held(PATIENCE, user):
            assert not lock.stayed
            assert lock.file.size() == number


def test_a_use_ends_well_though_it_cannot_be_seen_what_waits(path):
    """What was done under the lock is done; to raise an error would mean that it is not."""
    lock, user, real = locks.lock_for(path), object(), fcntl.flock

    def fails(fd, operation):
        if operation == fcntl.LOCK_EX | fcntl.LOCK_NB:
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
        real(fd, operation)

    for _ in range(5):
        kept(lock, user)
        lock.acquire(PATIENCE, user)
        time.sleep(2 * guarded.TURN / 1e9)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(locks.fcntl, "flock", fails)
            lock.release()
        assert not is_locked(path)


def test_an_interrupt_while_the_lock_looks_for_processes_that_wait_unlocks_all(path, monkeypatch):
    lock, looks = locks.lock_for(path), []
    look, real = locks.FileLock.may_stay_locked, fcntl.flock

    def looking(self):
        looks.append(self)
        return look(self)

    def flock(fd, operation):
        if looks and operation == fcntl.LOCK_UN:
            raise KeyboardInterrupt
        real(fd, operation)

    monkeypatch.setattr(locks.FileLock, "may_stay_locked", looking)
    monkeypatch.setattr(locks.fcntl, "flock", flock)
    with pytest.raises(KeyboardInterrupt):
        uses_until(lock, lambda _: False, object())
    monkeypatch.undo()
    assert not is_locked(path)
    assert not is_locked(path + ".turn")
    with lock.held(0):
        pass


def test_another_user_of_the_same_process_may_have_changed_what_is_locked(path):
    lock, users = locks.lock_for(path), (object(), object(), None)
    for turn in range(6 * MANY):
        with lock.held(PATIENCE, users[turn % 3]):
            assert not lock.stayed


def _use(path, started, stop):
    lock, user = locks.lock_for(path), object()
    started.set()
    while not stop.is_set():
        with lock.held(PATIENCE, user):
            pass


def test_another_process_gets_a_lock_that_is_used_all_the_time(path):
    started, stop = PROCESSES.Event(), PROCESSES.Event()
    other = PROCESSES.Process(target=_use, args=(path, started, stop), daemon=True)
    other.start()
    assert started.wait(PATIENCE)
    lock, user = locks.lock_for(path), object()
    for _ in range(20):
        with lock.held(PATIENCE, user):
            pass
        time.sleep(0.001)
    stop.set()
    other.join()


def _keep_and_compute(path, is_kept, stop):
    """Keeps the lock and then never lets another Python thread of this process run."""
    lock, user = locks.lock_for(path), object()
    kept(lock, user)
    is_kept.set()
    while not os.path.exists(stop):
        sum(range(1 << 22))


def test_a_kept_lock_is_given_back_whatever_python_does_meanwhile(path, tmp_path):
    is_kept, stop = PROCESSES.Event(), str(tmp_path / "stop")
    other = PROCESSES.Process(target=_keep_and_compute, args=(path, is_kept, stop), daemon=True)
    other.start()
    assert is_kept.wait(PATIENCE)
    with locks.lock_for(path).held(PATIENCE):
        pass
    open(stop, "w").close()
    other.join()


def _count_up(path, counter, times, user):
    lock = locks.lock_for(path)
    for _ in range(times):
        with lock.held(PATIENCE, user), open(counter, "r+b", buffering=0) as file:
            number = int(file.read())
            file.seek(0)
            file.write(b"%d" % (number + 1))


def _count_up_alone(path, counter, times):
    _count_up(path, counter, times, object())


def test_processes_and_threads_exclude_each_other(path, tmp_path):
    counter = tmp_path / "counter"
    counter.write_bytes(b"0")
    workers = [PROCESSES.Process(target=_count_up_alone, args=(path, counter, 2000), daemon=True) for _ in range(2)]
    workers += [threading.Thread(target=_count_up, args=(path, counter, 1000, user), daemon=True) for user in (1, 1, 2)]
    run_at_once(workers)
    assert counter.read_bytes() == b"7000"


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_has_no_lock_that_its_parent_keeps(path):
    lock, user = locks.lock_for(path), object()

    def take():
        with lock.held(PATIENCE, user):
            assert not lock.stayed
        kept(lock, user)
        until_unlocked(path)

    for _ in range(20):
        kept(lock, user)
        with forked(take):
            for _ in range(MANY):
                with lock.held(PATIENCE, user):
                    pass


def test_locks_that_are_dropped_while_they_are_kept_are_unlocked(tmp_path):
    for number in range(20):
        path = str(tmp_path / f"lock{number}")
        open(path, "w").close()
        kept(locks.lock_for(path), object())
        # No reference is left: the number of its file may be given to the next one at once.
        other = open_read(path)
        time.sleep(0.002)
        assert not is_locked(path)
        other.close()
