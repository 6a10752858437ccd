"""Three real controllers, whose leader is killed or frozen: the node finds the next one, and stays what it is."""

import pytest
from cluster_node import Node
from kafka_cluster import Cluster

from tests.server_tools import Server

pytestmark = pytest.mark.usefixtures("kafka")

SETTINGS = {"broker.session.timeout.ms": 3000, "metadata.log.max.record.bytes.between.snapshots": 4000}


@pytest.fixture(scope="module")
def quorum(kafka, tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("quorum"), brokers=0, controllers=3, settings=SETTINGS) as running:
        yield running


@pytest.fixture
def node(quorum):
    """A node that is registered and unfenced. It knows one controller to begin with, and finds the others."""
    node = Node(quorum.controller_addresses[:1], quorum.cluster_id, 7)
    node.unfence()
    yield node
    node.close()


def leader_of(quorum, node):
    """The controller that leads, by what the node knows."""
    return quorum[quorum.controllers[quorum.controller_addresses.index(node.observer.leader)]]


@pytest.mark.parametrize("times", [1, pytest.param(3, marks=pytest.mark.long)])
def test_the_leader_is_killed(quorum, node, times):
    # The node of a test before may still be known when this one begins.
    registrations = node.sent.count("BrokerRegistrationRequest")
    for _ in range(times):
        leader, epoch, offset = node.observer.leader, node.registration.epoch, node.image.position.offset
        killed = leader_of(quorum, node)
        killed.kill()
        node.run_until(lambda old=leader: node.observer.leader not in (None, old) and node.observer.is_current)
        node.run_until(lambda: node.registration.trouble is None and not node.registration.is_fenced)
        assert node.registration.epoch == node.image.brokers[7].epoch == epoch
        assert node.image.position.offset > offset
        node.run_during(killed.start)
    assert node.sent.count("BrokerRegistrationRequest") == registrations
    node.shut_down()


@pytest.mark.long
def test_the_leader_is_frozen_and_comes_back(quorum, node):
    leader, frozen = node.observer.leader, leader_of(quorum, node)
    frozen.pause()
    node.run_until(lambda: node.observer.leader not in (None, leader) and node.observer.is_current)
    node.run_until(lambda: node.registration.trouble is None and not node.registration.is_fenced)
    frozen.resume()
    # It is a follower now, which names the new leader.
    other = Node([leader], quorum.cluster_id)

    def agree():
        node.step()
        return other.observer.is_current and other.observer.leader == node.observer.leader

    other.run_until(agree)
    other.close()
    node.shut_down()


@pytest.mark.long
def test_a_node_that_starts_first_waits_for_its_controllers(kafka, tmp_path):
    quorum = Cluster(tmp_path / "quorum", brokers=0, settings=SETTINGS)
    [(host, port)] = quorum.controller_addresses
    node = Server(tmp_path / "store", tmp_path, "--node-id", 7, "--controllers", f"{host}:{port}", "--stay-fenced")
    try:
        node.launch()
        node.wait_for(f"the controller {host}:{port} does not answer")
        quorum.start()
        node.await_start()
        assert node.stop() == 0
    finally:
        node.kill()
        quorum.kill()
