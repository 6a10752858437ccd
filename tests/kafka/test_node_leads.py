"""A node of ours that leads in a cluster of real Kafka: producers, followers, elections."""

import pytest
from kafka_clients import KafkaConsumer, TopicPartition
from mirror_tools import end_of, messages, start_of, whole, write
from node_tools import NODE, await_equal_at, known_brokers

from pyspark_log import Store
from tests.store_tools import damages
from tests.waiting import wait_until

SMALL = {"segment.bytes": 2**20}


def await_leader(cluster, topic, partition=0):
    wait_until(lambda: cluster.leader_of(topic, partition) == NODE, "the node leads")


def test_its_followers_have_all_byte_for_byte(cluster, node):
    cluster.create_topic("t", 1, 1)
    cluster.create_topic("l", assignment=[[1, 2, NODE]], configs={**SMALL, "min.insync.replicas": 2})
    cluster.wait_for_isr("l", 0, {1, 2, NODE})
    cluster.reassign("l", 0, [NODE, 1, 2])
    cluster.elect("l")
    await_leader(cluster, "l")
    write(cluster, "l", messages(1, 3000, size=2000), enable_idempotence=True)
    await_equal_at(cluster, node, "l", 1, 2)
    cluster.wait_for_isr("l", 0, {1, 2, NODE})
    wait_until(lambda: node.latest("l") == end_of(cluster, "l") == 3000, "all is visible")
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("l", 0)])
        read = 0
        while read < 3000:
            read += sum(map(len, consumer.poll(1000).values()))
    assert read == 3000
    # It is answered when all replicas have deleted.
    cluster.delete_records("l", 0, 2500)
    assert start_of(cluster, "l") == 2500
    assert node.stop() == 0
    assert not damages(node.path)


@pytest.mark.parametrize("times", [1, pytest.param(3, marks=pytest.mark.long)])
def test_leaders_are_killed_and_come_back(cluster, node, times):
    cluster.create_topic("t", 1, 1)
    cluster.create_topic("l", assignment=[[NODE, 1, 2]], configs={**SMALL, "min.insync.replicas": 2})
    sent = 0
    for _ in range(times):
        write(cluster, "l", messages(sent, 300), enable_idempotence=True)
        sent += 300
        cluster.wait_for_isr("l", 0, {1, 2, NODE})
        node.kill()
        wait_until(lambda: cluster.leader_of("l") in (1, 2), "another broker leads")
        write(cluster, "l", messages(sent, 200), enable_idempotence=True)
        sent += 200
        node.start()
        cluster.wait_for_isr("l", 0, {1, 2, NODE})
        cluster.elect("l")
        await_leader(cluster, "l")
        killed = 1 + sent % 2
        cluster[killed].kill()
        write(cluster, "l", messages(sent, 200), enable_idempotence=True)
        sent += 200
        cluster.start()
    cluster.wait_for_isr("l", 0, {1, 2, NODE})
    wait_until(lambda: node.latest("l") == sent, "all is there, once")
    await_equal_at(cluster, node, "l", 1, 2)
    assert node.stop() == 0
    assert not damages(node.path)


@pytest.mark.long
def test_a_log_dir_that_fails(cluster, node, tmp_path):
    node.stop()
    with Store.open(node.path) as store:
        store.add_log_dir(tmp_path / "second")
    node.start()
    wait_until(lambda: NODE in known_brokers(cluster, 1), "the broker knows the node")
    cluster.create_topic("l", assignment=[[NODE, 1]] * 6)
    for partition in range(6):
        cluster.wait_for_isr("l", partition, {NODE, 1})
    write(cluster, "l", messages(1, 600, partitions=6))
    second = {partition for partition in range(6) if (tmp_path / "second" / f"l-{partition}").exists()}
    assert 0 < len(second) < 6
    (tmp_path / "second").rename(tmp_path / "gone")
    node.wait_for("second has failed")
    for partition in second:
        wait_until(lambda partition=partition: cluster.leader_of("l", partition) == 1, "another one leads")
        cluster.wait_for_isr("l", partition, {1})
    for partition in set(range(6)) - second:
        cluster.wait_for_isr("l", partition, {NODE, 1})
        if cluster.leader_of("l", partition) != NODE:
            # A slow machine may have moved it for a moment.
            cluster.elect("l", partition)
        await_leader(cluster, "l", partition)
    write(cluster, "l", messages(2, 600, partitions=6))
    # It is used again when the node is started again.
    node.kill()
    (tmp_path / "gone").rename(tmp_path / "second")
    node.start()
    for partition in range(6):
        cluster.wait_for_isr("l", partition, {NODE, 1})
        wait_until(
            lambda partition=partition: (
                whole(cluster.folder_of(1, "l", partition)) == whole(folder_of(node, tmp_path, "l", partition))
            ),
            "all is equal",
        )
    assert node.stop() == 0
    assert not damages(node.path)


def folder_of(node, tmp_path, topic, partition):
    """Where the node has a partition."""
    there = tmp_path / "second" / f"{topic}-{partition}"
    return there if there.exists() else node.folder_of(topic, partition)
