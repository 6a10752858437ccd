"""A publisher beside writers that never pause: it gets its turn, in real processes, and is hardly overtaken."""

import statistics
import time

import pyarrow as pa
import pytest

from pyspark_log.storage.store import Store
from tests.processes import PROCESSES
from tests.store_tools import new_store, publish, stage

PUBLISHES = 60
# How long the writers may take to begin, in seconds.
PATIENCE = 120


def rows(value, count=1):
    """Some for each partition."""
    return pa.record_batch({"value": [value] * 2 * count, "partition": pa.array([0, 1] * count, pa.int32())})


def append_for_ever(path, counts, number, stop):
    """Appends to one partition, with its lock held nearly all the time, as large appends to a slow disk have it."""
    writer = Store.open(path).logs.writer("t", number % 2)
    part = stage(Store.open(path), rows(b"x" * 100))[0]
    while not stop.value:
        with writer.hold() as held:
            held.append(bytearray(part.data), sync=False)
            time.sleep(0.002)
        counts[number] += 1


def seconds(action):
    began = time.monotonic()
    action()
    return time.monotonic() - began


def waits(path):
    """How long each of some publishes of a few records to both partitions takes, in seconds."""
    store = Store.open(path)

    def once(number):
        publish(store.decisions, "p", number, stage(store, rows(b"published", 5)))

    first = 0 if not store.topics(internal=True).count("__pylog_publish") else PUBLISHES
    return [seconds(lambda number=number: once(number)) for number in range(first, first + PUBLISHES)]


def overtaken(path, counts):
    """How often the writer of partition 0 gets the lock while another process waits for it, for some waits."""
    writer, times, before = Store.open(path).logs.writer("t", 0), [], -1
    for _ in range(100):
        deadline = time.monotonic() + PATIENCE
        while counts[0] == before:  # This process must not be the one without pauses.
            assert time.monotonic() < deadline, "the writer of partition 0 does not get the lock"
            time.sleep(0.0001)
        before = counts[0]
        with writer.hold():
            times.append(counts[0] - before)
            before = counts[0]
    return times


@pytest.mark.slow
def test_a_publisher_gets_its_turn_beside_writers_that_never_pause(tmp_path, capsys):
    store = new_store(tmp_path, partitions=2)
    alone = waits(store.path)
    counts, stop = PROCESSES.Array("q", 2), PROCESSES.Value("b", 0)
    writers = [
        PROCESSES.Process(target=append_for_ever, args=(store.path, counts, number, stop), daemon=True)
        for number in range(2)
    ]
    for process in writers:
        process.start()
    began = time.monotonic()
    while not all(counts):
        assert time.monotonic() < began + PATIENCE, f"the writers have made {list(counts)} appends"
        time.sleep(0.01)
    beside = waits(store.path)
    turns = overtaken(store.path, counts)
    stop.value = 1
    for process in writers:
        process.join()
    with capsys.disabled():
        for what, times in (("alone", alone), ("beside writers", beside)):
            middle, longest = (1000 * f(times) for f in (statistics.median, max))
            print(f"\na publish {what}: median {middle:.1f} ms, longest {longest:.1f} ms", end="")
        print(f"; overtaken {statistics.mean(turns):.2f} times, {max(turns)} at most")
    # However busy the machine is: a waiter lets those pass that were there before, and hardly any other. It may itself
    # be suspended before it has asked for the lock, so a few of the waits say nothing.
    assert statistics.median(turns) <= 1, turns
    assert len(beside) == PUBLISHES
