"""`pylog upkeep`: all that a store needs now and then, in one command."""

import signal
import subprocess
import sys

import pyarrow as pa
import pytest
from click.testing import CliRunner

from pyspark_log import Store
from pyspark_log.cli.main import main
from pyspark_log.storage.maintenance import janitor
from tests.store_tools import decided_only, publish, roll_log, rows, stage, values, visible_values


def run(store, *words):
    return CliRunner().invoke(main, ["--store", store.path, "upkeep", *words])


@pytest.fixture
def store(tmp_path):
    """One with a publish to apply, a segment to remove, and a partition to compact."""
    store = Store.create(tmp_path / "store")
    store.create_topic("old", 1, {"retention.ms": "-1"})
    store.create_topic("keys", 1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
    for topic in ("old", "keys"):
        for value in (b"1", b"2"):
            store.append(topic, pa.record_batch({"key": [b"k"], "value": [value]}))
            roll_log(store, topic)
    store.alter_configs("old", {"retention.bytes": "1"})
    store.create_topic("published", 1)
    with decided_only():
        publish(store.decisions, "p", 0, stage(store, rows(b"a"), "published"))
    return store


def test_a_folder(store):
    done = run(store)
    assert done.output.splitlines() == [
        "recover: 0 decisions applied", "clean: 1 segment removed", "compact: 1 partition compacted"
    ]  # fmt: skip
    assert done.exit_code == 0
    # As each command that opens a store has done, before it began.
    assert visible_values(store, topic="published") == [b"a"]
    assert values(store, topic="old") == [b"2"]
    assert values(store, topic="keys") == [b"2"]


def test_what_fails_leaves_the_rest(store, monkeypatch):
    def fail(_store):
        raise OSError(5, "Input/output error", "f")

    monkeypatch.setattr(janitor, "clean", fail)
    done = run(store)
    assert done.exit_code == 1
    assert "clean: [Errno 5] Input/output error: 'f'" in done.stderr
    assert done.stdout.splitlines() == ["recover: 0 decisions applied", "compact: 1 partition compacted"]


def test_objects(object_url):
    store = Store.create(object_url)
    store.create_topic("t", 1)
    for value in (b"1", b"2"):
        store.append("t", rows(value))
    done = run(store)
    assert [line.partition(":")[0] for line in done.output.splitlines()] == ["compact", "merge", "clean"]
    assert done.exit_code == 0
    assert values(store) == [b"1", b"2"]


def test_it_repeats_until_it_is_ended(store):
    words = [sys.executable, "-m", "pyspark_log.cli.start", "--store", store.path, "upkeep", "--every", "50ms"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        lines = [process.stdout.readline() for _ in range(6)]
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert lines[3] == "recover: 0 decisions applied\n"


@pytest.mark.parametrize("interval", ["0", "soon", "-1h"])
def test_a_bad_interval(store, interval):
    assert run(store, "--every", interval).exit_code == 2
