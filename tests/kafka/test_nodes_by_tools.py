"""Nodes of ours, and one broker of Kafka, under Kafka's own tools: elections, racks, reassignment, closest replicas."""

import json
import shutil

import pytest
from kafka_tools import run
from mirror_tools import Writer, messages, whole, write
from node_tools import RACKS

from pyspark_log import Store
from pyspark_log.storage.catalog.topics import id_bytes
from tests import requests as r
from tests.store_tools import all_values
from tests.waiting import wait_until

ELECT = "org.apache.kafka.tools.LeaderElectionCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"


def tool(nodes, main, *arguments):
    """Runs one of Kafka's tools, which finds the cluster by a node."""
    return run(main, "--bootstrap-server", nodes[13].bootstrap, *arguments)


@pytest.mark.long
def test_elections(nodes):
    cluster, made = nodes
    cluster.create_topic("l", assignment=[[11, 12, 13]], configs={"min.insync.replicas": 2})
    cluster.wait_for_isr("l", 0, {11, 12, 13})
    assert cluster.leader_of("l") == 11
    writer = Writer(cluster, enable_idempotence=True)
    writer.send("l", messages(1, 500))
    # In order: another one leads before the node ends.
    assert made[11].stop() == 0
    wait_until(lambda: cluster.leader_of("l") in (12, 13), "another one leads")
    writer.send("l", messages(2, 500))
    writer.flush()
    made[11].start()
    cluster.wait_for_isr("l", 0, {11, 12, 13})
    # By preference.
    tool(made, ELECT, "--election-type", "preferred", "--topic", "l", "--partition", "0")
    wait_until(lambda: cluster.leader_of("l") == 11, "the preferred replica leads")
    # As the leader is gone.
    made[11].kill()
    wait_until(lambda: cluster.leader_of("l") in (12, 13), "another one leads")
    second = cluster.leader_of("l")
    writer.send("l", messages(3, 500))
    writer.flush()
    # Of a replica that is not in sync.
    other = 25 - second
    made[other].kill()
    cluster.wait_for_isr("l", 0, {second})
    write(cluster, "l", messages(4, 100), acks=1)
    made[second].kill()
    wait_until(lambda: cluster.leader_of("l") is None, "there is no leader")
    made[11].start().wait_for("unfenced")
    at = ("--bootstrap-server", made[11].bootstrap)
    run(ELECT, *at, "--election-type", "unclean", "--topic", "l", "--partition", "0")
    wait_until(lambda: cluster.leader_of("l") == 11, "one that was not in sync leads")
    for number in (second, other):
        made[number].start()
    cluster.wait_for_isr("l", 0, {11, 12, 13})
    write(cluster, "l", messages(5, 100))
    wait_until(lambda: len({whole(made[one].folder_of("l")) for one in made}) == 1, "all are equal")


@pytest.mark.long
def test_replicas_are_in_different_racks(nodes):
    cluster, made = nodes
    tool(made, TOPICS, "--create", "--topic", "r", "--partitions", "8", "--replication-factor", "2")
    cluster._wait_for_leaders("r", 8)
    found = cluster._topic("r").partitions
    assert len(found) == 8
    assert all({RACKS[node] for node in one.replica_nodes} == {"a", "b"} for one in found)
    assert {node for one in found for node in one.replica_nodes} == set(RACKS)
    described = tool(made, TOPICS, "--describe", "--topic", "r")
    assert described.count("Leader:") == 8


def test_a_reassignment_there_and_back_is_throttled(nodes, tmp_path):
    cluster, made = nodes
    cluster.create_topic("m", assignment=[[11, 12]])
    write(cluster, "m", messages(1, 4000, size=10_000))
    size = len(whole(made[11].folder_of("m")))
    plan = tmp_path / "plan.json"

    def move(replicas, throttle):
        partition = {"topic": "m", "partition": 0, "replicas": replicas}
        plan.write_text(json.dumps({"version": 1, "partitions": [partition]}))
        tool(made, REASSIGN, "--reassignment-json-file", plan, "--execute", "--throttle", throttle)
        options = "--reassignment-json-file", plan, "--verify"
        wait_until(lambda: "is completed" in tool(made, REASSIGN, *options), f"the partition is at {replicas}")
        cluster.wait_for_isr("m", 0, replicas)

    move([13, 1], 200_000_000)
    assert len(whole(made[13].folder_of("m"))) == size
    wait_until(lambda: not made[11].folder_of("m").exists(), "the old replica is deleted")
    move([11, 12], 200_000_000)
    assert len(whole(made[11].folder_of("m"))) == size

    def throttled():
        [described] = cluster.ask(11, r.describe_configs(2, "m"), 4).results
        return [one.name for one in described.configs if "throttled" in one.name and one.value]

    wait_until(lambda: not throttled(), "the tool has removed its throttles")


@pytest.mark.long
def test_consumers_read_from_the_closest_replica(nodes):
    cluster, made = nodes
    cluster.create_topic("c", assignment=[[11, 13]])
    write(cluster, "c", messages(1, 100), enable_idempotence=True)
    cluster.wait_for_isr("c", 0, {11, 13})
    wait_until(lambda: made[13].latest("c") == 100, "all is visible at the follower")
    topic_id = id_bytes(cluster.topic_id("c"))

    def fetched(number, rack):
        [topic] = cluster.ask(number, r.fetch("c", 10, topic_id=topic_id, rack_id=rack), 13).responses
        [part] = topic.partitions
        return part.error_code, part.preferred_read_replica, bool(part.records)

    assert fetched(11, "b") == (0, 13, False)
    assert fetched(13, "b") == (0, -1, True)
    assert fetched(11, "a") == fetched(11, "") == fetched(11, "elsewhere") == (0, -1, True)


def test_disks_that_are_replaced_one_after_the_other(nodes, tmp_path):
    """A node with an empty store copies what it had, and may lead again; also after log dirs came and went."""
    cluster, made = nodes
    cluster.create_topic("d", assignment=[[11, 12, 13]], configs={"min.insync.replicas": 1})
    write(cluster, "d", messages(1, 50))
    for number, node in made.items():
        cluster.wait_for_isr("d", 0, {11, 12, 13})
        node.stop()
        if number == 13:
            extra = tmp_path / "extra"
            with Store.open(node.path) as store:
                store.add_log_dir(extra)
                store.move_partition("d", 0, extra)
            node.start()
            cluster.wait_for_isr("d", 0, {11, 12, 13})
            node.stop()
            with Store.open(node.path) as store:
                store.move_partition("d", 0, store.describe_log_dirs()[0].path)
                for left in extra.glob("*-delete"):
                    shutil.rmtree(left)
                store.remove_log_dir(extra)
        else:
            shutil.rmtree(node.path)
        node.start()
        cluster.wait_for_isr("d", 0, {11, 12, 13})
    for number in (11, 12):
        made[number].kill()
    assert cluster.wait_for_leader("d", 0, other_than=(11, 12)) == 13
    cluster.wait_for_isr("d", 0, {13})
    assert len(all_values(Store.open(made[13].path), "d")) == 50
