"""`retention.py`, `verify.py` and `compact.py` of `pyspark_log/jobs`: they do what the commands of these names do."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from pyspark_log.cli.main import main as pylog
from pyspark_log.jobs import compact, retention, verify
from tests.processes import held_by_another


@pytest.fixture
def full(store):
    """Two topics with two partitions of three segments, of which retention keeps two; and one deleted for a day."""
    configs = {"segment.bytes": "1000", "retention.ms": "-1", "file.delete.delay.ms": "86400000"}
    for topic in ("a", "b", "gone"):
        store.create_topic(topic, 2, configs)
        for number in range(6):
            store.append(topic, pa.record_batch({"value": [b"%d" % number * 900]}), partition=number % 2)
        if topic != "gone":
            store.alter_configs(topic, {"retention.bytes": "1000"})
    store.delete_topic("gone")
    return store


def starts(store, topic):
    return [store.earliest_offset(topic, partition) for partition in range(2)]


def test_retention_of_all_topics(spark, full, capsys):
    (deleted,) = Path(full.path).glob("topics/deleted/*.json")
    deleted.write_text(deleted.read_text().replace("86400000", "0"))  # Its delay is over.
    assert retention.main([full.path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"partitions": 4, "segments_removed": 4}
    assert starts(full, "a") == starts(full, "b") == [1, 1]
    assert not list(Path(full.path).glob("data/gone*"))
    assert retention.main([full.path]) == 0
    assert capsys.readouterr().out == "partitions        4\nsegments removed  0\n"


@pytest.mark.slow
def test_retention_of_one_topic(spark, full):
    assert retention.main([full.path, "a"]) == 0
    assert starts(full, "a") == [1, 1]
    assert starts(full, "b") == [0, 0]
    assert list(Path(full.path).glob("topics/deleted/*"))


def test_retention_where_a_partition_cannot_be_cleaned(spark, full, capsys):
    with held_by_another(full, "a", 1):
        assert retention.main([full.path]) == 1
    assert capsys.readouterr().out.startswith("a-1: [PYLOG_LOCK_TIMEOUT] ")
    assert starts(full, "a") == [1, 0]
    assert starts(full, "b") == [1, 1]


@pytest.mark.parametrize("job", [retention, verify, compact])
def test_a_missing_topic(spark, store, capsys, job):
    assert job.main([store.path, "t"]) == 1
    assert capsys.readouterr().err.startswith("Error: [PYLOG_UNKNOWN_TOPIC_OR_PARTITION] there is no topic 't'")


# ---- verify


def document(text):
    return {name: value for name, value in json.loads(text).items() if name != "seconds"}


def same_as_the_command(path, capsys, code, *topic):
    """Runs the job, which must find what `pylog verify` finds; returns the findings."""
    capsys.readouterr()
    assert verify.main([str(path), *topic, "--json"]) == code
    found = document(capsys.readouterr().out)
    options = [f"--topic={name}" for name in topic]
    result = CliRunner().invoke(pylog, ["--store", str(path), "verify", "--json", *options])
    assert result.exit_code == code
    assert found == document(result.stdout)
    return found["findings"]


def test_verify(spark, full, capsys):
    assert same_as_the_command(full.path, capsys, 0) != []  # The deleted topic is there yet.
    for topic, partition in (("a", 1), ("b", 0)):
        first = Path(full.segment_files(topic, partition)[0])
        first.write_bytes(first.read_bytes()[:100] + b"damage" + first.read_bytes()[106:])
    findings = same_as_the_command(full.path, capsys, 1)
    damaged = [(one["topic"], one["partition"]) for one in findings if one["severity"] == "damage"]
    assert damaged == [("a", 1), ("b", 0)]
    assert [one["topic"] for one in same_as_the_command(full.path, capsys, 1, "b")] == ["b"]
    assert verify.main([full.path]) == 1
    assert "DAMAGED: 4 written partitions" in capsys.readouterr().out


@pytest.mark.slow
def test_verify_a_brokers_folder(spark, full, tmp_path, capsys):
    full.close()
    shutil.copytree(Path(full.path) / "data", tmp_path / "broker", ignore=shutil.ignore_patterns("gone*"))
    (tmp_path / "broker/replication-offset-checkpoint").unlink()
    same_as_the_command(tmp_path / "broker", capsys, 0)
    first = next((tmp_path / "broker/a-0").glob("*.log"))
    first.write_bytes(first.read_bytes()[:100] + b"damage" + first.read_bytes()[106:])
    assert same_as_the_command(tmp_path / "broker", capsys, 1)[0]["topic"] == "a"
