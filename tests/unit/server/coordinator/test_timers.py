"""Deadlines are reached in order, moved and cancelled, without growth of the heap by each of it."""

import random

from pyspark_log.server.coordinator.timers import Timers


def due(timers, now):
    reached = []
    for key, action in timers.due(now):
        action(now)
        reached.append(key[1])
    return reached


def nothing(now):
    pass


def test_deadlines_in_order():
    timers = Timers()
    for name, time in (("c", 30), ("a", 10), ("b", 20), ("a2", 10)):
        timers.set((None, name), time, nothing)
    assert timers.next_deadline() == 10
    assert due(timers, 9) == []
    assert due(timers, 20) == ["a", "a2", "b"]
    assert (timers.next_deadline(), due(timers, 1_000), timers.next_deadline()) == (30, ["c"], None)


def test_a_deadline_is_moved_and_cancelled():
    timers = Timers()
    timers.set((None, "a"), 0, nothing)
    timers.cancel((None, "a"))
    timers.cancel((None, "b"))
    assert timers.next_deadline() is None
    timers.set((None, "a"), 10, nothing)
    timers.set((None, "a"), 30, nothing)
    assert (timers.next_deadline(), due(timers, 29)) == (30, [])
    timers.set((None, "a"), 20, nothing)
    assert (due(timers, 25), due(timers, 100)) == (["a"], [])


def test_a_deadline_that_is_set_while_others_are_reached():
    timers = Timers()
    timers.set((None, "a"), 10, lambda now: timers.set((None, "b"), now, nothing))
    timers.set((None, "c"), 12, nothing)
    assert due(timers, 11) == ["a", "b"]


def test_heartbeats_do_not_fill_the_heap():
    timers = Timers()
    for now in range(0, 100_000, 100):
        for member in range(10):
            timers.set((None, member), now + 10_000, nothing)
        assert due(timers, now) == []
    assert len(timers._heap) <= 20


def test_the_same_as_a_plain_dictionary():
    chance = random.Random(1)
    timers, plain, now = Timers(), {}, 0
    for _ in range(20_000):
        key, what = chance.randrange(8), chance.random()
        if what < 0.6:
            plain[key] = now + chance.randrange(50)
            timers.set((None, key), plain[key], nothing)
        elif what < 0.7:
            timers.cancel((None, key))
            plain.pop(key, None)
        else:
            assert timers.next_deadline() == min(plain.values(), default=None)
            now += chance.randrange(10)
            expected = {key for key, time in plain.items() if time <= now}
            assert set(due(timers, now)) == expected
            plain = {key: time for key, time in plain.items() if time > now}
