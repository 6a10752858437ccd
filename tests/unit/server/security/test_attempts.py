"""How fast one address may guess."""

import pytest

from pyspark_log.server.network import Wait
from pyspark_log.server.security.attempts import Attempts


class _Loop:
    """A clock that the test moves."""

    def __init__(self):
        self.now, self.calls = 1000.0, []

    def time(self):
        return self.now

    def call_later(self, seconds, action, *arguments):
        self.calls.append((self.now + seconds, action, arguments))

    def pass_time(self, seconds):
        end = self.now + seconds
        while due := [one for one in self.calls if one[0] <= end]:
            first = min(due, key=lambda one: one[0])
            self.calls.remove(first)
            self.now = max(self.now, first[0])
            first[1](*first[2])
        self.now = end


class _Attempt:
    """One that waits for its turn, or has it."""

    def __init__(self, attempts, host):
        self._attempts, self._turn = attempts, None
        self._waiting = attempts.turn(host)
        self._step()

    def _step(self):
        try:
            wait = self._waiting.send(None)
        except StopIteration as end:
            self._turn = end.value
        else:
            assert isinstance(wait, Wait)
            wait.then(self._step)

    @property
    def has_turn(self):
        return self._turn is not None

    def end(self, *, failed):
        self._attempts.end(self._turn, failed=failed)

    def leave(self):
        self._waiting.close()


@pytest.fixture
def loop():
    return _Loop()


@pytest.fixture
def attempts(loop):
    return Attempts(loop)


def _fail(attempts, count, host="10.0.0.1"):
    """How many of some attempts, which come one after the other, have failed at once."""
    done = 0
    for _ in range(count):
        one = _Attempt(attempts, host)
        if one.has_turn:
            one.end(failed=True)
            done += 1
        else:
            one.leave()
    return done


def test_ten_failures_are_free_and_then_five_come_in_a_second(loop, attempts):
    assert _fail(attempts, 30) == 10
    later = [_Attempt(attempts, "10.0.0.1") for _ in range(20)]
    begun = 0
    for _ in range(10):
        loop.pass_time(0.2)
        [one] = [one for one in later if one.has_turn]
        later.remove(one)
        one.end(failed=True)
        begun += 1
    assert begun == 10
    # Another address has its own turn.
    assert _fail(attempts, 1, "10.0.0.2") == 1


def test_many_that_succeed_wait_for_nothing_but_each_other(attempts):
    waiting = [_Attempt(attempts, "10.0.0.1") for _ in range(500)]
    while waiting:
        having = [one for one in waiting if one.has_turn]
        assert len(having) == min(10, len(waiting))
        waiting.remove(having[0])
        having[0].end(failed=False)


def test_one_that_succeeds_does_not_wait_for_the_pause_of_the_next(loop, attempts):
    _fail(attempts, 10)
    later = [_Attempt(attempts, "10.0.0.1") for _ in range(3)]
    loop.pass_time(0.2)
    for one in later:
        assert one.has_turn
        one.end(failed=False)


def test_a_success_forgives_no_failure(attempts):
    """A client may know one password, and guess another."""
    guesses = 0
    while _fail(attempts, 1):
        guesses += 1
        one = _Attempt(attempts, "10.0.0.1")
        if one.has_turn:
            one.end(failed=False)
        else:
            one.leave()
    assert guesses == 10


def test_failures_are_forgotten_after_a_minute(loop, attempts):
    assert _fail(attempts, 20) == 10
    loop.pass_time(61)
    assert _fail(attempts, 20) == 10


def test_one_that_leaves_gives_its_turn_to_the_next(loop, attempts):
    _fail(attempts, 10)
    first, second, third = (_Attempt(attempts, "10.0.0.1") for _ in range(3))
    first.leave()
    loop.pass_time(0.2)
    assert second.has_turn
    assert not third.has_turn
    second.end(failed=False)
    assert third.has_turn
    third.end(failed=False)


def test_a_network_of_ipv6_is_one_address(attempts):
    for number in range(10):
        assert _fail(attempts, 1, f"2001:db8::{number}") == 1
    assert _fail(attempts, 1, "2001:db8::ffff") == 0
    assert _fail(attempts, 1, "2001:db8:0:1::") == 1
    assert _fail(attempts, 1, "fe80::1%eth0") == 1


def test_as_many_addresses_as_there_may_be_take_little(attempts):
    waiting = [_Attempt(attempts, "10.0.0.1") for _ in range(11)]
    for number in range(30_000):
        _fail(attempts, 1, f"11.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert len(attempts._addresses) <= 10_001
    # None that waits is forgotten.
    waiting[0].end(failed=False)
    assert waiting[10].has_turn
