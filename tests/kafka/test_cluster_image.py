"""The image of a real cluster is what Kafka's tools print, from its log and from a snapshot; so are its records."""

import base64
import json
import re
from dataclasses import replace

import pytest
from cluster_node import Admin, Node
from kafka_tools import dump, running_broker

from pyspark_log.kafka import messages as m
from pyspark_log.kafka.schemas.message import snake_case
from pyspark_log.server.cluster.batches import read_batches
from pyspark_log.server.cluster.image import BROKER_RESOURCE, START, TOPIC_RESOURCE
from pyspark_log.server.security.acls import Operation, Pattern, Permission, Resource
from tests import requests as r
from tests.message_values import Values

pytestmark = pytest.mark.usefixtures("kafka")

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    # A few records are enough for a snapshot, and a replica is not waited for.
    "metadata.log.max.record.bytes.between.snapshots": 2000,
    "replica.lag.time.max.ms": 2000,
}
_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


@pytest.fixture(scope="module")
def cluster(kafka, tmp_path_factory):
    """A broker, whose cluster changes in all ways; and a node of it, which has followed that from the first record."""
    with running_broker(tmp_path_factory.mktemp("cluster"), settings=SETTINGS) as broker:
        node = Node([broker.controller], broker.cluster_id, 2)
        node.unfence()
        node.ask(m.AllocateProducerIdsRequest(2, node.registration.epoch))
        with Admin(broker) as admin:
            node.run_during(come_and_go, broker, admin)
            node.run_during(change_everything, admin)
            leave(node, admin)
        yield broker, node


def come_and_go(broker, admin):
    """Another node is registered, and unregistered."""
    other = Node([broker.controller], broker.cluster_id, 3)
    other.run_until(lambda: other.registration.is_caught_up)
    other.close()
    admin.ask(m.UnregisterBrokerRequest(3))


def change_everything(admin):
    admin.create_topic("a", [[1, 2], [2, 1]], retention_ms="100000", cleanup_policy="compact")
    admin.create_topic("b", [[1, 2]])
    admin.create_topic("gone", [[1]], retention_ms="1")
    admin.set_configs(TOPIC_RESOURCE, "a", retention_ms=None, segment_bytes="2000000")
    admin.set_configs(TOPIC_RESOURCE, "a", min_insync_replicas="1")
    admin.set_configs(BROKER_RESOURCE, "", log_retention_ms="987654321")
    admin.set_configs(BROKER_RESOURCE, "1", log_cleaner_threads="1")
    admin.delete_topic("gone")
    admin.ask(r.create_partitions("b", 2, [[2, 1]]))
    admin.set_quota({"user": "alice"}, "producer_byte_rate", 1024)
    admin.set_quota({"user": "alice", "client-id": None}, "consumer_byte_rate", 2048)
    admin.set_quota({"user": "alice", "client-id": None}, "request_percentage", 12.5)
    admin.set_quota({"user": None}, "producer_byte_rate", 1)
    admin.set_quota({"user": None}, "producer_byte_rate", None)
    admin.set_quota({"ip": "127.0.0.9"}, "connection_creation_rate", 7)
    of = m.AlterUserScramCredentialsRequest
    for user, mechanism in (("u", 1), ("u", 2), ("v", 2)):
        admin.ask(of([], [of.ScramCredentialUpsertion(user, mechanism, 8192, b"salt", b"x" * 64)]))
    admin.ask(of([of.ScramCredentialDeletion("u", 1)], []))
    of = m.CreateAclsRequest
    acls = [
        (2, "a", 3, "User:u", "*", 3, 3),
        (3, "g", 4, "User:v", "127.0.0.1", 3, 2),
        (2, "x", 3, "User:v", "*", 4, 3),
    ]
    admin.ask(of([of.AclCreation(*one) for one in acls]))
    of = m.DeleteAclsRequest
    admin.ask(of([of.DeleteAclsFilter(2, "x", 3, None, None, 1, 1)]))


def leave(node, admin):
    """The node, which fetches nothing, leaves the ISR, and then the cluster."""

    def partition(name, number):
        return node.image.topic(name).partitions[number]

    node.run_until(lambda: node.image.topic("b") is not None and partition("b", 0).isr == (1,))
    node.run_during(admin.reassign, "b", 1, [1])
    node.run_until(lambda: partition("b", 1).removing or partition("b", 1).replicas == (1,))
    node.shut_down()
    node.registration = None
    node.run_until(lambda: node.image.brokers[2].fenced and partition("a", 1).leader != 2)


def settled(broker, node):
    """The image when nothing changes any more but the position."""
    node.run_until(lambda: node.observer.is_current)
    return replace(node.image, position=START)


_TOPIC = r"^Topic: (\S+)\tTopicId: (\S+)\tPartitionCount: (\d+)\tReplicationFactor: (\d+)"
_PARTITION = (
    r"^\tTopic: (\S+)\tPartition: (\d+)\tLeader: (\S+)\tReplicas: (\S*)\tIsr: (\S*)"
    r"(?:\tAdding Replicas: (\S*))?(?:\tRemoving Replicas: (\S*))?\tElr: (\S*)\tLastKnownElr: (\S*)"
)


def test_topics(cluster):
    broker, node = cluster
    printed = node.run_during(broker.run, "org.apache.kafka.tools.TopicCommand", "--describe")
    topics, partitions = re.findall(_TOPIC, printed, re.M), re.findall(_PARTITION, printed, re.M)
    image = settled(broker, node)
    assert sorted(topics) == sorted(
        (one.name, text_of(one.id), str(len(one.partitions)), str(len(one.partitions[0].replicas)))
        for one in image.topics.values()
    )
    assert sorted(partitions) == sorted(
        (
            topic.name, str(number), "none" if one.leader < 0 else str(one.leader),
            *(",".join(map(str, ids)) for ids in (
                one.replicas, one.isr, one.adding, one.removing, one.elr, one.last_known_elr,
            )),
        )
        for topic in image.topics.values() for number, one in topic.partitions.items()
    )  # fmt: skip
    assert {one.name for one in image.topics.values()} == {"a", "b"}


def text_of(uuid):
    return base64.urlsafe_b64encode(uuid).decode().rstrip("=")


@pytest.mark.long
def test_configs(cluster):
    broker, node = cluster
    printed = {
        kind: node.run_during(broker.run, "kafka.admin.ConfigCommand", "--describe", "--entity-type", kind)
        for kind in ("topics", "brokers")
    }
    found, resource = {}, None
    for line in "\n".join(printed.values()).splitlines():
        if match := re.match(r"Dynamic configs for (topic|broker) (\S+) are:", line):
            resource = {"topic": TOPIC_RESOURCE, "broker": BROKER_RESOURCE}[match[1]], match[2]
        elif line.startswith("Default configs for brokers"):
            resource = BROKER_RESOURCE, ""
        elif match := re.match(r"  (\S+?)=(\S+) sensitive=false", line):
            found.setdefault(resource, {})[match[1]] = match[2]
    assert settled(broker, node).configs == found
    assert found[TOPIC_RESOURCE, "a"] == {
        "cleanup.policy": "compact", "min.insync.replicas": "1", "segment.bytes": "2000000",
    }  # fmt: skip


@pytest.mark.long
def test_quotas_and_users(cluster):
    broker, node = cluster
    quotas, users = {}, {}
    for kinds in (["users"], ["clients"], ["ips"], ["users", "clients"]):
        given = [word for kind in kinds for word in ("--entity-type", kind)]
        printed = node.run_during(broker.run, "kafka.admin.ConfigCommand", "--describe", *given)
        for entity, values in re.findall(r"Quota configs for (.*) are (.*)", printed):
            quotas[entity_of(entity)] = {k: float(v) for k, v in (one.split("=") for one in values.split(", "))}
        for user, mechanism, count in re.findall(r"user-principal '(\w)' are (\S+)=iterations=(\d+)", printed):
            users[user, mechanism] = int(count)
    image = settled(broker, node)
    assert image.quotas == quotas
    assert {(user, _MECHANISMS[kind]): one.iterations for (user, kind), one in image.scram.items()} == users
    assert (len(quotas), set(users)) == (3, {("u", "SCRAM-SHA-512"), ("v", "SCRAM-SHA-512")})


def entity_of(printed):
    names = {"user-principal": "user", "client-id": "client-id", "ip": "ip"}
    found = re.findall(r"(?:^|, )(?:the default )?([a-z-]+)(?: '([^']+)')?", printed)
    return tuple(sorted((names[kind], name or None) for kind, name in found))


@pytest.mark.long
def test_acls(cluster):
    broker, node = cluster
    printed = node.run_during(broker.run, "org.apache.kafka.tools.AclCommand", "--list")
    found, pattern = [], None
    for line in printed.splitlines():
        if match := re.search(r"resourceType=(\w+), name=(\S+), patternType=(\w+)\)", line):
            pattern = match.groups()
        elif match := re.search(r"principal=(\S+), host=(\S+), operation=(\w+), permissionType=(\w+)\)", line):
            found.append((*pattern, *match.groups()))
    assert sorted(found) == sorted(
        (
            Resource(one.resource_type).name, one.resource_name, Pattern(one.pattern_type).name, one.principal,
            one.host, Operation(one.operation).name, Permission(one.permission_type).name,
        )
        for one in settled(broker, node).acls.values()
    )  # fmt: skip
    assert len(found) == 2


@pytest.mark.long
def test_features_and_brokers(cluster):
    broker, node = cluster
    printed = node.run_during(broker.run, "org.apache.kafka.tools.FeatureCommand", "describe")
    levels = dict(re.findall(r"Feature: (\S+).*FinalizedVersionLevel: ([1-9]\d*)\s", printed))
    image = settled(broker, node)
    assert levels == {name: str(level) for name, level in image.features.items() if name != "metadata.version"}
    assert "FinalizedVersionLevel: 4.3-IV0" in printed
    assert image.features["metadata.version"] == 30
    assert {number: (one.fenced, one.endpoints[0].port) for number, one in image.brokers.items()} == {
        1: (False, broker.port), 2: (True, 9),
    }  # fmt: skip


def test_a_snapshot_gives_the_same_image(cluster):
    broker, node = cluster
    snapshots = list((broker.log_dir / "__cluster_metadata-0").glob("*.checkpoint"))
    other = Node([broker.controller], broker.cluster_id)
    other.run_until(lambda: other.observer.is_current)
    assert "FetchSnapshotRequest" in other.sent
    assert "FetchSnapshotRequest" not in node.sent
    assert settled(broker, other) == settled(broker, node)
    assert any(int(one.name.partition("-")[0]) > 0 for one in snapshots)
    other.close()


def test_records_are_those_that_kafkas_tool_prints(cluster):
    broker, _ = cluster
    files = sorted((broker.log_dir / "__cluster_metadata-0").glob("*[0-9].log"))
    files += sorted((broker.log_dir / "__cluster_metadata-0").glob("*.checkpoint"))
    ours = {path: records_in(path) for path in files if path.exists()}
    printed = re.split(r"^Dumping (.*)\n", dump("--cluster-metadata-decoder", *ours), flags=re.M)[1:]
    seen = set()
    for path, lines in zip(printed[::2], printed[1::2], strict=True):
        found = {int(offset): json.loads(text) for offset, text in re.findall(_PAYLOAD, lines, flags=re.M)}
        expected = next(records for own, records in ours.items() if str(own) == path)
        # The broker still writes.
        assert expected == {offset: one for offset, one in found.items() if offset <= max(expected)}
        seen |= {one["type"] for one in expected.values()}
    assert len(ours) > 1
    assert seen == {
        "ACCESS_CONTROL_ENTRY_RECORD", "BEGIN_TRANSACTION_RECORD", "BROKER_REGISTRATION_CHANGE_RECORD",
        "CLEAR_ELR_RECORD", "CLIENT_QUOTA_RECORD", "CONFIG_RECORD", "END_TRANSACTION_RECORD", "FEATURE_LEVEL_RECORD",
        "NO_OP_RECORD", "PARTITION_CHANGE_RECORD", "PARTITION_RECORD", "PRODUCER_IDS_RECORD", "REGISTER_BROKER_RECORD",
        "REGISTER_CONTROLLER_RECORD", "REMOVE_ACCESS_CONTROL_ENTRY_RECORD", "REMOVE_TOPIC_RECORD",
        "REMOVE_USER_SCRAM_CREDENTIAL_RECORD", "TOPIC_RECORD", "UNREGISTER_BROKER_RECORD",
        "USER_SCRAM_CREDENTIAL_RECORD",
    }  # fmt: skip


_PAYLOAD = r"^\| offset: (\d+) .* payload: (\{.*\})$"


def records_in(path):
    """The records of a file by offset, in the form of Kafka's tool."""
    data = path.read_bytes()
    batches, size = read_batches(data, 0, 1 << 60)
    assert size == len(data) or not any(data[size:])  # a log may be allocated ahead
    return {
        offset: {"type": snake_case(one.name).upper(), "version": one.version, "data": printed_value(one)}
        for batch in batches
        for offset, one in enumerate(batch.records, batch.base_offset)
    }


def printed_value(record):
    """The JSON that Kafka prints of a record: without tagged fields that have their defaults."""
    values = Values(record.name, record.version)
    default = values.default()
    names = {field["name"][0].lower() + field["name"][1:]: snake_case(field["name"]) for field in values.fields}
    tagged = {snake_case(field["name"]) for field in values.fields if "tag" in field}
    return {
        key: one
        for key, one in values.json(record.value).items()
        if names[key] not in tagged or getattr(record.value, names[key]) != getattr(default, names[key])
    }
