"""What clients use of their quotas, on a clock that the test moves."""

import logging

import pytest

from pyspark_log.errors import DescriptionError
from pyspark_log.server.quotas import ClientQuotas, Entity, Throttles
from pyspark_log.server.quotas.entities import CONNECTION, FETCH, MUTATION, PRODUCE, REQUEST
from tests.documents import documents_at


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def file(tmp_path):
    return ClientQuotas(documents_at(tmp_path))


@pytest.fixture
def throttles(file, clock):
    return Throttles(file, clock)


def put(file, entity, **values):
    file.change(lambda known: {**known, entity: values})


def pause(throttles, user="anna", client="app", *, produced=0, seconds=0.0):
    throttle = throttles.of(user, client)
    if throttle is None:
        return None
    throttle.produced(produced)
    throttle.worked(seconds)
    throttle.note()
    return throttle.pause_ms


def test_without_quotas_nothing_is_counted(throttles):
    assert throttles.of("anna", "app") is None
    assert throttles.connection_wait("10.0.0.1") == 0
    assert list(throttles.usages()) == []


def test_bytes_until_it_is_too_much(file, throttles, clock):
    put(file, Entity("anna"), **{PRODUCE: 1000})
    clock.now += 1
    assert pause(throttles, produced=10_000) == 0
    assert pause(throttles, produced=500) == 500
    # All clients of the user together; others are free.
    assert pause(throttles, client="tool", produced=500) == 1000
    assert pause(throttles, user="ben", produced=1_000_000) is None
    clock.now += 11
    assert pause(throttles, produced=10_000) == 0


def test_under_a_default_each_has_its_own(file, throttles, clock):
    put(file, Entity(client_id=""), **{PRODUCE: 1000})
    clock.now += 1
    assert pause(throttles, client="app", produced=11_000) == 1000
    assert pause(throttles, client="tool", produced=10_000) == 0


def test_a_change_counts_within_a_tenth_of_a_second(file, throttles, clock):
    assert pause(throttles, produced=10_000) is None
    put(file, Entity("anna"), **{PRODUCE: 1000})
    assert pause(throttles, produced=20_000) is None
    clock.now += 0.1
    assert pause(throttles, produced=20_000) == 10_000
    put(file, Entity("anna"), **{PRODUCE: 2000})
    throttles.look_again()
    # What was used counts for the new one, too.
    assert pause(throttles, produced=2000) == 1000
    put(file, Entity("anna"))
    throttles.look_again()
    assert pause(throttles, produced=1_000_000) is None


def test_time_is_limited_to_a_pause_of_a_second(file, throttles, clock):
    put(file, Entity("anna"), **{REQUEST: 1, PRODUCE: 1000})
    clock.now += 1
    assert pause(throttles, seconds=0.1) == 0
    assert pause(throttles, seconds=0.005) == 500
    assert pause(throttles, seconds=1) == 1000
    # The longest pause is the one.
    assert pause(throttles, seconds=1, produced=13_000) == 3000
    [produce, request] = sorted(throttles.usages())
    assert (produce.name, produce.throttled, request.name, request.throttled) == (PRODUCE, 1, REQUEST, 2)
    assert (produce.pause_ms, request.pause_ms) == (3000, 750)
    assert (produce.user, produce.client_id, produce.rate) == ("anna", "", 1300)


def test_the_mean_pause_is_exact(file, throttles, clock):
    put(file, Entity("anna"), **{PRODUCE: 1000})
    clock.now += 1
    assert pause(throttles, produced=11_317) == 1317
    for _ in range(10):
        clock.now += 1.03
        assert [one.pause_ms for one in throttles.usages()] == [1317]
    clock.now += 1.03
    assert [one.pause_ms for one in throttles.usages()] == [0]


def test_a_fetch_that_is_too_much_does_not_count(file, throttles, clock):
    put(file, Entity("anna"), **{FETCH: 1000})
    clock.now += 1
    throttle = throttles.of("anna", "app")
    assert throttle.most_fetched == 10_000
    assert not throttle.fetched(10_000)
    for _ in range(3):
        throttle = throttles.of("anna", "app")
        assert throttle.fetched(2000)
        assert throttle.pause_ms == 2000
    clock.now += 2
    assert not throttles.of("anna", "app").fetched(0)


def test_partitions(file, throttles, clock):
    put(file, Entity("anna"), **{MUTATION: 1})
    clock.now += 1
    throttle = throttles.of("anna", "app")
    assert throttle.most_fetched is None
    assert throttle.mutate(20, strict=True)
    assert not throttle.mutate(1, strict=True)
    throttle.note()
    assert throttle.pause_ms == 9000
    throttle = throttles.of("anna", "app")
    assert throttle.mutate(1, strict=False)
    assert throttle.pause_ms == 10_000
    [usage] = throttles.usages()
    assert (usage.name, usage.throttled) == (MUTATION, 1)


def test_connections_of_an_address(file, throttles, clock):
    put(file, Entity(ip="10.0.0.1"), **{CONNECTION: 1})
    clock.now += 1
    assert [throttles.connection_wait("10.0.0.1") for _ in range(12)] == [0] * 10 + [1] * 2
    assert throttles.connection_wait("::ffff:10.0.0.1") == 1
    assert throttles.connection_wait("10.0.0.2") == 0
    # Those that were refused do not count.
    clock.now += 11
    assert [throttles.connection_wait("10.0.0.1") for _ in range(11)] == [0] * 10 + [1]
    assert throttles.of("anna", "app") is None


def test_what_is_over_is_dropped(file, throttles, clock):
    put(file, Entity(client_id=""), **{PRODUCE: 1000, MUTATION: 1})
    put(file, Entity(ip=""), **{CONNECTION: 10})
    clock.now += 1
    for number in range(1000):
        throttle = throttles.of("anna", f"app{number}")
        throttle.produced(10)
        throttle.mutate(12 if number else 1000, strict=False)
        throttles.connection_wait(f"10.0.{number // 256}.{number % 256}")
    assert len(list(throttles.usages())) == 1000
    clock.now += 12
    assert throttles.of("ben", "tool") is not None
    assert list(throttles.usages()) == []
    assert throttles._connections == {}
    # One has more to wait for, and is not forgiven.
    assert list(throttles._buckets) == [("", "app0")]


def test_a_damaged_file(file, throttles, clock, tmp_path, caplog):
    put(file, Entity("anna"), **{PRODUCE: 1000})
    clock.now += 1
    assert pause(throttles, produced=20_000) == 10_000
    (tmp_path / "state" / "quotas.json").write_text("{}")
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            clock.now += 1
            assert pause(throttles) is not None
    assert len(caplog.records) == 1
    assert "the quotas stay as they were" in caplog.text
    with pytest.raises(DescriptionError, match=r"quotas.json is no valid list of quotas"):
        Throttles(file, clock)


def test_a_client_that_changes_its_id_takes_no_more_memory(file, throttles, clock):
    put(file, Entity(client_id=""), **{PRODUCE: 1000})
    clock.now += 1
    pauses = [pause(throttles, client=f"{number:0100000}", produced=10_000) for number in range(300)]
    # Their first 1,025 characters are equal.
    assert pauses[0] == 0
    assert pauses[-1] > 0
    assert len(list(throttles.usages())) == 1
    pauses = [pause(throttles, client=str(number), produced=100) for number in range(11_000)]
    assert not any(pauses[:9999])
    # The others are one client.
    assert pauses[-1] > 0
    assert len(list(throttles.usages())) == 10_001
    clock.now += 12
    assert pause(throttles, client="10999", produced=10_000) == 0
