"""A node registers with a real controller, is unfenced, cordoned, replaced and shut down, and survives its restart."""

import os
import re
import time

import pytest
from cluster_node import Admin, Node
from kafka_tools import run, running_broker

from pyspark_log.kafka import messages as m
from pyspark_log.server.cluster import State, registration
from pyspark_log.server.cluster.errors import MetadataError, RegistrationError, UnsupportedFeatureError
from pyspark_log.server.cluster.features import SUPPORTED
from pyspark_log.server.cluster.registration import NO_EPOCH
from tests import requests as r
from tests.replica_changes import Action, replica_changes

pytestmark = pytest.mark.usefixtures("kafka")

SESSION = 6.0


@pytest.fixture(scope="module")
def broker(kafka, tmp_path_factory):
    """A broker and controller, which takes a node for dead soon."""
    settings = {"broker.session.timeout.ms": int(1000 * SESSION)}
    with running_broker(tmp_path_factory.mktemp("cluster"), settings=settings) as running:
        yield running


@pytest.fixture
def start(broker):
    """Starts nodes, which end with the test: in order, those that are registered."""
    nodes = []

    def make(node_id, *, unfenced=True, **config):
        nodes.append(Node([broker.controller], broker.cluster_id, node_id, **config))
        if unfenced:
            nodes[-1].unfence()
        return nodes[-1]

    yield make
    for node in nodes:
        if node.registration.state is State.REGISTERED:
            node.shut_down()
        node.close()


def endpoints(broker):
    """What Kafka's tool prints of brokers: their states by id."""
    printed = run(
        "org.apache.kafka.tools.ClusterTool", "list-endpoints", "--bootstrap-server", broker.bootstrap,
        "--include-fenced-brokers",
    )  # fmt: skip
    return dict(re.findall(r"^(\d+) .* (fenced|unfenced) +broker", printed, re.M))


def test_a_node_is_registered_caught_up_and_unfenced_when_it_is_ready(broker, start):
    node = start(10, unfenced=False)
    node.run_until(lambda: node.registration.is_caught_up)
    own = node.image.brokers[10]
    assert (own.epoch, own.fenced, own.log_dirs) == (node.registration.epoch, True, (node.directory_id,))
    assert node.run_during(endpoints, broker)["10"] == "fenced"
    node.unfence()
    node.run_until(lambda: not node.image.brokers[10].fenced)
    assert node.run_during(endpoints, broker)["10"] == "unfenced"
    quorum = node.run_during(broker.run, "org.apache.kafka.tools.MetadataQuorumCommand", "describe", "--replication")
    assert re.search(r"^10\s.*\tObserver", quorum, re.M)
    # It stays unfenced for longer than a session.
    end = time.monotonic() + 2 * SESSION
    node.run_until(lambda: time.monotonic() > end)
    assert not node.image.brokers[10].fenced


def test_a_node_follows_its_replicas(broker, start):
    node = start(11)
    with Admin(broker) as admin:
        topic_id = node.run_during(admin.create_topic, "followed", [[1, 11], [11, 1]])
        node.run_until(lambda: node.image.topic("followed") is not None)
        node.run_during(admin.delete_topic, "followed")
        node.run_until(lambda: node.image.topic("followed") is None)
    found = [one for change in node.changes for one in replica_changes(change, 11) if one.topic_id == topic_id]
    begun = sorted((one.number, one.action, one.after.leader_epoch) for one in found if one.before is None)
    assert begun == [(0, Action.FOLLOW, 0), (1, Action.LEAD, 0)]
    assert [one.action for one in found if one.after is None] == [Action.DELETE] * 2


def test_cordoned_log_dirs_get_no_partitions_until_they_are_free_again(broker, start):
    node = start(13, unfenced=False)
    node.registration.cordon((node.directory_id,))
    node.unfence()
    node.run_until(lambda: node.image.brokers[13].cordoned_log_dirs == (node.directory_id,))
    with Admin(broker) as admin:
        node.run_during(admin.ask, r.create_topic("elsewhere", 8))
        node.run_until(lambda: node.image.topic("elsewhere") is not None)
        partitions = node.image.topic("elsewhere").partitions.values()
        assert {broker for one in partitions for broker in one.replicas} == {1}
        node.registration.cordon(())
        node.run_until(lambda: node.image.brokers[13].cordoned_log_dirs == ())
        node.run_during(admin.delete_topic, "elsewhere")


@pytest.mark.long
def test_a_second_node_with_the_same_id_waits_until_the_first_is_gone(broker, start):
    first, second = start(15), start(15, unfenced=False)

    def both():
        first.step()
        second.step()

    end = time.monotonic() + 1.5 * SESSION
    while time.monotonic() < end:
        both()
    assert second.registration.epoch == NO_EPOCH
    assert second.registration.trouble == "DUPLICATE_BROKER_REGISTRATION"
    # The first one is killed.
    second.unfence()
    assert second.registration.epoch > first.registration.epoch
    # It was only slow: it learns that it is replaced, and cannot come back.
    first.run_until(lambda: first.registration.state is State.UNREGISTERED)
    first.run_until(lambda: first.registration.trouble == "DUPLICATE_BROKER_REGISTRATION")
    second.run_until(lambda: not second.registration.is_fenced)


@pytest.mark.long
def test_a_node_that_was_unregistered_registers_again(broker, start):
    node = start(17)
    epoch = node.registration.epoch
    with Admin(broker) as admin:
        node.run_during(admin.ask, m.UnregisterBrokerRequest(17))
    node.run_until(lambda: node.registration.epoch > epoch and not node.registration.is_fenced)
    node.run_until(lambda: node.image.brokers[17].epoch == node.registration.epoch)


@pytest.mark.long
def test_a_shutdown_in_order_and_the_next_run(broker, start):
    directory = os.urandom(16)
    node = start(18, directory_id=directory)
    with Admin(broker) as admin:
        node.run_during(admin.create_topic, "led", [[18, 1]])
        node.run_until(lambda: node.image.topic("led") is not None)
        assert node.image.topic("led").partitions[0].leader == 18
        node.registration.shut_down()
        node.run_until(lambda: node.registration.state is State.STOPPED)
        node.run_until(lambda: node.image.topic("led").partitions[0].leader == 1)
        node.run_until(lambda: node.image.brokers[18].fenced)
        again = start(18, directory_id=directory, previous_epoch=node.registration.epoch)
        again.run_during(admin.delete_topic, "led")
    assert again.registration.epoch > node.registration.epoch


def test_a_node_that_knows_less_than_the_cluster_says_what(broker, start, monkeypatch):
    less = {name: one for name, one in SUPPORTED.items() if name != "group.version"}
    older = {**SUPPORTED, "metadata.version": SUPPORTED["metadata.version"]._replace(highest=29)}
    for features, why in (
        (less, r"finalized the feature group\.version at level 1"),
        (older, r"metadata\.version at level 30, .* knows the levels 7 to 29"),
    ):
        node = start(19, unfenced=False, features=features)
        with pytest.raises(UnsupportedFeatureError, match=why):
            node.run_until(lambda node=node: node.registration.is_caught_up)
        assert "BrokerRegistrationRequest" not in node.sent
    # Had it not looked first, the controllers would have refused it.
    monkeypatch.setattr(registration, "check_features", lambda *_: None)
    node = start(19, unfenced=False, features=less)
    with pytest.raises(UnsupportedFeatureError, match="the controllers refuse node 19: the cluster has finalized more"):
        node.run_until(lambda: node.registration.is_caught_up)


def test_what_the_controllers_refuse(broker, start):
    node = start(20, unfenced=False, log_dirs=())
    with pytest.raises(RegistrationError, match="refuse node 20: the registration is invalid"):
        node.run_until(lambda: node.registration.is_caught_up)
    stranger = Node([broker.controller], "A" * 22, 20)
    with pytest.raises(MetadataError, match="is a controller of another cluster"):
        stranger.run_until(lambda: False)
    stranger.close()


def test_a_block_of_producer_ids(broker, start):
    node = start(21)
    answer = node.ask(m.AllocateProducerIdsRequest(21, node.registration.epoch))
    assert (answer.error_code, answer.producer_id_len) == (0, 1000)
    node.run_until(lambda: node.image.next_producer_id == answer.producer_id_start + 1000)


@pytest.mark.long
def test_the_controller_restarts_and_the_node_keeps_its_epoch(broker, start):
    node = start(22)
    epoch, offset = node.registration.epoch, node.image.position.offset
    for end in (broker.stop, broker.kill):
        node.run_during(end)
        node.run_until(lambda: node.observer.trouble is not None and node.observer.leader is None)
        node.run_during(broker.start)
        node.run_until(lambda before=offset: node.observer.is_current and node.image.position.offset > before)
        node.run_until(lambda: not node.registration.is_fenced and node.registration.trouble is None)
        offset = node.image.position.offset
    assert (node.registration.epoch, node.image.brokers[22].epoch) == (epoch, epoch)
    assert node.sent.count("BrokerRegistrationRequest") == 1
