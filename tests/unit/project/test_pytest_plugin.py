"""The plugin for tests of programs that use a store, in a run of pytest of its own."""

import os
import socket
import subprocess
import sys

import pytest

from pyspark_log.errors import PylogError
from pyspark_log.serving import serving
from tests.samples import samples

TEST = """
import pytest

pytestmark = pytest.mark.pylog_topic("all", 1)


@pytest.mark.pylog_topic("orders", partitions=3, configs={"cleanup.policy": "compact"})
@pytest.mark.pylog_topic("events")
def test_topics(pylog_store):
    assert pylog_store.topics() == ["all", "events", "orders"]
    assert pylog_store.describe_topic("orders").partitions == 3
    assert pylog_store.describe_topic("orders").configs == {"cleanup.policy": "compact"}
    pylog_store.topic("all").append([{"value": "v"}])


def test_each_test_has_its_own(pylog_store, tmp_path):
    assert pylog_store.topics() == ["all"]
    assert pylog_store.topic("all").read().to_table().num_rows == 0
    assert pylog_store.path.startswith(str(tmp_path))
"""


@pytest.fixture
def run(tmp_path):
    """Runs pytest on a file, with the plugin as the README names it."""

    def outcome(code, *options):
        (tmp_path / "conftest.py").write_text('pytest_plugins = ["pyspark_log.pytest_plugin"]\n')
        (tmp_path / "test_it.py").write_text(code)
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", tmp_path, *options]
        done = subprocess.run(
            [*command, "test_it.py"], cwd=tmp_path, capture_output=True, text=True, check=False,
            env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        )  # fmt: skip
        return done.stdout + done.stderr

    return outcome


def test_a_store_with_the_topics_of_the_marks(run):
    assert "= 2 passed in" in (said := run(TEST, "--strict-markers")), said


def test_the_sample_of_the_readme(run):
    (code,) = [one.code for one in samples() if one.name == "README.md: In your tests"]
    assert "= 1 passed in" in (said := run(code)), said


def test_a_server_of_the_store(run):
    said = run("""
import pytest
from confluent_kafka import Producer

@pytest.mark.pylog_topic("orders")
def test_it(pylog_server, pylog_store):
    producer = Producer({"bootstrap.servers": pylog_server})
    producer.produce("orders", "v")
    assert producer.flush(60) == 0
    assert pylog_store.topic("orders").read().to_table()["value"].to_pylist() == [b"v"]
""")
    assert "= 1 passed in" in said, said


def test_a_server_that_does_not_start_says_why(tmp_path):
    with (
        pytest.raises(PylogError, match=r"(?s)exit code 2: .*No such option '--lisen'"),
        serving(tmp_path / "store", "--lisen"),
    ):
        pass


def test_a_server_runs_as_long_as_the_block(tmp_path):
    with serving(tmp_path / "store") as bootstrap:
        host, port = bootstrap.split(":")
        socket.create_connection((host, int(port)), 60).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), 60)


def test_what_is_wrong_with_a_mark_is_said(run):
    said = run("""
import pytest

@pytest.mark.pylog_topic("no/name")
def test_it(pylog_store):
    pass
""")
    assert "= 1 error in" in said, said
    assert "InvalidTopicError" in said
    assert "no/name" in said


def test_tests_without_a_store_do_not_load_the_engine(run):
    said = run("""
import sys

def test_it():
    assert "pyarrow" not in sys.modules
""")
    assert "= 1 passed in" in said, said
