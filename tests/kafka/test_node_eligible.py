"""A node of ours that was in sync remains an eligible leader after a stop in order, and not after a kill."""

import json
import signal

import pytest
from cluster_node import Node
from mirror_tools import messages, write
from node_tools import NODE

from pyspark_log import Store
from pyspark_log.kafka import messages as m
from tests.server_tools import PATIENCE, Peer
from tests.waiting import wait_until

BROKERS = 1
FILE = ".kafka_cleanshutdown"


@pytest.fixture
def partition(cluster, node):
    """Waits until something holds of the partition t-0, by the metadata."""
    with Store.open(node.path) as store:
        observer = Node(cluster.controller_addresses, store.cluster_id)

    def wait(condition):
        def holds():
            topic = observer.image.topic("t")
            return topic is not None and condition(topic.partitions[0])

        observer.run_until(holds)
        return observer.image

    yield wait
    observer.close()


def epoch_of(image):
    return image.brokers[NODE].epoch


def test_it_remains_eligible_after_a_clean_stop_alone(cluster, node, partition):
    cluster.create_topic("t", assignment=[[1, NODE]], configs={"min.insync.replicas": 2})
    write(cluster, "t", messages(1, 50), enable_idempotence=True)
    before = epoch_of(partition(lambda one: set(one.isr) == {1, NODE}))
    assert node.stop() == 0
    note = node.path / "data" / FILE
    assert json.loads(note.read_text()) == {"version": 0, "brokerEpoch": before}
    partition(lambda one: set(one.isr) == {1} and set(one.elr) == {NODE})
    cluster[1].kill()
    partition(lambda one: not one.isr and set(one.elr) == {1, NODE} and one.leader == -1)
    # It is elected, as it has all that was committed.
    node.start()
    assert not note.exists()
    led = partition(lambda one: one.leader == NODE)
    assert epoch_of(led) > before
    cluster.start()
    partition(lambda one: set(one.isr) == {1, NODE})
    write(cluster, "t", messages(2, 50), enable_idempotence=True)
    # Now the same after a kill.
    node.kill()
    assert not note.exists()
    partition(lambda one: set(one.isr) == {1} and set(one.elr) == {NODE})
    cluster[1].kill()
    partition(lambda one: not one.isr and set(one.elr) == {1, NODE})
    node.start()
    left = partition(lambda one: set(one.elr) == {1})
    assert left.topic("t").partitions[0].leader == -1
    assert epoch_of(left) > epoch_of(led)
    # The other one has it all, and leads again.
    cluster.start()
    partition(lambda one: one.leader == 1)
    partition(lambda one: set(one.isr) == {1, NODE})
    wait_until(lambda: node.latest("t") == 100, "all is there")


@pytest.mark.long
def test_it_serves_until_it_may_leave(cluster, node, partition):
    cluster.create_topic("t", assignment=[[1, NODE]])
    partition(lambda one: set(one.isr) == {1, NODE})
    with Peer(node) as peer:
        assert peer.ask(m.MetadataRequest(None), 12).brokers
        cluster[cluster.controllers[0]].pause()
        try:
            node.process.send_signal(signal.SIGTERM)
            for _ in range(50):
                assert peer.ask(m.MetadataRequest(None), 12).brokers
            # The second one ends it at once, and it is in order, too.
            node.process.send_signal(signal.SIGTERM)
            assert node.process.wait(PATIENCE) == 0
        finally:
            cluster[cluster.controllers[0]].resume()
    assert (node.path / "data" / FILE).exists()
