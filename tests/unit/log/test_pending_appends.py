"""Threads that wait for one partition append together: one write, one sync, and each learns what became of its own."""

import errno
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from producer_tools import ready
from record_tools import Record, build

from pyspark_log.errors import LockTimeoutError, OutcomeUnknownError, OutOfOrderSequenceError
from pyspark_log.storage.fs import files
from pyspark_log.storage.log import Turnstile
from pyspark_log.storage.log.appending.appends import Appended, PendingAppend
from pyspark_log.storage.store import Store
from tests.store_tools import faults, rows, store_with, values

store = store_with({"segment.bytes": "5000", "retention.ms": "-1"})
# How long something may take that nothing hinders, in seconds, on a machine that has much else to do.
PATIENCE = 120
THREADS = 8


def plain(*values):
    return build([Record(None, value, 1_700_000_000_000) for value in values], "none")


@pytest.fixture
def threads():
    with ThreadPoolExecutor(THREADS) as pool:
        yield pool


def waiting(writer, count):
    """Returns when `count` appends wait for the lock, which this thread holds."""
    deadline = time.monotonic() + PATIENCE
    while len(writer._pending) < count:
        assert time.monotonic() < deadline, "the threads do not come to wait"
        time.sleep(0.001)


def test_one_write_and_one_sync_for_all_that_wait(store, threads, monkeypatch):
    writer = store.logs.writer("t", 0)
    store.append("t", rows(b"first"))
    writes, syncs = [], []
    pwrite, fdatasync = os.pwrite, os.fdatasync
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: writes.append(len(data)) or pwrite(fd, data, at))
    monkeypatch.setattr(os, "fdatasync", lambda fd: syncs.append(fd) or fdatasync(fd))
    with writer.hold():
        sent = [threads.submit(store.append, "t", rows(b"%d" % n), sync=n % 2 == 0) for n in range(THREADS)]
        waiting(writer, THREADS)
    found = [one.result(PATIENCE)[0] for one in sent]
    assert sorted(one.base_offset for one in found) == list(range(1, THREADS + 1))
    for number, one in enumerate(found):
        assert values(store, start=one.base_offset, end=one.next_offset) == [b"%d" % number]
    # The batches; a mark that a sync began; the log end.
    assert len(writes) == 3
    assert len(syncs) == 1
    assert faults(store.path) == []


def test_one_that_is_refused_leaves_the_others(store, threads):
    writer = store.logs.writer("t", 0)
    store.append_batch("t", 0, ready(0, b"a"))
    with writer.hold():
        refused = threads.submit(store.append_batch, "t", 0, ready(5, b"no"))
        others = [threads.submit(store.append, "t", rows(b"%d" % n)) for n in range(4)]
        again = threads.submit(store.append_batch, "t", 0, ready(0, b"a"))
        waiting(writer, 6)
    with pytest.raises(OutOfOrderSequenceError):
        refused.result(PATIENCE)
    assert again.result(PATIENCE).duplicate
    assert sorted(one.result(PATIENCE)[0].base_offset for one in others) == [1, 2, 3, 4]
    assert len(values(store)) == 5


def test_what_does_not_fit_into_a_segment_waits_for_the_next_turn(store, threads):
    writer = store.logs.writer("t", 0)
    with writer.hold():
        sent = [threads.submit(store.append, "t", rows(b"%d" % n * 2000)) for n in range(THREADS)]
        waiting(writer, THREADS)
    assert sorted(one.result(PATIENCE)[0].base_offset for one in sent) == list(range(THREADS))
    assert sorted(values(store)) == [b"%d" % n * 2000 for n in range(THREADS)]
    assert faults(store.path) == []


def test_a_full_disk_fails_all_of_them_and_each_with_an_error_of_its_own(store, threads):
    writer = store.logs.writer("t", 0)
    store.append("t", rows(b"first"))

    def refuse(change):
        if change.path.endswith(".log") and change.kind == "write":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), change.path)

    with writer.hold():
        sent = [threads.submit(store.append, "t", rows(b"%d" % n)) for n in range(3)]
        waiting(writer, 3)
        files.set_observer(refuse)
    errors = [one.exception(PATIENCE) for one in sent]
    files.set_observer(None)
    assert [error.errno for error in errors] == [errno.ENOSPC] * 3
    assert len({id(error) for error in errors}) == 3
    store.append("t", rows(b"last"))
    assert values(store) == [b"first", b"last"]


def test_what_waited_in_vain_is_never_appended(store, threads, monkeypatch):
    writer, hold = store.logs.writer("t", 0), Turnstile.hold
    with hold(writer), monkeypatch.context() as patched:
        patched.setattr(Turnstile, "hold", lambda writer: hold(writer, 0.05))
        late = threads.submit(store.append, "t", rows(b"late"))
        assert isinstance(late.exception(PATIENCE), LockTimeoutError)
    store.append("t", rows(b"v"))
    assert values(store) == [b"v"]


def test_what_another_thread_has_begun_is_unknown_until_it_is_done():
    pending = PendingAppend([b"batch"], sync=False)
    assert pending.claim()
    assert not pending.claim()
    with pytest.raises(OutcomeUnknownError):
        pending.outcomes()
    pending.fail(KeyboardInterrupt())  # Of the thread that had begun it.
    with pytest.raises(OutcomeUnknownError):
        pending.outcomes()
    pending.finish([Appended(3, 4)])
    assert pending.outcomes() == [Appended(3, 4)]


def test_only_one_of_many_threads_gets_it(threads):
    for _ in range(200):
        pending, start = PendingAppend([b"batch"], sync=False), threading.Barrier(THREADS)

        def claim(pending=pending, start=start):
            start.wait(PATIENCE)
            return pending.claim()

        assert sum(threads.map(lambda _, claim=claim: claim(), range(THREADS))) == 1


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_does_not_append_for_a_thread_of_its_parent(store, threads):
    writer = store.logs.writer("t", 0)
    with writer.hold():
        sent = threads.submit(store.append, "t", rows(b"parent"))
        waiting(writer, 1)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                Store.open(store.path).describe_topic("t")
                store.append("t", rows(b"child"))
                code = 0
            finally:
                os._exit(code)
    sent.result(PATIENCE)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert sorted(values(store)) == [b"child", b"parent"]


def test_many_threads_append_to_one_partition(store, threads):
    def work(thread):
        for number in range(100):
            [appended] = store.append("t", rows(b"%d/%d" % (thread, number)), sync=number % 10 == 0)
            assert values(store, start=appended.base_offset, end=appended.next_offset) == [b"%d/%d" % (thread, number)]

    list(threads.map(work, range(THREADS)))
    found = values(store)
    assert len(found) == 100 * THREADS
    for thread in range(THREADS):
        assert [one for one in found if one.startswith(b"%d/" % thread)] == [b"%d/%d" % (thread, n) for n in range(100)]
    assert faults(store.path) == []
