"""The warnings of a write are in the driver's log, which is its standard error."""

import subprocess
import sys
from pathlib import Path

import pytest
from java import java_version

# A session of its own takes most of a minute.
pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("writes_with_warnings.py")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("stores")


@pytest.fixture(scope="module")
def log(folder):
    """What a driver's log has after all the writes, without what tasks wrote to it."""
    if java_version() < 17:
        pytest.skip("Spark needs Java 17 or later: set JAVA_HOME, or put java on the PATH")
    ended = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stderr.splitlines()


def lines(log, *parts):
    """The lines with all of some texts."""
    return [line for line in log if all(part in line for part in parts)]


def test_a_new_store_is_named(log, folder):
    (line,) = lines(log, "WARNING", f"created a new store in {folder}/misspelt")
    assert "pyspark_log" in line


@pytest.mark.parametrize(("store", "topic"), [("misspelt", "t"), ("misspelt", "by-column"), ("together", "t")])
def test_a_new_topic_is_named(log, folder, store, topic):
    """Once, also where a column names it in several tasks."""
    assert len(lines(log, "WARNING", f"{folder}/{store}: created the missing topic {topic}")) == 1


@pytest.mark.parametrize("store", ["batch", "together"])
def test_a_new_topic_that_keeps_old_records(log, folder, store):
    (line,) = lines(log, "WARNING", f"{folder}/{store}: topic t is created with retention.ms=-1")
    assert "as its first records are of 1970-01-01T00:00:00.000Z and later" in line


def test_a_query_that_begins_again_with_another_checkpoint(log, folder):
    (line,) = lines(log, "WARNING", f"{folder}/stream: the query delays writes to t for the first time")
    assert "which another query of the same name has written to before" in line


def test_records_that_are_past_retention_when_they_are_written(log, folder):
    """All micro-batches are, and one line says it a run."""
    line, _ = lines(log, "WARNING", f"{folder}/stream: topic t: records of 20")
    for part in ("retention.ms (604800000)", "Set retention.ms=-1"):
        assert part in line


@pytest.mark.parametrize("topic", ["mixed", "kept"])
def test_no_warning_where_some_records_stay(log, folder, topic):
    assert lines(log, f"{folder}/batch: topic {topic}: records of") == []


@pytest.mark.parametrize(
    "warning",
    [
        "without effect here: starting_offset (is startingOffsets meant?)",
        "without effect here: kafka.acks, publish.ids (is publishId meant?)",
        "without effect here: mode",
    ],
)
def test_options_without_effect_are_named_once(log, warning):
    """Also by a stream, of which each micro-batch is planned with the options."""
    assert len(lines(log, "WARNING", warning)) == 1
