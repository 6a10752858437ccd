"""Kafka's clients of Go, JavaScript and Rust at `pylog serve`. README.md says what their programs do."""

import itertools
import json
import os
import signal
import struct
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from pyspark_log import Store
from tests.paths import ROOT
from tests.server_tools import PATIENCE, served_anew

pytestmark = pytest.mark.slow

FOLDER = ROOT / ".clients"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Library(NamedTuple):
    """A client library.

    Attributes:
        command: how its program is started, by paths in `FOLDER`.
        lacks: the reason for each thing that it cannot do, by the name of the codec or the test.
    """

    command: tuple[str, ...]
    lacks: dict[str, str] = {}  # noqa: RUF012  (it is not changed)


LIBRARIES = {
    "franz-go": Library(("go/franz-go",)),
    "sarama": Library(("go/sarama",)),
    "kafka-go": Library(("go/kafka-go",), {"idempotent": "its producer is never idempotent"}),
    "kafkajs": Library(("js/node_modules/.bin/node", "js/kafkajs.js")),
    "platformatic": Library(("js/node_modules/.bin/node", "js/platformatic.js")),
    "node-rdkafka": Library(
        ("js/node_modules/.bin/node", "js/node-rdkafka.js"),
        {
            "administer groups": "it has no requests for them",
            "zstd": "to be built with it takes the headers of libzstd",
        },
    ),
    "rdkafka": Library(("rust/debug/rdkafka",)),
    "rskafka": Library(
        ("rust/debug/rskafka",),
        {
            "idempotent": "its producer is never idempotent",
            "groups": "it has none",
            "grow": "it has no such request",
        },
    ),
}  # fmt: skip


def _libraries(*what):
    """The libraries that can do all of this."""
    return [name for name, library in LIBRARIES.items() if not library.lacks.keys() & set(what)]


#: Of each language the library whose tests are not long. Each library writes and reads with one codec.
_OF_EACH_LANGUAGE = ("franz-go", "kafkajs", "rdkafka")


def _or_long(case, is_short):
    return case if is_short else pytest.param(*case, marks=pytest.mark.long)


def _names_of(*what):
    long = pytest.mark.long
    return [name if name in _OF_EACH_LANGUAGE else pytest.param(name, marks=long) for name in _libraries(*what)]


_WRITES = [
    _or_long((name, codec, "plain"), number == list(LIBRARIES).index(name) % len(CODECS))
    for number, codec in enumerate(CODECS)
    for name in _libraries(codec)
]
# Which codec it is makes no difference to idempotence.
_WRITES += [_or_long((name, "gzip", "idempotent"), name in _OF_EACH_LANGUAGE) for name in _libraries("idempotent")]
_names = (f"topic{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with served_anew(tmp_path_factory.mktemp("served")) as running:
        yield running


@pytest.fixture
def store(server):
    with Store.open(server.path) as store:
        yield store


@pytest.fixture
def topic(store):
    """A topic with two partitions."""
    name = next(_names)
    store.create_topic(name, 2)
    return name


@pytest.fixture
def program(server, name):
    """Makes the command of a library's program; skips the test without it, or fails if PYLOG_REQUIRE names clients."""
    command = [str(FOLDER / path) for path in LIBRARIES[name].command]
    if not all(map(os.path.exists, command)):
        reason = f"the program over {name} is not here: make client-programs"
        if "clients" in os.environ.get("PYLOG_REQUIRE", "").split(","):
            pytest.fail(reason)
        pytest.skip(reason)
    return lambda *arguments: [*command, server.bootstrap, *map(str, arguments)]


@pytest.fixture
def call(program):
    """Runs a command of the program; the objects that it prints."""

    def run(*arguments):
        done = subprocess.run(program(*arguments), capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert done.returncode == 0, f"{arguments}: {done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


class Member:
    """A program that runs as a member of a group."""

    def __init__(self, command, folder):
        folder.mkdir()
        self._output, self._log = folder / "output", folder / "log"
        with self._output.open("wb") as output, self._log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=output, stderr=log)

    def values(self):
        """The values of the records that it has read so far."""
        assert self.process.poll() is None, self._log.read_text()
        # The last line may be written just now.
        return {json.loads(line)["value"] for line in self._output.read_text().split("\n")[:-1]}

    def stop(self):
        """Ends it in order: it leaves its group."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE) == 0, self._log.read_text()

    def kill(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def member(program, topic, tmp_path):
    """Starts a member of the group that has the topic's name."""
    started = []

    def start():
        started.append(Member(program("member", topic, topic), tmp_path / f"member{len(started)}"))
        return started[-1]

    yield start
    for one in started:
        one.kill()


def _wait(condition, what):
    """Returns when a condition holds, which it does sooner or later."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def _rows(store, topic):
    """All records of a topic, as programs print them."""
    return [
        {"partition": partition, "offset": row["offset"], "key": row["key"].decode(), "value": row["value"].decode()}
        for partition in range(store.describe_topic(topic).partitions)
        for rows in store.read(topic, partition)
        for row in rows.to_pylist()
    ]


def _in_order(records):
    return sorted(records, key=lambda record: (record["partition"], record["offset"]))


def _batches(store, topic):
    """The codec of each batch of a topic in its files, and whether an idempotent producer wrote it."""
    for segment in Path(store.path).glob(f"data/{topic}-*/*.log"):
        log, at = segment.read_bytes(), 0
        while at < len(log):
            size, attributes, producer_id = struct.unpack_from(">8x i 9x h 20x q", log, at)
            yield CODECS[attributes & 7], producer_id >= 0
            at += 12 + size


def _committed(store, group):
    return {(at.topic, at.partition): one.offset for at, one in store.groups[group].committed().items()}


@pytest.mark.parametrize(("name", "codec", "kind"), _WRITES)
def test_records_are_written_and_read(call, store, topic, name, codec, kind):
    call("produce", topic, codec, kind, 200)
    written = _rows(store, topic)
    assert {row["key"]: row["value"] for row in written} == {f"key {n}": f"value {n} " * 20 for n in range(200)}
    assert len(written) == 200
    assert set(_batches(store, topic)) == {(codec, kind == "idempotent")}
    # What the engine compresses is read as well.
    more = [{"key": b"more", "value": b"more " * 20, "partition": number % 2} for number in range(100)]
    store.append(topic, more, compression_type=codec)
    assert {found for found, _ in _batches(store, topic)} == {codec}
    group = topic if name in _libraries("groups") else "-"
    assert _in_order(call("consume", topic, group, 300)) == _rows(store, topic)


@pytest.mark.parametrize("name", _names_of("groups"))
def test_a_group_resumes_at_what_it_has_committed(call, store, topic, name):
    store.append(topic, [{"key": b"k", "value": b"%d" % number, "partition": number % 2} for number in range(100)])
    first = call("consume", topic, topic, 40)
    assert sum(_committed(store, topic).values()) == len(first) == 40
    second = call("consume", topic, topic, 60)
    assert _in_order(first + second) == _rows(store, topic)
    assert _committed(store, topic) == {(topic, 0): 50, (topic, 1): 50}


@pytest.mark.parametrize("name", _names_of("groups"))
def test_a_group_that_retention_has_overtaken(call, store, topic, name):
    """It starts over where the log begins now, and again after its next commit."""
    for begins in (8, 18):
        store.append(topic, [{"key": b"k", "value": b"x", "partition": number % 2} for number in range(20)])
        if begins == 8:
            call("consume", topic, topic, 4)
        for partition in (0, 1):
            store.delete_records(topic, partition, begins)
        assert _in_order(call("consume", topic, topic, 4)) == _rows(store, topic)
        assert _committed(store, topic) == {(topic, 0): begins + 2, (topic, 1): begins + 2}


@pytest.mark.parametrize("name", _names_of("groups"))
def test_a_group_of_which_one_comes_later_and_one_is_killed(store, topic, member, name):
    store.add_partitions(topic, 6)
    numbers = itertools.count()
    written = set()

    def shared_by(*members):
        """Appends a record to each partition until each of these has read one of the same time."""

        def read_of_one_time():
            values = {str(next(numbers)) for _ in range(6)}
            store.append(topic, [{"key": b"k", "value": value, "partition": n} for n, value in enumerate(values)])
            written.update(values)
            _wait(lambda: values <= set().union(*(one.values() for one in members)), "records are not read")
            return all(values & one.values() for one in members)

        _wait(read_of_one_time, "the partitions are not shared")

    first, second = member(), member()
    shared_by(first, second)
    third = member()
    shared_by(first, second, third)
    before = first.values()
    first.kill()
    shared_by(second, third)
    assert before | second.values() | third.values() == written
    ends = {(topic, number): store.latest_offset(topic, number) for number in range(6)}
    _wait(lambda: _committed(store, topic) == ends, "not all is committed")
    second.stop()
    shared_by(third)
    third.stop()


@pytest.mark.parametrize("name", _names_of())
def test_topics(call, store, name):
    topic = f"made-by-{name}"
    call("create-topic", topic, 2)
    assert store.describe_topic(topic).partitions == 2
    if name in _libraries("grow"):
        call("grow-topic", topic, 5)
        assert store.describe_topic(topic).partitions == 5
    call("delete-topic", topic)
    assert topic not in store.topics()


@pytest.mark.parametrize("name", _names_of())
def test_offsets(call, store, topic, name):
    rows = [{"value": b"x", "timestamp": 1_700_000_000_000 + 1000 * number, "partition": 1} for number in range(10)]
    store.alter_configs(topic, {"retention.ms": "-1"})
    store.append(topic, rows)
    store.delete_records(topic, 1, 2)
    found = {line.pop("partition"): line for line in call("offsets", topic, 1_700_000_004_500)}
    assert found[1] == {"earliest": 2, "latest": 10, "at": 5}
    assert (found[0]["earliest"], found[0]["latest"]) == (0, 0)


@pytest.mark.parametrize("name", _names_of("groups", "administer groups"))
def test_groups(call, store, topic, member, name):
    running = member()
    store.append(topic, [{"key": b"k", "value": b"x"}])
    _wait(running.values, "the record is not read")
    assert {"group": topic} in call("list-groups")
    assert call("describe-group", topic) == [{"state": "Stable", "members": 1}]
    running.stop()
    assert call("describe-group", topic) == [{"state": "Empty", "members": 0}]
    call("delete-group", topic)
    assert topic not in store.groups
    assert {"group": topic} not in call("list-groups")
