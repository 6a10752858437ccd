"""Topics that clients ask a node of ours for, and that do not exist: the controllers create them, as for a broker."""

import pytest
from kafka_clients import send_and_read
from kafka_cluster import Cluster
from kafka_tools import STEADY
from node_tools import NodeServer

from pyspark_log.kafka import messages as m
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.server.answers.configs import Source
from pyspark_log.storage.catalog import store_json
from tests import requests as r
from tests.server_tools import Peer, running
from tests.waiting import wait_until

BROKER = 1
GROUP, TRANSACTION = 0, 1
OWN = {GROUP: "__consumer_offsets", TRANSACTION: "__transaction_state"}
# These are Kafka's defaults, but for the replicas, as there are two brokers for them.
SETTINGS = STEADY | {
    "offsets.topic.num.partitions": None, "transaction.state.log.num.partitions": None,
    "transaction.state.log.min.isr": None, "default.replication.factor": 2, "num.partitions": 3,
}  # fmt: skip


@pytest.fixture
def cluster(kafka, tmp_path):
    with Cluster(tmp_path / "cluster", brokers=2, settings=SETTINGS) as found:
        yield found


@pytest.fixture
def node(cluster, tmp_path, request):
    """It runs, and gets no new partitions; a test may give the configs of its store."""
    made = NodeServer(cluster, tmp_path / "node")
    store_json.make(str(made.path), getattr(request, "param", {}), cluster.cluster_id)
    with running(made):
        wait_until(lambda: metadata(made).brokers, "the node knows the cluster")
        yield made


def ask(node, request, version):
    with Peer(node) as peer:
        return peer.ask(request, version)


def metadata(node, *names, create=False):
    return ask(node, r.metadata(*names, create=create), 12)


def coordinator(node, kind, key="k", version=4):
    keys = {"coordinator_keys": [key]} if version >= 4 else {"key": key}
    answer = ask(node, m.FindCoordinatorRequest(key_type=kind, **keys), version)
    return answer.coordinators[0] if version >= 4 else answer


def own_topics(cluster):
    """What is set of Kafka's own topics: partitions, replicas, configs."""
    found = {}
    for name in OWN.values():
        wait_until(lambda name=name: cluster._topic(name), f"{name} is there")
        [result] = cluster.ask(BROKER, r.describe_configs(2, name), 4).results
        configs = {one.name: one.value for one in result.configs if one.config_source == Source.TOPIC}
        partitions = cluster._topic(name).partitions
        found[name] = len(partitions), {len(one.replica_nodes) for one in partitions}, configs
    return found


@pytest.mark.long
def test_the_topics_of_coordinators_are_those_that_a_broker_creates(cluster, node):
    def is_there(kind):
        [found] = cluster.ask(BROKER, m.FindCoordinatorRequest(key_type=kind, coordinator_keys=["k"]), 4).coordinators
        return found.error_code == 0

    for kind in OWN:
        wait_until(lambda kind=kind: is_there(kind), "the broker has made it")
    by_kafka = own_topics(cluster)
    for name in OWN.values():
        cluster.delete_topic(name)
        wait_until(lambda name=name: metadata(node, name).topics[0].error_code, "")
    for kind, name in OWN.items():
        first = coordinator(node, kind)
        assert (first.error_code, first.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
        wait_until(lambda kind=kind: coordinator(node, kind).error_code == 0, f"{name} has a coordinator")
        assert coordinator(node, kind, version=3).node_id == coordinator(node, kind).node_id in (1, 2)
    assert own_topics(cluster) == by_kafka
    # A config that is missing here would be missing there, too.
    assert set(by_kafka["__transaction_state"][2]) == {
        "cleanup.policy", "compression.type", "min.insync.replicas", "segment.bytes", "unclean.leader.election.enable",
    }  # fmt: skip
    assert by_kafka["__consumer_offsets"][:2] == (50, {2})


@pytest.mark.long
def test_other_coordinators_are_refused(node):
    assert coordinator(node, 2, "g:AAAAAAAAAAAAAAAAAAAAAA:0").error_code == ErrorCode.INVALID_REQUEST
    assert coordinator(node, 9).error_code == ErrorCode.INVALID_REQUEST
    assert not any(metadata(node, name).topics[0].partitions for name in OWN.values())


def test_unknown_topics_are_created(cluster, node):
    first = metadata(node, "new", "a b", create=True).topics
    assert {one.name: one.error_code for one in first} == {
        "new": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "a b": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }  # fmt: skip

    def made():
        [found] = metadata(node, "new").topics
        return found if found.error_code == 0 and all(one.error_code == 0 for one in found.partitions) else None

    found = wait_until(made, "it has leaders")
    # By the defaults of the controllers.
    assert [sorted(one.replica_nodes) for one in found.partitions] == [[1, 2]] * 3


@pytest.mark.long
def test_what_may_not_be_created_is_not(cluster, node):
    for names, may in ((["new"], False), (["__cluster_metadata", "__share_group_state", "__pylog_publish"], True)):
        errors = {one.error_code for one in metadata(node, *names, create=may).topics}
        assert errors == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    # What was asked for would be there by the time that this is.
    metadata(node, "last", create=True)
    cluster.wait_for_leader("last")
    with cluster.admin() as admin:
        assert set(admin.list_topics()) == {"last"}


@pytest.mark.long
@pytest.mark.parametrize("node", [{"auto.create.topics.enable": "false"}], indirect=True)
def test_the_store_can_turn_creation_off(cluster, node):
    assert metadata(node, "new", create=True).topics[0].error_code
    cluster.create_topic("last", 1, 1)
    wait_until(lambda: metadata(node, "last").topics[0].error_code == 0, "the node knows the last one")
    assert cluster._topic("new") is None


@pytest.mark.long
def test_clients_that_begin_with_nothing(cluster, node):
    send_and_read(node, "t")
