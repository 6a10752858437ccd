"""Configs, quotas, users and ACLs at a node of ours and at a broker of Kafka, of one cluster: the answers are equal."""

import itertools

import pytest
from kafka_cluster import SCRAM, Cluster
from node_tools import NODE, NodeServer

from pyspark_log.kafka import messages as m
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.server.answers.configs import Source
from tests import requests as r
from tests.server_tools import Peer, running
from tests.waiting import wait_until

BROKER = 1
TOPIC_KIND, BROKER_KIND = 2, 4
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    # These are Kafka's defaults.
    "replica.lag.time.max.ms": None,
    "log.index.size.max.bytes": None,
    "log.cleaner.dedupe.buffer.size": None,
    "offsets.topic.num.partitions": None,
    "transaction.state.log.num.partitions": None,
}
TOPIC_CONFIGS = {
    "retention.ms": "1000", "segment.bytes": "1048576", "cleanup.policy": "compact,delete",
    "unclean.leader.election.enable": "true", "leader.replication.throttled.replicas": "0:1", "local.retention.ms": "5",
}  # fmt: skip
OF_ALL_BROKERS = {
    "log.retention.bytes": "12345", "log.retention.ms": "99999", "message.max.bytes": "2000000",
    "unclean.leader.election.enable": "true", "log.cleaner.threads": "2", "max.connections": "500",
}  # fmt: skip
# Kafka has other names for these defaults, as log.retention.hours, or none.
OTHER_DEFAULTS = {
    "retention.ms", "segment.ms", "segment.jitter.ms", "flush.ms", "remote.storage.enable", "remote.log.copy.disable",
    "remote.log.delete.on.disable", "leader.replication.throttled.replicas", "follower.replication.throttled.replicas",
}  # fmt: skip
_Acl = m.CreateAclsRequest.AclCreation


@pytest.fixture(scope="module")
def sides(kafka, tmp_path_factory):
    """Asks the broker and the node the same; the answers of both, once the node knows what the broker does."""
    folder = tmp_path_factory.mktemp("sides")
    with Cluster(folder / "cluster", brokers=1, settings=SETTINGS) as cluster:
        options = ("--stay-fenced", "--acls", "--super-users", SETTINGS["super.users"])
        with running(NodeServer(cluster, folder / "node", *options)) as node:
            _prepare(cluster)

            def ask(request, version):
                with Peer(node) as peer:
                    return cluster.ask(BROKER, request, version), peer.ask(request, version)

            last = m.DescribeAclsRequest(2, "last", 3, None, None, 1, 1)
            wait_until(lambda: all(one.resources for one in ask(last, 3)), "both know what was made last")
            yield ask


def _prepare(cluster):
    cluster.create_topic("t", 1, 1, configs=TOPIC_CONFIGS)
    cluster.create_topic("plain", 1, 1)
    changes = [(name, 0, value) for name, value in OF_ALL_BROKERS.items()]
    made = cluster.ask(BROKER, r.alter_configs(BROKER_KIND, "", *changes), 1)
    assert [one.error_code for one in made.responses] == [0], made
    of = m.AlterClientQuotasRequest
    entries = [
        of.EntryData([of.EntityData(*part) for part in entity.items()], [of.OpData(name, value, False)])
        for entity, name, value in (
            ({"user": "anna"}, "producer_byte_rate", 1000.0),
            ({"user": "anna", "client-id": None}, "consumer_byte_rate", 2000.0),
            ({"user": None}, "request_percentage", 12345.5),
            ({"client-id": "app"}, "producer_byte_rate", 3000.0),
            ({"ip": None}, "connection_creation_rate", 10000.0),
        )
    ]
    assert {one.error_code for one in cluster.ask(BROKER, of(entries, False), 1).entries} == {0}
    cluster.add_scram_users({"anna": "a", "bert": "b"})
    acls = [
        _Acl(2, "t", 3, "User:anna", "*", 3, 3),
        _Acl(2, "t", 3, "User:bert", "10.0.0.1", 4, 2),
        _Acl(2, "te", 4, "User:anna", "*", 4, 3),
        _Acl(2, "*", 3, "User:carl", "*", 8, 3),
        _Acl(3, "g", 3, "User:anna", "*", 3, 3),
        _Acl(4, "kafka-cluster", 3, "User:anna", "*", 10, 3),
        _Acl(2, "last", 3, "User:anna", "*", 3, 3),
    ]
    assert {one.error_code for one in cluster.ask(BROKER, m.CreateAclsRequest(acls), 3).results} == {0}


# ---- configs


def described(answer):
    """The rows of configs of the only resource, by their names."""
    [result] = answer.results
    return result.error_code, {row.name: row for row in result.configs}


def reduced(row):
    """What is compared of a row."""
    synonyms = [tuple(one) for one in row.synonyms if row.name not in OTHER_DEFAULTS or one.source != Source.DEFAULT]
    return row.value, row.config_source, row.config_type, row.read_only, row.is_sensitive, synonyms


@pytest.mark.parametrize("topic", ["t", "plain"])
@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_configs_of_topics(sides, topic, version):
    for with_synonyms in (True, False):
        request = r.describe_configs(TOPIC_KIND, topic, with_synonyms=with_synonyms)
        theirs, ours = map(described, sides(request, version))
        assert theirs[0] == ours[0] == 0
        assert theirs[1].keys() == ours[1].keys()
        for name, row in theirs[1].items():
            assert reduced(row) == reduced(ours[1][name]), name
    if topic == "t":
        assert ours[1]["retention.ms"].value == "1000"
        assert ours[1]["retention.bytes"].config_source == Source.BROKERS


def test_some_configs_of_a_topic(sides):
    theirs, ours = map(described, sides(r.describe_configs(TOPIC_KIND, "t", "segment.bytes", "colour"), 4))
    assert theirs[1].keys() == ours[1].keys() == {"segment.bytes"}


def test_what_is_set_for_all_brokers(sides):
    theirs, ours = map(described, sides(r.describe_configs(BROKER_KIND, ""), 4))
    # The controllers set min.insync.replicas for all when they begin to keep eligible leaders.
    assert theirs[1].keys() == ours[1].keys() == OF_ALL_BROKERS.keys() | {"min.insync.replicas"}
    for name, row in theirs[1].items():
        mine = ours[1][name]
        assert (mine.value, mine.config_source, mine.read_only) == (row.value, row.config_source, row.read_only)
        assert [tuple(one) for one in mine.synonyms] == [tuple(one) for one in row.synonyms]


def test_configs_of_a_broker(sides):
    answers = [sides(r.describe_configs(BROKER_KIND, str(one)), 4)[side] for side, one in enumerate((BROKER, NODE))]
    theirs, ours = (described(answer)[1] for answer in answers)
    # The last one is a whole number here.
    own = {"broker.id", "node.id", "advertised.listeners", "log.dirs", "log.cleaner.io.max.bytes.per.second"}
    shared = theirs.keys() & ours.keys() - own
    assert len(shared) > 30
    assert shared >= OF_ALL_BROKERS.keys()
    assert {name: of_broker(ours[name]) for name in shared} == {name: of_broker(theirs[name]) for name in shared}
    assert ours["node.id"].value == str(NODE)


def test_secrets_of_a_node_are_not_shown(sides):
    name = "listener.name.plaintext.ssl.keystore.password"
    _, made = sides(r.alter_configs(BROKER_KIND, str(NODE), (name, 0, "open sesame")), 1)
    assert [one.error_code for one in made.responses] == [0]
    wanted = r.describe_configs(BROKER_KIND, str(NODE), name, include_documentation=True)

    def row():
        return described(sides(wanted, 4)[1])[1].get(name)

    found = wait_until(row, "the node knows it")
    assert (found.value, found.is_sensitive, found.config_source) == (None, True, Source.BROKER)
    assert [tuple(one) for one in found.synonyms] == [(name, None, Source.BROKER)]


def of_broker(row):
    """What is compared of a row of a broker's configs."""
    # Kafka has the defaults of some under other names; the types of what only it knows are not known here.
    value = None if row.name in ("log.roll.ms", "log.roll.jitter.ms", "log.flush.interval.ms") else row.value
    kind = 0 if row.name in ("log.cleaner.threads", "max.connections") else row.config_type
    return value, row.config_source, kind, row.read_only, row.is_sensitive


def test_what_has_no_configs(sides):
    for kind, name, error in (
        (TOPIC_KIND, "nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC_KIND, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER_KIND, "12", ErrorCode.INVALID_REQUEST),
        (BROKER_KIND, "x", ErrorCode.INVALID_REQUEST),
    ):
        theirs, ours = map(described, sides(r.describe_configs(kind, name), 4))
        assert theirs == ours == (error, {}), (kind, name)


# ---- features


@pytest.mark.parametrize("version", [3, 4])
def test_features(sides, version):
    theirs, ours = sides(m.ApiVersionsRequest("tests", "1"), version)
    finalized = [
        {(one.name, one.min_version_level, one.max_version_level) for one in answer.finalized_features}
        for answer in (theirs, ours)
    ]
    # Kafka has this one from the records of its quorum, which a node does not look at.
    assert {one for one in finalized[0] if one[0] != "kraft.version"} == finalized[1]
    assert ours.finalized_features_epoch > 0
    known = [{one.name: one.max_version for one in answer.supported_features} for answer in (theirs, ours)]
    assert known[0] == known[1]


# ---- quotas, users, ACLs


def test_quotas(sides):
    of = m.DescribeClientQuotasRequest
    parts = [("user", 0, "anna"), ("user", 1, None), ("user", 2, None), ("client-id", 0, "app"), ("client-id", 1, None)]
    parts += [("client-id", 2, None), ("ip", 2, None), ("ip", 1, None), ("user", 0, ""), ("colour", 2, None)]
    filters = [(), *((one,) for one in parts), *itertools.combinations(parts, 2)]
    seen = set()
    for components, strict in itertools.product(filters, (True, False)):
        request = of([of.ComponentData(*one) for one in components], strict)
        theirs, ours = ((one.error_code, _entries(one)) for one in sides(request, 1))
        assert theirs == ours, (components, strict)
        seen.add(len(ours[1]))
    assert {0, 1, 2, 5} <= seen


def _entries(answer):
    found = []
    for one in answer.entries or ():
        entity = sorted((part.entity_type, part.entity_name or "") for part in one.entity)
        found.append((entity, sorted((value.key, value.value) for value in one.values)))
    return sorted(found)


@pytest.mark.parametrize("names", [None, ["anna"], ["bert", "nobody", "anna"], ["anna", "anna"]])
def test_users(sides, names):
    of = m.DescribeUserScramCredentialsRequest
    answers = sides(of(None if names is None else [of.UserName(one) for one in names]), 0)
    theirs, ours = (
        sorted((one.user, one.error_code, [tuple(row) for row in one.credential_infos]) for one in answer.results)
        for answer in answers
    )
    assert theirs == ours
    assert any(rows for _, _, rows in ours) == (names != ["anna", "anna"])
    assert SCRAM.endswith("512")


def test_acls(sides):
    filters = itertools.product(
        (1, 2, 3), (None, "t", "tea", "*"), (1, 2, 3, 4), (None, "User:anna"), (1, 3, 8), (1, 2, 3)
    )
    found = 0
    for kind, name, pattern, principal, operation, permission in filters:
        request = m.DescribeAclsRequest(kind, name, pattern, principal, None, operation, permission)
        theirs, ours = ((one.error_code, _acls(one)) for one in sides(request, 3))
        assert theirs == ours, request
        found += bool(ours[1])
    assert found > 100


def _acls(answer):
    return sorted(
        (one.resource_type, one.resource_name, one.pattern_type, *row) for one in answer.resources for row in one.acls
    )
