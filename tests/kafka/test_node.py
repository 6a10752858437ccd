"""A node of ours in a cluster of real Kafka: it follows what is assigned to it, byte for byte."""

import contextlib
import os
import random
import signal

import pytest
from kafka_cluster import SCRAM, Cluster, secured
from kafka_tools import PATIENCE
from mirror_tools import Writer, end_of, messages, segments, write
from node_tools import NODE, NodeServer, await_equal, await_visible

from pyspark_log import Store
from pyspark_log.errors import PartitionOwnedError
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.storage.catalog.topics import id_bytes
from tests import requests as r
from tests.server_tools import Peer, running
from tests.store_tools import damages, rows
from tests.waiting import wait_until

SMALL = {"segment.bytes": 2**20}


def create_at(cluster, topic, replicas):
    """Makes a topic with one partition; broker 1 is asked, whatever it says of the controller."""
    [made] = cluster.ask(1, r.create_topic(topic, -1, -1, [(0, replicas)]), 5).topics
    assert made.error_code == 0


def test_it_has_its_replicas_byte_for_byte(cluster, node):
    cluster.create_topic("t", assignment=[[1, NODE], [2, NODE], [1, 2]], configs=SMALL)
    write(cluster, "t", messages(1, 6000, partitions=3, size=2000))
    for partition, leader in ((0, 1), (1, 2)):
        cluster.wait_for_isr("t", partition, {leader, NODE})
        await_equal(cluster, node, "t", partition)
        assert len(segments(node.folder_of("t", partition))) > 1
        assert segments(node.folder_of("t", partition)) == segments(cluster.folder_of(leader, "t", partition))
        await_visible(cluster, node, "t", partition)
    assert not node.folder_of("t", 2).exists()
    with Store.open(node.path) as store:
        assert store.describe_topic("t").topic_id == cluster.topic_id("t")
        with pytest.raises(PartitionOwnedError, match="node 7 of a Kafka cluster has a replica here"):
            store.append("t", rows(b"x"), partition=0)
    assert node.stop() == 0
    assert not damages(node.path)


@pytest.mark.long
def test_readers_see_what_is_committed_only(cluster, node):
    cluster.create_topic("t", assignment=[[1, 2, NODE]])
    write(cluster, "t", messages(1, 100), enable_idempotence=True)
    await_equal(cluster, node, "t")
    cluster.wait_for_isr("t", 0, {1, 2, NODE})
    wait_until(lambda: node.latest("t") == 100, "all is visible")
    # With a follower that is in sync and does not fetch, nothing more is committed until the leader drops it.
    cluster[2].pause()
    writer = Writer(cluster, acks=1)
    writer.send("t", messages(2, 50))
    wait_until(lambda: node.log_end("t") == 150, "the node has what is not committed")
    assert node.latest("t") in (100, 150)
    cluster.wait_for_isr("t", 0, {1, NODE})
    wait_until(lambda: node.latest("t") == 150, "it is committed")
    writer.flush()
    cluster[2].resume()


@pytest.mark.long
def test_clients_wait_until_it_knows_the_cluster(node):
    """librdkafka forgets all brokers if one names none, and does not come back."""
    assert node.stop() == 0
    node.launch()
    wait_until(lambda: node.output().count("serving ") == 2, "it listens again")
    with Peer(node) as peer:
        assert NODE in {one.node_id for one in peer.ask(r.metadata("t"), 12).brokers}
    node.await_start()


@pytest.mark.long
def test_a_fenced_node_delays_no_producer(cluster, tmp_path):
    with running(NodeServer(cluster, tmp_path / "node", "--stay-fenced")) as node:
        cluster.create_topic("t", 1, 1)
        # A fenced broker is no place for new replicas unless it is named.
        create_at(cluster, "f", [1, NODE])
        write(cluster, "f", messages(1, 500))
        await_equal(cluster, node, "f")
        assert cluster.isr("f") == {1}


@pytest.mark.long
def test_what_an_unclean_election_replaces_is_truncated(cluster, node):
    cluster.create_topic("t", assignment=[[1, 2, NODE]], configs={"unclean.leader.election.enable": "false"})
    write(cluster, "t", messages(1, 100))
    cluster.wait_for_isr("t", 0, {1, 2, NODE})
    cluster[2].kill()
    cluster.wait_for_isr("t", 0, {1, NODE})
    node.stop()
    cluster.wait_for_isr("t", 0, {1})
    node.start()
    write(cluster, "t", messages(2, 100), acks=1)
    wait_until(lambda: node.latest("t") == 200, "the node has all, as committed")
    node.kill()
    cluster.wait_for_isr("t", 0, {1})
    cluster[1].kill()
    cluster[2].launch()
    cluster[2].await_start()
    wait_until(lambda: cluster.leader_of("t") is None, "the leader is gone")
    cluster.elect("t", unclean=True)
    assert cluster.wait_for_leader("t") == 2
    write(cluster, "t", messages(3, 30), acks=1)
    node.start()
    await_equal(cluster, node, "t")
    assert node.log_end("t") == 130
    assert "an unclean election has replaced records: the copy has offsets 100 to 199" in node.output()
    assert node.stop() == 0
    assert not damages(node.path)


def test_topics_come_change_and_go(cluster, node):
    cluster.create_topic("t", assignment=[[1, NODE]], configs=SMALL)
    write(cluster, "t", messages(1, 500))
    await_equal(cluster, node, "t")
    cluster.add_partitions("t", [[2, NODE]])
    cluster.alter_configs("t", {"retention.ms": 99_000_000})
    cluster.delete_records("t", 0, 100)

    def follows():
        with Store.open(node.path) as store:
            found = store.describe_topic("t")
            return (
                found.partitions == 2
                and found.configs.get("retention.ms") == "99000000"
                and (store.earliest_offset("t", 0) == 100)
            )

    wait_until(follows, "the node follows")
    cluster.delete_topic("t")
    wait_until(lambda: "t" not in Store.open(node.path).topics(), "the topic is deleted here")
    cluster.create_topic("t", assignment=[[2, NODE]])
    write(cluster, "t", messages(2, 50))
    await_equal(cluster, node, "t")
    assert node.stop() == 0
    # What changes while it is stopped, it finds at its start.
    cluster.delete_topic("t")
    cluster.create_topic("t", assignment=[[1, NODE]])
    write(cluster, "t", messages(3, 70))
    node.start()
    await_equal(cluster, node, "t")
    assert node.log_end("t") == 70


@pytest.mark.long
def test_clients_can_fetch_what_is_there_after_an_election(cluster, node):
    cluster.create_topic("t", assignment=[[1, 2, NODE]])
    write(cluster, "t", messages(1, 100), enable_idempotence=True)
    cluster.wait_for_isr("t", 0, {1, 2, NODE})
    wait_until(lambda: node.latest("t") == 100, "all is visible")
    cluster[1].kill()
    cluster.wait_for_leader("t", other_than=[1])
    now = cluster._partition("t", 0).leader_epoch
    topic_id = id_bytes(cluster.topic_id("t"))

    def answer(epoch):
        with Peer(node) as peer:
            [topic] = peer.ask(r.fetch("t", 0, epoch, topic_id=topic_id), 13).responses
        [part] = topic.partitions
        return part.error_code, bool(part.records)

    # Nothing was written since: the last record has the epoch before.
    wait_until(lambda: answer(now) == (0, True), "the node answers clients that know of the election")
    assert answer(now - 1) == (ErrorCode.FENCED_LEADER_EPOCH, False)
    assert answer(now + 1) == (ErrorCode.UNKNOWN_LEADER_EPOCH, False)
    assert answer(-1) == (0, True)


@pytest.mark.long
def test_a_node_that_is_killed_again_and_again(cluster, node):
    cluster.create_topic("t", assignment=[[1, NODE], [2, NODE]], configs={**SMALL, "min.insync.replicas": 1})
    chance, writer = random.Random(11), Writer(cluster, enable_idempotence=True)
    for number in range(10):
        writer.send("t", messages(number, 400, partitions=2))
        node.process.send_signal(signal.SIGKILL if chance.random() < 0.8 else signal.SIGTERM)
        node.process.wait(PATIENCE)
        node.start()
    writer.flush()
    for partition in range(2):
        await_equal(cluster, node, "t", partition)
        await_visible(cluster, node, "t", partition)
    assert node.stop() == 0
    assert not damages(node.path)


def test_replicas_that_lack_synced_records_are_copied_again(cluster, node):
    """Where another broker leads. Where it is the last one it refuses, until its files are as they were."""
    cluster.create_topic("t", assignment=[[1, NODE], [2, NODE]], configs={**SMALL, "min.insync.replicas": 1})
    cluster.create_topic("alone", assignment=[[NODE]], configs=SMALL)
    write(cluster, "t", messages(1, 2000, partitions=2, size=2000))
    write(cluster, "alone", messages(1, 1000, size=2000))
    for partition in (0, 1):
        await_equal(cluster, node, "t", partition)
    node.kill()
    for folder in (node.folder_of("t", 0), node.folder_of("t", 1), node.folder_of("alone")):
        path = max(folder.glob("*.log"))
        data = path.read_bytes()
        os.truncate(path, len(data) - 100)
    write(cluster, "t", messages(2, 200, partitions=2))
    node.start()
    for partition, leader in ((0, 1), (1, 2)):
        cluster.wait_for_isr("t", partition, {leader, NODE})
        await_equal(cluster, node, "t", partition)
        assert node.output().count(f"All of t-{partition} is copied again from broker {leader}") == 1
    assert "alone-0 is copied again" not in node.output()
    wait_until(lambda: "kafka-leader-election.sh" in node.output(), "the last replica refuses")
    node.kill()
    path.write_bytes(data)
    node.start()
    assert end_of(cluster, "alone") == 1000
    assert node.stop() == 0
    assert not damages(node.path)


@pytest.mark.long
def test_the_store_of_another_cluster_is_refused(cluster, tmp_path):
    (tmp_path / "node").mkdir()
    Store.create(tmp_path / "node" / "store").close()
    with pytest.raises(RuntimeError, match="take another store"):
        NodeServer(cluster, tmp_path / "node").start()


class OlderNode(NodeServer):
    """One that does not know all of the cluster's features."""

    program = ("-m", "tests.kafka.older_node", "serve")


@pytest.mark.long
def test_a_feature_that_is_not_known_ends_it(cluster, tmp_path):
    node = OlderNode(cluster, tmp_path / "node")
    with contextlib.suppress(RuntimeError):  # It has ended before it was ready.
        node.start()
    assert node.process.wait(PATIENCE) == 1
    assert "the cluster has finalized group.version at level 1, and this version of pyspark-log knows" in node.output()
    assert "Traceback" not in node.output()


@pytest.mark.long
def test_it_logs_in_to_brokers(kafka, tmp_path):
    users = {"anna": "correct horse"}
    authority, settings = secured(tmp_path, users)
    with Cluster(tmp_path / "cluster", brokers=2, listeners=["SASL_SSL"], settings=settings) as cluster:
        cluster.add_scram_users(users)
        login = (
            "security.protocol=SASL_SSL", f"sasl.mechanism={SCRAM}", "sasl.username=anna",
            "sasl.password=correct horse", f"ssl.ca.location={authority.certificate}",
        )  # fmt: skip
        with running(NodeServer(cluster, tmp_path / "node", login=login)) as node:
            node.wait_for("unfenced")
            # Clients of another listener than the node's do not see the node, which Kafka may name as the controller.
            create_at(cluster, "t", [1, NODE])
            write(cluster, "t", messages(1, 200))
            await_equal(cluster, node, "t")
        assert "correct horse" not in node.output()
