"""A store in an object store after a stop, or a fault, at each of its requests: nothing is lost or there twice.

A program publishes numbered output with its positions, small and in objects of its own, claims, commits, and changes
topics. It is stopped at a request, another process continues from what the store says, and the end must be that of an
undisturbed run. The same with merging, compaction and cleaning. The requests that change something are tried. Then no
process stops, but the object store or the network misbehaves at one request: the process itself must reach that end.
"""

import itertools

import pyarrow as pa
import pytest

from pyspark_log.storage.object_store import ObjectStore
from pyspark_log.storage.publish_log import checkpoint
from pyspark_log.storage.publish_log.parts import staging
from pyspark_log.types import OffsetStep, TopicPartition
from tests.crash.sampling import TIMEOUT, spread
from tests.object_proxy import Answer, pass_on, proxy
from tests.store_tools import Stopped, observed_requests

AT = TopicPartition("in", 0)
PUBLISHES = 5


@pytest.fixture(scope="module", autouse=True)
def little_sizes():
    """Some hundred bytes go to an object of their own, and checkpoints come often."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(staging, "INLINE_LIMIT", 300)
        patched.setattr(staging, "MOST_INLINE", 500)
        patched.setattr(checkpoint, "EVERY", 4)
        yield


@pytest.fixture
def url(request):
    """Makes a URL of a new store: at a server, if that is to misbehave, else in memory."""
    below = request.getfixturevalue("served_url" if "misbehaviour" in request.fixturenames else "memory_url")
    numbers = itertools.count()

    def make():
        found = f"{below}/{next(numbers)}"
        store = ObjectStore.create(found)
        store.create_topic("in", 1)
        store.create_topic("out", 2)
        return found

    return make


def run(url):
    """Does what is left to do, by what the store says; a process that is started again does the same."""
    store = ObjectStore.open(url)
    store.publishes.claim("query", "run")
    publisher = store.publishes.publishers()[0]
    # The last one once more: whether its end was seen is not known.
    for number in range(max(publisher.number, 0), PUBLISHES):
        writer = store.publishes.writer(store.publishes.plan(["out"]))
        # Every second one is too large for the decision.
        for part in range(3 if number % 2 else 1):
            rows = {"value": [b"%d %d " % (number, part) * 10] * 6, "partition": pa.array([0, 1] * 3, pa.int32())}
            writer.append("out", pa.record_batch(rows))
        committed = store.groups["g"].committed()
        before = committed[AT].offset if AT in committed else None
        steps = [OffsetStep("g", AT, before, number + 1)] if before != number + 1 else []
        store.publishes.publish("query", number, writer.finish(), steps=steps, run="run", claimed=True)
    store.groups["h"].commit({AT: 7})
    store.alter_configs("in", {"retention.ms": "5"})
    if store.describe_topic("in").partitions == 1:
        store.add_partitions("in", 3)
    store.delete_records("out", 0, 4)


def contents(url):
    """What the store has for its users."""
    store = ObjectStore.open(url)
    topics = {
        name: (store.describe_topic(name).partitions, store.describe_topic(name).configs) for name in store.topics()
    }
    rows = {
        partition: [
            (row["offset"], row["value"]) for rows in store.read("out", partition) for row in rows.to_pylist()
        ]
        for partition in range(2)
    }  # fmt: skip
    groups = {name: {at: one.offset for at, one in store.groups[name].committed().items()} for name in store.groups}
    publishers = [(one.publisher, one.number, one.records) for one in store.publishes.publishers()]
    return topics, rows, groups, publishers


def stop_at(number):
    """An observer that stops the process at its request of that number.

    Each counts twice: before it is made, and after its answer.
    """
    seen = itertools.count()

    def observe(_request):
        if next(seen) == number:
            raise Stopped

    return observe


def changes(requests):
    """Where to stop: before and after each request that changes something. Elsewhere a stop leaves the same."""
    return [number for number, one in enumerate(requests) if one.kind in ("put", "create", "delete")]


# ---- upkeep


class Days:
    """The time of the store's processes: each step of upkeep is a day later."""

    now = 1_800_000_000_000

    def __call__(self):
        return self.now


def upkeep(url, clock):
    """Merges, compacts and cleans, day after day, until nothing is left to do; stray output is among what goes."""
    for day in range(5):
        clock.now = Days.now + day * 8 * 24 * 60 * 60 * 1000
        store = ObjectStore.open(url)
        store.append("log", [{"value": b"day %d" % day}]) if f"day {day}" not in days(store) else None
        store.merge()
        assert not any(outcome.problem for outcome in store.compact("keys"))
        store.clean()


def days(store):
    return [value.decode() for part in store.read("log", 0) for value in part["value"].to_pylist()]


def rows_of(url):
    store = ObjectStore.open(url)
    found = {
        topic: [(row["offset"], row["key"], row["value"]) for part in store.read(topic, 0) for row in part.to_pylist()]
        for topic in ("log", "keys", "old")
    }
    return found, [store.earliest_offset(topic, 0) for topic in found], [store.latest_offset(t, 0) for t in found]


class Publishing:
    """The program, and what must be there in the end."""

    kinds, most_faults = {"get", "put", "create"}, 10

    def __init__(self, url, _monkeypatch):
        self.make, self.run, self.look = url, run, contents

    def check_stopped(self, url, expected):
        """What holds before another process continues: anything that a part of it has left."""


class Upkeep:
    """Upkeep of a store with something to do for each kind of it."""

    kinds, most_faults = {"get", "get_ranges", "put", "create", "list", "delete"}, 4

    def __init__(self, url, monkeypatch):
        self._url, self._clock = url, Days()
        monkeypatch.setattr("pyspark_log.storage.object_store.now_ms", self._clock)

    def make(self):
        found, self._clock.now = self._url(), Days.now
        store = ObjectStore.open(found)
        store.create_topic("log", 1, {"retention.ms": "-1"})
        store.create_topic("keys", 1, {"cleanup.policy": "compact"})
        store.create_topic("old", 1, {"retention.ms": "3600000"})
        for number in range(9):
            value = b"%d" % number * (400 if number % 3 == 0 else 10)
            store.append("log", [{"value": value}])
            store.append("keys", [{"key": b"%d" % (number % 2), "value": value}])
            store.append("old", [{"value": value}])
        writer = store.publishes.writer(store.publishes.plan(["log"]))
        writer.append("log", pa.record_batch({"value": [b"forgotten" * 100]}))
        assert writer.finish()[0].file
        return found

    def run(self, url):
        upkeep(url, self._clock)

    def look(self, url):
        """The rows; and of what was merged or never published, no object is left."""
        assert not list(ObjectStore.open(url).log.objects.list("data"))
        return rows_of(url)

    def check_stopped(self, url, expected):
        assert rows_of(url)[0]["keys"][-1] == expected[0]["keys"][-1]


@pytest.fixture
def work(request, url, monkeypatch):
    return request.param(url, monkeypatch)


@pytest.mark.timeout(TIMEOUT)
@pytest.mark.parametrize(
    "work",
    [pytest.param(Publishing, marks=pytest.mark.sampled), pytest.param(Upkeep, marks=pytest.mark.slow)],
    indirect=True,
)
def test_stops(work, url):
    undisturbed, requests = work.make(), []
    with observed_requests(requests.append):
        work.run(undisturbed)
    expected = work.look(undisturbed)
    assert {one.kind for one in requests} == work.kinds
    for number in spread(changes(requests), 200):
        stopped = work.make()
        with observed_requests(stop_at(number)), pytest.raises(Stopped):
            work.run(stopped)
        work.check_stopped(stopped, expected)
        work.run(stopped)
        assert work.look(stopped) == expected, f"stopped at {requests[number]}"


# ---- an object store that misbehaves


def lose_the_answer(exchange):
    """The server does what it was asked for, and the client does not hear of it."""
    pass_on(exchange)


def be_busy(_exchange):
    """S3's answer to a client that asks too often."""
    return Answer(503, body=b"<Error><Code>SlowDown</Code></Error>")


def conflict(_exchange):
    """S3's answer to a put-if-absent while another write of that name is going on."""
    return Answer(409, body=b"<Error><Code>ConditionalRequestConflict</Code></Error>")


def cut_the_body(exchange):
    """The connection ends in the middle of an answer."""
    answer = pass_on(exchange)
    return Answer(answer.status, answer.headers, answer.body, cut=True)


def is_change(exchange):
    return exchange.method != "GET"


def is_read(exchange):
    return not is_change(exchange)


FAULTS = [
    (lose_the_answer, is_change),
    (be_busy, is_change),
    (be_busy, is_read),
    (conflict, lambda exchange: exchange.is_create),
    (cut_the_body, is_read),
]


class Misbehaviour:
    """What a proxy does: `fault` at the request of that number among those that `asked` is true for."""

    def __init__(self, fault, asked):
        self._fault, self._asked = fault, asked
        self.seen, self.number = 0, -1

    def __call__(self, exchange):
        if not self._asked(exchange):
            return pass_on(exchange)
        self.seen += 1
        return self._fault(exchange) if self.seen - 1 == self.number else pass_on(exchange)


NAMES = [f"{fault.__name__}-{number}" for number, (fault, _) in enumerate(FAULTS)]


@pytest.fixture
def misbehaviour(request, object_server, monkeypatch):
    """Between this process and the server; nothing happens until its `number` is set."""
    found = Misbehaviour(*request.param)
    with proxy(object_server, found) as between:
        monkeypatch.setenv("AWS_ENDPOINT", between.endpoint)
        yield found


@pytest.mark.timeout(TIMEOUT)
@pytest.mark.parametrize(
    ("work", "misbehaviour"),
    [
        *(pytest.param(Publishing, fault, marks=pytest.mark.sampled) for fault in FAULTS),
        pytest.param(Upkeep, FAULTS[0], marks=pytest.mark.slow),
        *(pytest.param(Upkeep, fault, marks=[pytest.mark.slow, pytest.mark.long]) for fault in FAULTS[1:]),
    ],
    ids=[f"{work}-{name}" for work in ("publishing", "upkeep") for name in NAMES],
    indirect=True,
)
def test_faults(work, misbehaviour):
    undisturbed = work.make()
    misbehaviour.seen, misbehaviour.number = 0, -1
    work.run(undisturbed)
    number_of_requests, expected = misbehaviour.seen, work.look(undisturbed)
    for number in spread(range(number_of_requests), work.most_faults):
        other = work.make()
        misbehaviour.seen, misbehaviour.number = 0, number
        work.run(other)
        assert misbehaviour.seen > number
        misbehaviour.number = -1
        assert work.look(other) == expected, number
