"""`pylog cluster` with Kafka's own controllers: made, run, a node killed, stopped in order."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kafka_clients import KafkaAdminClient, KafkaConsumer, NewTopic, OffsetAndMetadata
from kafka_clients import TopicPartition as KafkaPartition
from kafka_tools import FOLDER, JARS, NEWEST, PATIENCE, run

from pyspark_log import Store, TopicPartition
from tests.ports import HOST, free_ports_in_a_row
from tests.waiting import wait_until

NODES = (1, 2, 3)


class Started:
    """`pylog cluster start` as a process."""

    def __init__(self, folder, output):
        self._output = output
        with open(output, "wb") as to:
            self.process = subprocess.Popen([*PYLOG, "start", str(folder)], stdout=to, stderr=to)

    def output(self):
        return self._output.read_text()

    def wait_for(self, text):
        def is_said():
            assert self.process.poll() is None, self.output()
            return text in self.output()

        wait_until(is_said, f"it says {text!r}")

    def stop(self, number=signal.SIGTERM):
        """Ends it; its exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)

    def pid_of(self, word):
        """The process of the cluster that has a word among its arguments."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text(encoding="ascii")
        [found] = [pid for pid in map(int, children.split()) if word in arguments_of(pid)]
        return found


PYLOG = (sys.executable, "-m", "pyspark_log.cli.start", "cluster")


def arguments_of(pid):
    return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8").split("\0")


@pytest.fixture
def folder(kafka, tmp_path):
    """A cluster that was made."""
    words = ["init", tmp_path / "cluster", "--kafka", FOLDER / JARS[NEWEST], "--port", free_ports_in_a_row(6)]
    done = subprocess.run([*PYLOG, *map(str, words)], capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return tmp_path / "cluster"


@pytest.fixture
def started(folder, tmp_path):
    made = Started(folder, tmp_path / "output")
    try:
        yield made
    finally:
        if made.process.poll() is None:
            # The second one ends it at once, with all that it has started.
            made.process.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            made.process.send_signal(signal.SIGTERM)
            made.process.wait(PATIENCE)


def test_it_runs_and_reports_a_node_that_is_killed(folder, started):
    started.wait_for("All 3 nodes are unfenced. bootstrap.servers=")
    bootstrap = re.search(r"bootstrap.servers=(\S+)", started.output())[1]
    assert bootstrap.count(HOST) == 3
    listed = run("org.apache.kafka.tools.ClusterTool", "list-endpoints", "--bootstrap-server", bootstrap)
    assert {line.split()[0] for line in listed.splitlines()[1:]} == {"1", "2", "3"}
    quorum = ",".join(f"{HOST}:{int(bootstrap.rpartition(':')[2]) + number}" for number in NODES)
    features = run("org.apache.kafka.tools.FeatureCommand", "--bootstrap-controller", quorum, "describe")
    levels = dict(re.findall(r"^Feature: (\S+).*FinalizedVersionLevel: (\S+)", features, flags=re.M))
    assert levels == {
        "eligible.leader.replicas.version": "1", "group.version": "1", "kraft.version": "1",
        "metadata.version": "4.3-IV0", "share.version": "0", "streams.version": "0", "transaction.version": "2",
    }  # fmt: skip
    os.kill(started.pid_of(str(folder / "node-2")), signal.SIGKILL)
    started.wait_for("node-2 has ended by SIGKILL")
    started.wait_for(f"serve --store {folder}/node-2")
    assert "node 2: unfenced" in started.output()
    os.kill(started.pid_of(str(folder / "controller-103" / "server.properties")), signal.SIGKILL)
    started.wait_for("controller-103 has ended by SIGKILL")
    assert started.stop() == 0, started.output()
    logs = {one.stem: one for one in (folder / "logs").iterdir()}
    for number in (1, 3):
        assert logs[f"node-{number}"].read_text().splitlines()[-1].endswith("INFO stopped")
    left = max(logs[f"node-{number}"].stat().st_mtime_ns for number in (1, 3))
    for number in (101, 102):
        # The controllers have let the nodes leave before they ended.
        assert logs[f"controller-{number}"].stat().st_mtime_ns > left
        assert f"kafka.server for {number} unregistered" in logs[f"controller-{number}"].read_text()


@pytest.mark.long
def test_what_groups_committed_for_a_topic_is_deleted_with_it(folder, started):
    started.wait_for("All 3 nodes are unfenced")
    servers = re.search(r"bootstrap.servers=(\S+)", started.output())[1].split(",")
    gone, stays = KafkaPartition("gone", 0), KafkaPartition("stays", 0)
    # They are coordinated by all nodes, and one has the topic that is deleted.
    groups = [f"g{number}" for number in range(6)]
    with KafkaAdminClient(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(gone.topic, 1, 1), NewTopic(stays.topic, 1, -1)])
        for group in groups:
            with KafkaConsumer(bootstrap_servers=servers, group_id=group) as consumer:
                consumer.assign([gone, stays])
                consumer.commit({one: OffsetAndMetadata(5, "", -1) for one in (gone, stays)})
        (described,) = admin.describe_topics([stays.topic])
        assert sorted(described["partitions"][0]["replica_nodes"]) == [*NODES]
        admin.delete_topics([gone.topic])
        for group in groups:
            with KafkaConsumer(bootstrap_servers=servers, group_id=group) as consumer:
                wait_until(lambda at=consumer: at.committed(gone) is None, f"{group} has no offset in the topic")
                assert consumer.committed(stays) == 5
    at = TopicPartition("stays", 0)
    for number in NODES:
        with Store.open(folder / f"node-{number}") as store:
            wait_until(
                lambda store=store: all({*store.groups[group].committed()} == {at} for group in groups),
                f"node {number} has that, too",
            )
    assert started.stop() == 0, started.output()


@pytest.mark.long
def test_ctrl_c_before_it_is_ready_ends_all(folder, started):
    wait_until((folder / "logs" / "controller-103.log").exists, "controllers are started")
    assert started.stop(signal.SIGINT) == 130, started.output()
    assert "unfenced" not in started.output()


@pytest.mark.long
def test_a_cluster_continues_where_it_was_stopped(folder, tmp_path):
    for number in (1, 2):
        running = Started(folder, tmp_path / f"output{number}")
        try:
            running.wait_for("All 3 nodes are unfenced")
        finally:
            assert running.stop() == 0
