"""Three real controllers, whose leader is killed or frozen: the node finds the next one, and stays what it is."""

import signal

import pytest
from cluster_node import Node
from quorum import Quorum

from tests.server_tools import Server

pytestmark = pytest.mark.usefixtures("kafka")


@pytest.fixture(scope="module")
def quorum(kafka, tmp_path_factory):
    quorum = Quorum(tmp_path_factory.mktemp("quorum"))
    try:
        quorum.start(0, 1, 2)
        yield quorum
    finally:
        quorum.close()


@pytest.fixture
def node(quorum):
    """A node that is registered and unfenced. It knows one controller to begin with, and finds the others."""
    node = Node(quorum.addresses[:1], quorum.cluster_id, 7)
    node.unfence()
    yield node
    node.close()


@pytest.mark.parametrize("times", [1, pytest.param(3, marks=pytest.mark.long)])
def test_the_leader_is_killed(quorum, node, times):
    for _ in range(times):
        leader, epoch, offset = node.observer.leader, node.registration.epoch, node.image.position.offset
        number = quorum.addresses.index(leader)
        quorum.kill(number)
        node.run_until(lambda old=leader: node.observer.leader not in (None, old) and node.observer.is_current)
        node.run_until(lambda: node.registration.trouble is None and not node.registration.is_fenced)
        assert node.registration.epoch == node.image.brokers[7].epoch == epoch
        assert node.image.position.offset > offset
        node.run_during(quorum.start, number)
    assert node.sent.count("BrokerRegistrationRequest") == 1
    node.shut_down()


@pytest.mark.long
def test_the_leader_is_frozen_and_comes_back(quorum, node):
    leader = node.observer.leader
    number = quorum.addresses.index(leader)
    quorum.signal(number, signal.SIGSTOP)
    node.run_until(lambda: node.observer.leader not in (None, leader) and node.observer.is_current)
    node.run_until(lambda: node.registration.trouble is None and not node.registration.is_fenced)
    quorum.signal(number, signal.SIGCONT)
    # It is a follower now, which names the new leader.
    other = Node([leader], quorum.cluster_id)

    def agree():
        node.step()
        return other.observer.is_current and other.observer.leader == node.observer.leader

    other.run_until(agree)
    other.close()
    node.shut_down()


@pytest.mark.long
def test_a_node_that_starts_first_waits_for_its_controllers(tmp_path):
    quorum = Quorum(tmp_path, count=1)
    [(host, port)] = quorum.addresses
    node = Server(tmp_path / "store", tmp_path, "--node-id", 7, "--controllers", f"{host}:{port}", "--stay-fenced")
    try:
        node.launch()
        node.wait_for(f"the controller {host}:{port} does not answer")
        quorum.start(0)
        node.await_start()
        assert node.stop() == 0
    finally:
        node.kill()
        quorum.close()
