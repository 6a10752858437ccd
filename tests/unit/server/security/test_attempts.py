"""How fast one address may guess."""

from pyspark_log.server.security.attempts import Attempts


def test_some_failures_are_free_and_then_each_waits_for_its_turn():
    attempts = Attempts()
    waits = [attempts.begin("10.0.0.1", 100.0) for _ in range(14)]
    assert waits[:11] == [0] * 11
    assert [round(wait, 3) for wait in waits[11:]] == [0.2, 0.4, 0.6]
    assert attempts.begin("10.0.0.2", 100.0) == 0


def test_no_attempt_waits_for_long():
    attempts = Attempts()
    waits = [attempts.begin("10.0.0.1", 0.0) for _ in range(200)]
    assert waits[-1] is None
    assert max(wait for wait in waits if wait is not None) <= 10
    # The next ones are refused until it is their turn again.
    assert attempts.begin("10.0.0.1", 1.0) is not None


def test_failures_are_forgotten():
    attempts = Attempts()
    for _ in range(20):
        attempts.begin("10.0.0.1", 0.0)
    assert attempts.begin("10.0.0.1", 100.0) == 0


def test_those_that_succeed_do_not_count_and_forgive_no_others():
    attempts = Attempts()
    for _ in range(1000):
        assert attempts.begin("10.0.0.1", 0.0) == 0
        attempts.succeeded("10.0.0.1")
    guesses = 0
    while not attempts.begin("10.0.0.1", 0.0):
        guesses += 1
        attempts.begin("10.0.0.1", 0.0)
        attempts.succeeded("10.0.0.1")
    assert guesses <= 11


def test_a_network_of_ipv6_is_one_address():
    attempts = Attempts()
    for number in range(20):
        attempts.begin(f"2001:db8::{number}", 0.0)
    assert attempts.begin("2001:db8::ffff", 0.0)
    assert attempts.begin("2001:db8:0:1::", 0.0) == 0
    assert attempts.begin("fe80::1%eth0", 0.0) == 0


def test_as_many_addresses_as_there_may_be_take_little():
    attempts = Attempts()
    for number in range(30_000):
        attempts.begin(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 0.0)
    assert len(attempts._addresses) == 10_000
