"""How a consumer waits: woken by records of other processes, without work meanwhile; by other threads; after a fork."""

import gc
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from pyspark_log import Consumer, Producer, Store, TopicPartition
from pyspark_log.clients.consuming import waiting
from pyspark_log.clients.consuming.waiting import Waiter
from pyspark_log.errors import WakeupError
from tests.processes import PATIENCE, PROCESSES, forked, started
from tests.store_tools import rows

PATIENCE_MS = PATIENCE * 1000
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def store(tmp_path):
    store = Store.create(tmp_path / "store")
    for name in ("t", "other"):
        store.create_topic(name, 2, {"retention.ms": "-1"})
    return store


@pytest.fixture(params=["events", "looks"])
def consumer(request, store, monkeypatch):
    """It waits for what the OS reports; or it looks now and then, as on a shared file system."""
    if request.param == "looks":
        monkeypatch.setattr(store.partitions, "events", lambda: None)
    with Consumer(store, "t", auto_offset_reset="earliest") as consumer:
        assert consumer._holding.waiter.reports == (request.param == "events")
        yield consumer


def test_records_of_another_process_end_a_wait(store, consumer):
    mine, others = PROCESSES.Pipe()
    with started(relay, store.path, others):
        for number in range(20):
            value = b"%d" % number
            # Sent when the poll waits already, or just before.
            timer = threading.Timer(0.002 * (number % 5), mine.send, [("t", number % 2, value)])
            timer.start()
            polled = consumer.poll(PATIENCE_MS)
            assert [[record.value for record in records] for records in polled.values()] == [[value]]
        mine.close()


def relay(connection, path, orders):
    store = Store.open(path)
    connection.send("ready")
    while True:
        try:
            topic, partition, value = orders.recv()
        except EOFError:
            return
        store.append(topic, rows(value), partition=partition)


def write_until_killed(connection, path):
    store = Store.open(path)
    with Producer(store) as producer:
        number = 0
        while True:
            producer.send("t", b"%d" % number, partition=0)
            number += 1
            if number == 2000:
                connection.send("writes")


def test_the_records_of_a_killed_writer(store, consumer):
    consumer.pause(T1)
    with started(write_until_killed, store.path) as (process, _):
        found = [next(consumer).value for _ in range(1000)]
        process.kill()
        process.join()
        consumer.stop_at()
        found += [record.value for record in consumer]
    assert found == [b"%d" % number for number in range(len(found))]
    # The next writer's follow.
    store.append("t", rows(b"after"), partition=0)
    consumer.stop_at()
    assert [record.value for record in consumer] == [b"after"]


def test_a_wait_ends_in_time(consumer):
    started_at = time.monotonic()
    assert consumer.poll(30) == {}
    assert time.monotonic() - started_at >= 0.03


def test_a_consumer_that_is_closed_while_it_waits(consumer, monkeypatch):
    waiter = consumer._holding.waiter

    def sleep(poll, until, sleep=waiter._sleep):
        consumer.close()  # As a handler of a signal may.
        sleep(poll, until)

    monkeypatch.setattr(waiter, "_sleep", sleep)
    assert consumer.poll(PATIENCE_MS) == {}
    assert not waiter.take_woken()


def test_another_thread_wakes_a_poll(store, consumer):
    for call in (lambda: consumer.poll(PATIENCE_MS), lambda: next(consumer), lambda: consumer.poll_arrow(PATIENCE_MS)):
        timer = threading.Timer(0.02, consumer.wakeup)
        timer.start()
        with pytest.raises(WakeupError):
            call()
        timer.join()
        assert consumer.poll() == {}
    # Before the poll, and often.
    for _ in range(100_000):
        consumer.wakeup()
    with pytest.raises(WakeupError):
        consumer.poll(PATIENCE_MS)
    store.append("t", rows(b"v"), partition=0)
    assert len(consumer.poll()[T0]) == 1


def test_two_threads_do_not_read_with_one_consumer(store, consumer, monkeypatch):
    waiter, is_waiting = consumer._holding.waiter, threading.Event()

    def sleep(poll, until, sleep=waiter._sleep):
        is_waiting.set()
        sleep(poll, until)

    monkeypatch.setattr(waiter, "_sleep", sleep)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(consumer.poll, PATIENCE_MS)
        assert is_waiting.wait(PATIENCE)
        for call in (consumer.poll, consumer.poll_arrow, lambda: next(consumer)):
            with pytest.raises(RuntimeError, match=r"used by another thread \(ThreadPoolExecutor-\S+\) now: a"):
                call()
        store.append("t", rows(b"v"), partition=0)
        assert [record.value for record in waiting.result()[T0]] == [b"v"]
    assert consumer.poll() == {}


def test_two_threads_do_not_make_one_record(store):
    begun, end = threading.Event(), threading.Event()

    def read(value):
        begun.set()
        assert end.wait(PATIENCE)
        return value

    store.append("t", rows(b"0", b"1"), partition=0)
    with (
        Consumer(store, "t", auto_offset_reset="earliest", value_deserializer=read) as consumer,
        ThreadPoolExecutor(1) as pool,
    ):
        first = pool.submit(next, consumer)
        assert begun.wait(PATIENCE)
        for call in (lambda: next(consumer), consumer.poll, lambda: consumer.seek(T0, 0)):
            with pytest.raises(RuntimeError, match="used by another thread"):
                call()
        end.set()
        assert (first.result().value, next(consumer).value) == (b"0", b"1")


def test_a_signal_wakes_a_poll(consumer):
    before = signal.signal(signal.SIGUSR1, lambda *_: consumer.wakeup())
    try:
        threading.Timer(0.02, os.kill, [os.getpid(), signal.SIGUSR1]).start()
        with pytest.raises(WakeupError):
            consumer.poll(PATIENCE_MS)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_forked_child_takes_nothing_of_its_parent(store, consumer):
    consumer.poll()

    def poll():
        with pytest.raises(ValueError, match="a forked child makes its own"):
            consumer.poll()
        assert not consumer._holding.waiter._end.alive
        consumer.close()
        with Consumer(store, "t", auto_offset_reset="earliest") as own:
            store.append("t", rows(b"v"), partition=0)
            assert len(own.poll()) == 1

    with forked(poll):
        pass
    assert [record.value for record in consumer.poll(PATIENCE_MS)[T0]] == [b"v"]


def test_files_are_closed(store):
    gc.collect()  # what earlier tests have left
    before = set(os.listdir("/proc/self/fd"))
    for how in ("closed", "dropped"):
        consumer = Consumer(store, "t")
        consumer.poll()
        if how == "closed":
            consumer.close()
        del consumer
    # Fewer are no fault: what earlier tests have left may be closed meanwhile.
    assert set(os.listdir("/proc/self/fd")) <= before


def test_only_what_has_changed_is_looked_at(store, monkeypatch):
    with Consumer(store, "t", auto_offset_reset="earliest") as consumer:
        consumer.poll()
        asked, latest = [], store.partitions.latest_offsets
        monkeypatch.setattr(
            store.partitions, "latest_offsets", lambda these, **how: asked.append(these) or latest(these, **how)
        )
        store.append("t", rows(b"v"), partition=1)
        consumer.poll()
        consumer.poll()
        assert asked == [[T1]]


# ---- the waiter


def test_what_has_changed(store):
    waiter = Waiter(store)
    assert waiter.take_changed() == set()
    waiter.watch([T0, T1, TopicPartition("missing", 0)])
    assert waiter.take_changed() == {T0, T1}
    for topic in ("t", "other"):
        store.append(topic, rows(b"v"), partition=1)
    assert (waiter.take_changed(), waiter.take_changed()) == ({T1}, set())
    store.append("t", rows(b"v"), partition=0)
    waiter.watch([T0, TopicPartition("other", 0)])
    # What was reported before is not lost.
    assert waiter.take_changed() == {T0, TopicPartition("other", 0)}
    store.append("t", rows(b"v"), partition=0)
    waiter.wait(time.monotonic() + PATIENCE)
    assert waiter.take_changed() == {T0}
    waiter.close()


def test_the_groups_log_can_be_watched(store):
    at = store.groups.log.membership.partition_of("g")
    waiter = Waiter(store)
    waiter.watch([at])
    waiter.take_changed()
    store.groups["g"].commit({T0: 1})
    waiter.wait(time.monotonic() + PATIENCE)
    assert waiter.take_changed() == {at}
    waiter.close()


def test_too_many_reports(store, monkeypatch):
    waiter = Waiter(store)
    monkeypatch.setattr(waiter._events, "changed", lambda: None)
    store.append("other", rows(b"v"), partition=0)
    waiter.wait(time.monotonic() + PATIENCE)
    assert waiter.take_changed() is None
    waiter.close()


def test_writers_of_other_topics_cost_few_looks(store, monkeypatch):
    """However many appends there are meanwhile, a waiter looks at the reports after growing pauses only."""
    waiter = Waiter(store)
    waiter.watch([T0])
    waiter.take_changed()
    rests, end = [], threading.Event()
    sleep = waiter._sleep

    def note(poll, until):
        if poll is waiter._woken:
            rests.append(waiter._rest)
            if len(rests) == 12:
                end.set()
        sleep(poll, until)

    monkeypatch.setattr(waiter, "_sleep", note)

    def write():
        while not end.is_set():
            store.append("other", rows(b"v"), partition=0)
        store.append("t", rows(b"v"), partition=0)

    writer = threading.Thread(target=write)
    writer.start()
    waiter.wait(time.monotonic() + PATIENCE)
    writer.join()
    assert waiter.take_changed() == {T0}
    assert (rests[0], rests[11]) == (waiting._LEAST_REST, waiting._MOST_REST)
    waiter.close()


def test_pauses_grow_where_nothing_is_reported(store, monkeypatch):
    monkeypatch.setattr(store.partitions, "events", lambda: None)
    waiter = Waiter(store)
    now, used, pauses = [1000.0], [5.0], []
    monkeypatch.setattr(waiting.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(waiting.time, "thread_time", lambda: used[0])

    def sleep(_, until):
        pauses.append(until - now[0])
        now[0] = until

    monkeypatch.setattr(waiter, "_sleep", sleep)
    waiter.note_found()
    for _ in range(200):
        assert waiter.take_changed() is None
        waiter.wait(1e9)
    assert pauses[0] == pytest.approx(0.001)
    assert pauses == sorted(pauses)
    assert pauses[-1] == pytest.approx(0.05)
    # A look that takes long is rare; and nothing is later than the end of the wait.
    used[0] += 0.01
    waiter.wait(1e9)
    assert pauses[-1] == pytest.approx(2)
    waiter.wait(now[0] + 0.003)
    assert pauses[-1] == pytest.approx(0.003)
    waiter.take_changed()
    waiter.note_found()
    waiter.wait(1e9)
    assert pauses[-1] == pytest.approx(0.001)
    monkeypatch.undo()
    waiter.close()


def test_a_store_that_others_write_in_an_object_store(object_url):
    Store.create(object_url).create_topic("t", 1)
    with Consumer(Store.open(object_url), "t", auto_offset_reset="earliest") as consumer:
        assert consumer.poll() == {}
        Store.open(object_url).append("t", rows(b"v"))
        assert [record.value for record in consumer.poll(PATIENCE_MS)[T0]] == [b"v"]
