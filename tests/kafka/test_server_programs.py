"""Programs that others have made for Kafka, at `pylog serve`: Kafka Streams, and Kafka Connect in distributed mode."""

import contextlib
import json
import subprocess
import urllib.error
import urllib.request

import pytest
from kafka_tools import PATIENCE, command

from pyspark_log import Store
from tests.ports import HOST, free_ports
from tests.server_tools import served, served_anew
from tests.store_tools import all_values
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("kafka")

_WORKER = {
    "group.id": "connect",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "offset.storage.topic": "connect-offsets",
    "offset.storage.replication.factor": "1",
    "offset.flush.interval.ms": "100",
    "config.storage.topic": "connect-configs",
    "config.storage.replication.factor": "1",
    "status.storage.topic": "connect-status",
    "status.storage.replication.factor": "1",
}


@pytest.fixture(params=["folder", "objects"])
def server(request, tmp_path):
    """Over a new store of either kind."""
    if request.param == "folder":
        with served_anew(tmp_path) as running:
            yield running
        return
    url = request.getfixturevalue("object_url")
    Store.create(url).close()
    with served(url, tmp_path, "--node-id", "1") as running:
        yield running


@contextlib.contextmanager
def _running(tmp_path, main, settings):
    """One of Kafka's programs with a file of settings; what it says is in a file."""
    (tmp_path / "settings").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    with (tmp_path / "program").open("wb") as output:
        program = subprocess.Popen(
            command(main, tmp_path / "settings", memory="384m", jars="streams-jars"), stdout=output, stderr=output
        )
    try:
        yield program
    finally:
        program.kill()
        program.wait()


def _wait(condition, tmp_path):
    wait_until(condition, lambda: (tmp_path / "program").read_text(errors="replace")[-3000:], every=0.1)


@pytest.mark.parametrize("guarantee", [pytest.param("at_least_once", marks=pytest.mark.long), "exactly_once_v2"])
def test_kafka_streams_counts_words(server, tmp_path, guarantee):
    """With transactions they are right, however often Streams and the server are killed."""
    is_exact = guarantee == "exactly_once_v2"
    settings = {
        "bootstrap.servers": server.bootstrap, "state.dir": tmp_path / "state", "processing.guarantee": guarantee,
        # Without transactions, what a member has done that only seems to be gone is counted twice.
        "session.timeout.ms": 6000 if is_exact else 45_000,
    }  # fmt: skip
    level = "read_committed" if is_exact else "read_uncommitted"
    with Store.open(server.path) as store:
        store.create_topic("streams-plaintext-input", 2)
        store.create_topic("streams-wordcount-output", 1, {"cleanup.policy": "compact"})
        store.append(
            "streams-plaintext-input", [{"value": "all streams lead to kafka"}, {"value": "hello kafka streams"}]
        )

        def counts():
            found = store.read("streams-wordcount-output", 0, isolation_level=level)
            rows = [row for rows in found for row in rows.to_pylist()]
            return {row["key"].decode(): int.from_bytes(row["value"], "big") for row in rows}

        main = "org.apache.kafka.streams.examples.wordcount.WordCountDemo"
        with _running(tmp_path, main, settings):
            expected = {"all": 1, "streams": 2, "lead": 1, "to": 1, "kafka": 2, "hello": 1}
            _wait(lambda: counts() == expected, tmp_path)
            store.append("streams-plaintext-input", [{"value": "hello again"}])
            expected |= {"hello": 2, "again": 1}
            _wait(lambda: counts() == expected, tmp_path)
        if is_exact:
            expected |= {"turn": 3000, **{str(number): 60 for number in range(50)}}
        for turn in range(3 if is_exact else 0):
            for _ in range(20):
                store.append("streams-plaintext-input", [{"value": f"turn {number}"} for number in range(50)])
            with _running(tmp_path, main, settings):
                _wait(lambda turn=turn: counts().get("turn", 0) > turn * 1000, tmp_path)
                if turn == 1:
                    server.kill()
                    server.start()
                    _wait(lambda: counts()["turn"] > 1500, tmp_path)
                if turn == 2:
                    # Each word: not all come by the same transaction, and an open one ends with the program.
                    _wait(lambda: sum(counts().values()) >= sum(expected.values()), tmp_path)
        assert counts() == expected
        assert {name for name in store.topics() if name.startswith("streams-wordcount-KSTREAM")} == {
            f"streams-wordcount-KSTREAM-AGGREGATE-STATE-STORE-0000000003-{kind}"
            for kind in ("changelog", "repartition")
        }


def test_kafka_connect_copies_a_file(server, tmp_path):
    address = f"http://{HOST}:{free_ports(1)[0]}"
    (tmp_path / "in").write_text("".join(f"line {number}\n" for number in range(50)))

    def ask(path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{address}/{path}", data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return json.load(answer)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return None

    def connect(name, kind, **config):
        connector = f"org.apache.kafka.connect.file.FileStream{kind}Connector"
        body = {"name": name, "config": {"connector.class": connector, "tasks.max": "1", **config}}
        # Until the worker has joined its group and read its topics, it knows no connectors.
        _wait(lambda: ask("connectors", body) is not None or name in (ask("connectors") or ()), tmp_path)

    settings = {"bootstrap.servers": server.bootstrap, "listeners": address, **_WORKER}
    with _running(tmp_path, "org.apache.kafka.connect.cli.ConnectDistributed", settings):
        connect("source", "Source", file=str(tmp_path / "in"), topic="lines")
        connect("sink", "Sink", file=str(tmp_path / "out"), topics="lines")
        copied = tmp_path / "out"
        _wait(lambda: copied.exists() and copied.read_text() == (tmp_path / "in").read_text(), tmp_path)
    with Store.open(server.path) as store:
        assert all_values(store, "lines") == [b"line %d" % number for number in range(50)]
        assert {"connect-configs", "connect-offsets", "connect-status"} <= set(store.topics())
