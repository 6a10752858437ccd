"""The loop of a server: what it calls, in which order, and what wakes it."""

import os
import signal
import socket
import threading

import pyarrow as pa
import pytest

from pyspark_log import Store
from pyspark_log.server.network import Loop, OthersFirst
from pyspark_log.server.state.appends import Appends, PartitionKey


@pytest.fixture
def clock(loop, monkeypatch):
    """A time that only the test moves. The loop still waits for real, for as long as it thinks is left."""
    clock = [100.0]
    monkeypatch.setattr(loop, "time", lambda: clock[0])
    return clock


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    for one in (ours, theirs):
        one.setblocking(False)
    yield ours, theirs
    ours.close()
    theirs.close()


def test_timers_come_in_the_order_of_their_times(loop, clock):
    called = []
    for seconds in (3, 1, 2):
        loop.call_later(seconds, called.append, seconds)
    loop.call_later(1, called.append, "again")
    clock[0] += 2
    loop.call_later(0, loop.stop)
    loop.run()
    assert called == [1, "again", 2]


def test_a_cancelled_timer_does_not_come(loop, clock):
    called = []
    timer = loop.call_later(1, called.append, "cancelled")
    loop.call_later(0.5, timer.cancel)
    loop.call_later(1, called.append, "kept")
    loop.call_later(1, loop.stop)
    clock[0] += 1
    loop.run()
    assert called == ["kept"]


def test_what_is_called_soon_comes_after_sockets_that_are_ready(loop, pair):
    ours, theirs = pair
    called = []

    def readable():
        called.append(ours.recv(10))
        if called.count(b"x") == 2:
            loop.stop()

    def once_more():
        called.append("soon")
        theirs.send(b"x")

    loop.add_reader(ours.fileno(), readable)
    theirs.send(b"x")
    loop.call_soon(once_more)
    loop.run()
    assert called == [b"x", "soon", b"x"]


def test_readers_and_writers_of_one_socket(loop, pair):
    ours, theirs = pair
    called = []

    def writable():
        called.append("write")
        loop.remove_writer(ours.fileno())
        theirs.send(b"x")

    def readable():
        called.append("read")
        loop.remove_reader(ours.fileno())
        # What is still there to read, and room to write, call nothing any more.
        loop.call_later(0.01, loop.stop)

    loop.add_writer(ours.fileno(), writable)
    loop.add_reader(ours.fileno(), readable)
    loop.run()
    assert called == ["write", "read"]


def test_another_thread_wakes_it(loop):
    called = []

    def work():
        for number in range(1000):
            loop.call_from_elsewhere(called.append, number)
        loop.call_from_elsewhere(loop.stop)

    thread = threading.Thread(target=work)
    loop.call_soon(thread.start)
    loop.run()
    thread.join()
    assert called == list(range(1000))


def test_a_signal_wakes_it(loop):
    """Also one that comes before it waits: its handler has run by then, and the byte is there."""
    before = signal.signal(signal.SIGUSR1, lambda *_: loop.stop())
    wake_fd = signal.set_wakeup_fd(loop.wake_fd)
    try:
        os.kill(os.getpid(), signal.SIGUSR1)
        loop.run()
    finally:
        signal.set_wakeup_fd(wake_fd)
        signal.signal(signal.SIGUSR1, before)


def test_what_comes_after_an_error_is_called(loop, pair, caplog):
    ours, theirs = pair

    def fail():
        raise ValueError("a fault")

    def read_and_fail():
        ours.recv(10)
        loop.call_soon(loop.stop)
        fail()

    loop.call_soon(fail)
    loop.call_later(0, fail)
    loop.add_reader(ours.fileno(), read_and_fail)
    theirs.send(b"x")
    loop.run()
    assert caplog.text.count("ValueError: a fault") == 3


def test_a_closed_loop_is_not_woken():
    other = Loop()
    other.close()
    other.call_from_elsewhere(print)
    assert other.is_closed


def test_consumers_that_wait_come_before_the_producer_that_has_woken_them(loop):
    appends, key, came = Appends(loop, None), PartitionKey("topic", 0), []

    async def consume(number):
        waiting = appends.waiting([key])
        await waiting.change(60)
        waiting.close()
        came.append(number)

    async def produce():
        came.append(appends.appended(key, 0, 1, None))
        await OthersFirst()
        came.append("the producer")
        loop.stop()

    not_asked = appends.waiting([key])  # as a session that is kept between two requests: it does not wait now
    for number in (10, 11):
        loop.start(consume(number))
    loop.start(produce())
    loop.run()
    assert came == [2, 10, 11, "the producer"]
    assert list(not_asked.take()) == [key]
    appends.close()


def test_a_log_is_kept_until_a_change_of_it_is_reported_or_half_a_second(loop, clock, tmp_path):
    with Store.create(tmp_path / "store") as store:
        store.create_topic("t", 2)
        topic_id = store.describe_topic("t").topic_id
        quiet, key = PartitionKey(topic_id, 0), PartitionKey(topic_id, 1)
        appends, log = Appends(loop, store.partitions.events()), object()
        appends.keep(key, log)
        assert appends.kept(key) is None  # nothing reads the events yet
        waiting = appends.waiting([quiet])
        appends.keep(quiet, log)
        assert appends.kept(key) is appends.kept(quiet) is log
        store.append("t", pa.record_batch({"value": [b"a"]}), partition=1)
        appends.refresh_kept()
        assert (appends.kept(key), appends.kept(quiet)) == (None, log)
        appends.changed(quiet)
        assert appends.kept(quiet) is None
        appends.keep(quiet, log)
        clock[0] += 0.4
        assert appends.kept(quiet) is log
        clock[0] += 0.2
        assert appends.kept(quiet) is None
        waiting.close()
        appends.close()


def test_what_the_server_writes_itself_is_not_reported_to_it(loop, tmp_path):
    with Store.create(tmp_path / "store") as store:
        store.create_topic("t", 2)
        topic_id = store.describe_topic("t").topic_id
        own, other = PartitionKey(topic_id, 0), PartitionKey(topic_id, 1)
        appends, log = Appends(loop, store.partitions.events()), object()
        waiting = appends.waiting([own, other])

        def append(partition):
            store.append("t", pa.record_batch({"value": [b"a"]}), partition=partition)

        append(1)
        append(0)
        appends.written(*own)
        appends.look()
        assert list(waiting.take()) == [other]
        assert (appends.appended(own, 0, 10, lambda: log), appends.kept(own)) == (0, log)
        assert waiting.take() == {own: (0, log)}
        append(0)  # another process
        appends.look()
        assert (waiting.take(), appends.kept(own)) == ({own: None}, None)
        waiting.close()
        appends.close()


def test_reports_that_cannot_be_read_are_no_error_of_an_append(loop, tmp_path, monkeypatch, caplog):
    def fail():
        raise OSError("no memory")

    with Store.create(tmp_path / "store") as store:
        store.create_topic("t", 1)
        events, key = store.partitions.events(), PartitionKey("t", 0)
        appends = Appends(loop, events)
        waiting = appends.waiting([key])
        monkeypatch.setattr(events, "changed", fail)
        appends.written(*key)
        assert "the changes of partitions cannot be read: no memory" in caplog.text
        waiting.close()
        appends.close()


def test_what_is_kept_has_few_bytes_of_records(loop, tmp_path):
    with Store.create(tmp_path / "store") as store:
        store.create_topic("t", 1)
        appends = Appends(loop, store.partitions.events())
        keys = [PartitionKey("t", number) for number in range(100)]
        waiting = appends.waiting(keys)
        for key in keys:
            appends.keep(key, object(), 1 << 20)
        assert sum(appends.kept(key) is not None for key in keys) <= 8
        assert appends.kept(keys[-1]) is not None
        waiting.close()
        appends.close()
