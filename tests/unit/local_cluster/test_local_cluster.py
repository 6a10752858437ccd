"""A cluster on one machine, as far as it needs no Kafka: what is made, what is refused, units.

A shell script is there for Java. It notes how Kafka's tool is called. As a controller, 101 ends at once, others run.
"""

import configparser
import json
import shlex
import socket
import sys

import pytest
from click.testing import CliRunner

from pyspark_log import Store
from pyspark_log.cli.main import main
from pyspark_log.local_cluster.making import _escaped
from pyspark_log.local_cluster.units import _quoted
from tests.ports import HOST, free_ports_in_a_row

FEATURES = (
    "metadata.version=30 (4.3-IV0)", "kraft.version=1", "transaction.version=2", "group.version=1", "share.version=1",
    "streams.version=1", "later.version=1",
)  # fmt: skip
JAVA = """#!/bin/sh
case "$*" in
  -version) echo 'openjdk version "{version}" 2025-04-15' >&2 ;;
  *version-mapping) printf '%s\\n' {features} ;;
  *'StorageTool format'*) {fails}echo "$@" >> "{calls}" ;;
  *kafka.Kafka*controller-101*) echo 'the disk is made of cheese'; exit 3 ;;
  *kafka.Kafka*) exec sleep 600 ;;
esac
"""


@pytest.fixture
def java(tmp_path, monkeypatch):
    """Makes JAVA_HOME a folder with a Java of a version; returns the file with the calls of Kafka's tool."""

    def make(version="17.0.15", features=FEATURES, fails=""):
        home, calls = tmp_path / "java", tmp_path / "calls"
        (home / "bin").mkdir(parents=True, exist_ok=True)
        program = home / "bin" / "java"
        listed = " ".join(map(shlex.quote, features))
        program.write_text(JAVA.format(version=version, features=listed, fails=fails, calls=calls))
        program.chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(home))
        return calls

    return make


@pytest.fixture
def kafka(tmp_path, java):
    """The folder of a distribution of Kafka."""
    java()
    return distribution(tmp_path, "4.3.1")


def distribution(folder, *versions):
    (folder / "kafka" / "libs").mkdir(parents=True, exist_ok=True)
    for version in versions:
        (folder / "kafka" / "libs" / f"kafka_2.13-{version}.jar").touch()
    return folder / "kafka"


@pytest.fixture(scope="module")
def port():
    """The first of some ports that are free."""
    return free_ports_in_a_row(12)


def call(*words):
    return CliRunner().invoke(main, ["cluster", *map(str, words)], prog_name="pylog")


def refusal(*words):
    """What is said when a call fails."""
    result = call(*words)
    assert result.exit_code == 1, result.output
    return result.stderr


def test_what_is_made(tmp_path, kafka, port):
    folder = tmp_path / "a b"
    result = call("init", folder, "--kafka", kafka, "--port", port)
    assert result.exit_code == 0, result.output
    assert sorted(one.name for one in folder.iterdir()) == [
        "cluster.json", "controller-101", "controller-102", "controller-103", "logs", "node-1", "node-2", "node-3",
    ]  # fmt: skip
    cluster_id = json.loads((folder / "cluster.json").read_text())["cluster_id"]
    for number in (1, 2, 3):
        with Store.open(folder / f"node-{number}") as store:
            assert store.cluster_id == cluster_id
    assert result.stderr.splitlines()[1:] == [f"{1 + one} of 4  formatting controller {100 + one}" for one in (1, 2, 3)]
    lines = result.stdout.splitlines()
    assert [line.split()[2] for line in lines[1:7]] == [f"{HOST}:{port + number}" for number in range(6)]
    assert f"pylog cluster start '{folder}'" in result.output
    assert f"bootstrap.servers={','.join(f'{HOST}:{port + number}' for number in range(3))}\n" in result.output
    settings = [(folder / f"controller-{number}" / "server.properties").read_text() for number in (101, 102, 103)]
    assert len({line for one in settings for line in one.splitlines() if line.startswith("node.id=")}) == 3
    for one in settings:
        assert "default.replication.factor=3\nmin.insync.replicas=2\n" in one


def test_how_controllers_are_formatted(tmp_path, java, kafka, port):
    calls = java()
    assert call("init", tmp_path / "c", "--kafka", kafka, "--port", port).exit_code == 0
    lines = calls.read_text().splitlines()
    assert len(lines) == 3
    assert len({line.partition("--initial-controllers ")[2] for line in lines}) == 1
    for line in lines:
        assert "-Xmx256m " in line
        assert f"-cp {kafka}/libs/* " in line
        # What nodes do not know, and what they do not coordinate.
        assert line.endswith(" --feature share.version=0 --feature streams.version=0 --feature later.version=0")


@pytest.mark.parametrize(("nodes", "copies", "in_sync"), [(1, 1, 1), (2, 2, 1), (4, 3, 2)])
def test_replicas_of_new_topics(tmp_path, kafka, port, nodes, copies, in_sync):
    assert call("init", tmp_path / "c", "--kafka", kafka, "--port", port, "--nodes", nodes).exit_code == 0
    settings = (tmp_path / "c" / "controller-101" / "server.properties").read_text()
    assert f"default.replication.factor={copies}\nmin.insync.replicas={in_sync}\n" in settings


def test_the_folder_of_jars_alone_and_the_environment_are_taken(tmp_path, kafka, port, monkeypatch):
    assert call("init", tmp_path / "c", "--kafka", kafka / "libs", "--port", port).exit_code == 0
    monkeypatch.setenv("KAFKA_HOME", str(kafka))
    assert call("init", tmp_path / "d", "--port", port).exit_code == 0
    monkeypatch.delenv("KAFKA_HOME")
    assert call("init", tmp_path / "e", "--port", port).exit_code == 2


# ---- refusals


def check_unchanged(folder, files):
    assert [one.name for one in folder.iterdir()] == files


def test_a_folder_that_is_not_empty_is_refused(tmp_path, kafka, port):
    folder = tmp_path / "c"
    folder.mkdir()
    (folder / "letters").touch()
    assert "is not empty" in refusal("init", folder, "--kafka", kafka, "--port", port)
    check_unchanged(folder, ["letters"])
    assert "is a file" in refusal("init", folder / "letters", "--kafka", kafka, "--port", port)
    assert "the folder above it does not exist" in refusal("init", tmp_path / "x" / "y", "--kafka", kafka)
    assert "no comma" in refusal("init", tmp_path / "a,b", "--kafka", kafka)


def test_a_port_that_is_used_is_refused(tmp_path, kafka, port):
    with socket.create_server((HOST, port + 4)):
        said = refusal("init", tmp_path / "c", "--kafka", kafka, "--port", port)
    assert f"port {port + 4} of {HOST} cannot be used" in said
    assert "begin with a lower one" in refusal("init", tmp_path / "c", "--kafka", kafka, "--port", 65533)
    assert not (tmp_path / "c").exists()


def test_other_versions_are_refused(tmp_path, java, port):
    java()
    words = ("init", tmp_path / "c", "--port", port, "--kafka")
    assert "has no jar of Kafka's server" in refusal(*words, distribution(tmp_path))
    assert "there is no such folder" in refusal(*words, tmp_path / "nowhere")
    assert "has Kafka 3.9.1: one version is needed, 4.0 or later" in refusal(*words, distribution(tmp_path, "3.9.1"))
    (tmp_path / "kafka" / "libs" / "kafka_2.13-3.9.1.jar").unlink()
    kafka = distribution(tmp_path, "4.4.0")
    java(features=["metadata.version=31 (4.4-IV0)"])
    assert "clusters of Kafka 4.4.0 begin with metadata.version 31" in refusal(*words, kafka)
    assert not (tmp_path / "c").exists()


def test_without_java_it_is_refused(tmp_path, java, kafka, port, monkeypatch):
    words = ("init", tmp_path / "c", "--port", port, "--kafka", kafka)
    java(version="11.0.2")
    said = refusal(*words)
    assert "Kafka needs Java 17 or later" in said
    assert '"11.0.2"' in said
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    assert "there is no" in refusal(*words)
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "there is no java" in refusal(*words)


def test_nothing_is_left_when_a_tool_fails(tmp_path, java, kafka, port):
    java(fails="echo 'no room' >&2; exit 1; ")
    folder = tmp_path / "c"
    assert "no room" in refusal("init", folder, "--kafka", kafka, "--port", port)
    assert not folder.exists()
    folder.mkdir()
    assert "no room" in refusal("init", folder, "--kafka", kafka, "--port", port)
    check_unchanged(folder, [])


# ---- running


@pytest.fixture
def made(tmp_path, kafka, port):
    folder = tmp_path / "made"
    assert call("init", folder, "--kafka", kafka, "--port", port).exit_code == 0
    return folder


def test_a_process_that_ends_at_once_is_reported(made):
    result = call("start", made)
    assert result.exit_code == 1, result.output
    assert result.stdout == "1 of 2  starting the controllers (3); some 20 s\n"
    said = result.stderr
    assert "controller-101 has ended with exit code 3" in said
    assert "the disk is made of cheese" in said


def test_a_cluster_whose_ports_are_used_is_not_started(made, port):
    with socket.create_server((HOST, port)):
        assert f"port {port} of {HOST} cannot be used" in refusal("start", made)
    assert list((made / "logs").iterdir()) == []


def test_where_no_cluster_is(tmp_path, made):
    for command in ("start", "units"):
        assert f"has no cluster.json: make a cluster there with pylog cluster init {tmp_path}" in refusal(
            command, tmp_path
        )
    (made / "cluster.json").write_text('{"version": 1, "controllers": [{"id": 101}], "nodes": []}')
    assert "'port' is missing" in refusal("start", made)


def test_units(made, port):
    result = call("units", made)
    assert result.exit_code == 0
    found = {}
    for text in result.output.split("# /etc/systemd/system/")[1:]:
        name, _, content = text.partition("\n")
        found[name] = configparser.RawConfigParser()
        found[name].optionxform = str
        found[name].read_string(content)
    assert list(found) == [
        *(f"pylog-controller-{number}.service" for number in (101, 102, 103)),
        *(f"pylog-node-{number}.service" for number in (1, 2, 3)),
    ]
    node, controller = found["pylog-node-2.service"], found["pylog-controller-102.service"]
    assert node["Service"]["Type"] == "notify"
    assert "pylog-controller-103.service" in node["Unit"]["After"]
    words = shlex.split(node["Service"]["ExecStart"])
    assert words[:4] == [sys.executable, "-m", "pyspark_log.cli.start", "serve"]
    assert words[words.index("--store") + 1] == str(made / "node-2")
    assert words[words.index("--node-id") + 1] == "2"
    assert words[words.index("--listen") + 1] == f"{HOST}:{port + 1}"
    assert words[words.index("--controllers") + 1] == ",".join(f"{HOST}:{port + number}" for number in (3, 4, 5))
    words = shlex.split(controller["Service"]["ExecStart"])
    assert "-Xmx256m" in words
    assert words[-2:] == ["kafka.Kafka", str(made / "controller-102" / "server.properties")]
    for one in (node, controller):
        assert one["Service"]["User"] == str(made.stat().st_uid)


def test_names_of_folders_are_escaped():
    assert _escaped("/a b/ü\\\U0001f600") == "/a b/\\u00fc\\u005c\\ud83d\\ude00"
    assert _quoted("/plain-1.2") == "/plain-1.2"
    assert _quoted("/100% $of/a b") == '"/100%% $$of/a b"'
    assert _quoted('"\\') == '"\\"\\\\"'
