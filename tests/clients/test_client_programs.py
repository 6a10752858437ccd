"""Kafka's clients of Go, JavaScript and Rust at `pylog serve`. README.md says what their programs do.

That the server answers them as Kafka does, in all that they do, is shown by their sessions in tests/recordings.
"""

import itertools
import json
import os
import signal
import struct
import subprocess
from pathlib import Path

import pytest

from tests.recordings.program_sessions import CODECS, FOLDER, PROGRAMS
from tests.server_tools import PATIENCE
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

#: Of each language the library whose tests are not long. Each library writes and reads with one codec.
_OF_EACH_LANGUAGE = ("franz-go", "kafkajs", "rdkafka")


def _or_long(is_short, *case):
    return pytest.param(*case, marks=() if is_short else pytest.mark.long)


_WRITES = [
    _or_long(number == place % len(CODECS), name, codec, "plain")
    for number, codec in enumerate(CODECS)
    for place, (name, program) in enumerate(PROGRAMS.items())
    if codec in program.codecs
]
# Which codec it is makes no difference to idempotence.
_WRITES += [
    _or_long(name in _OF_EACH_LANGUAGE, name, "gzip", "idempotent")
    for name, program in PROGRAMS.items()
    if program.idempotent
]
_WITH_GROUPS = [_or_long(name in _OF_EACH_LANGUAGE, name) for name, program in PROGRAMS.items() if program.groups]
_names = (f"topic{number}" for number in itertools.count())


@pytest.fixture
def topic(store):
    """A topic with two partitions."""
    name = next(_names)
    store.create_topic(name, 2)
    return name


@pytest.fixture
def program(server, name):
    """Makes the command of a library's program; skips the test without it, or fails if PYLOG_REQUIRE names clients."""
    command = [str(FOLDER / path) for path in PROGRAMS[name].command]
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
    group = topic if PROGRAMS[name].groups else "-"
    assert _in_order(call("consume", topic, group, 300)) == _rows(store, topic)


@pytest.mark.parametrize("name", _WITH_GROUPS)
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


@pytest.mark.parametrize("name", _WITH_GROUPS)
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
            wait_until(lambda: values <= set().union(*(one.values() for one in members)), "the records are read")
            return all(values & one.values() for one in members)

        wait_until(read_of_one_time, "the partitions are shared")

    first, second = member(), member()
    shared_by(first, second)
    third = member()
    shared_by(first, second, third)
    before = first.values()
    first.kill()
    shared_by(second, third)
    assert before | second.values() | third.values() == written
    ends = {(topic, number): store.latest_offset(topic, number) for number in range(6)}
    wait_until(lambda: _committed(store, topic) == ends, "all is committed")
    second.stop()
    shared_by(third)
    third.stop()
