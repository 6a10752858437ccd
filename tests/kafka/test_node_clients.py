"""A cluster's users, ACLs and quotas at a node of ours: Kafka's tools change them, and clients of the node notice."""

import time

import pytest
from kafka_cluster import SCRAM, Cluster, secured
from kafka_tools import STEADY, run
from mirror_tools import whole
from node_tools import NODE, NodeServer
from test_node import create_at

from pyspark_log.kafka import messages as m
from pyspark_log.kafka.error_codes import ErrorCode
from tests import requests as r
from tests.security_tools import add_users, log_in, scram_log_in
from tests.server_tools import Peer, running
from tests.unit.record_tools import Record, build
from tests.waiting import wait_until

BROKER = 1
#: Of users that there are from the start; each is its own password.
ADMIN, AT_BROKER, AT_NODE = "admin", "the-broker", "the-node"
SETTINGS = STEADY | {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:ANONYMOUS;User:{ADMIN}",
}
_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required"


class Clients:
    """A cluster with a node, and what clients of both do.

    Attributes:
        cluster, node: themselves.
    """

    def __init__(self, cluster, node):
        self.cluster, self.node = cluster, node

    def configs(self, *arguments):
        """Runs kafka-configs.sh --alter, at the broker."""
        return self.cluster.run("kafka.admin.ConfigCommand", "--alter", *arguments)

    def acls(self, *arguments):
        """Runs kafka-acls.sh, at the broker."""
        return self.cluster.run("org.apache.kafka.tools.AclCommand", "--force", *arguments)

    def set_password(self, user, password, mechanism="SCRAM-SHA-256"):
        """Adds a user by Kafka's tool; returns when the node lets it in."""
        self.configs(
            "--entity-type", "users", "--entity-name", user, "--add-config", f"{mechanism}=[password={password}]"
        )
        wait_until(lambda: self.is_let_in(user, password, mechanism), f"{user} is let in")

    def is_let_in(self, user, password, mechanism="SCRAM-SHA-256"):
        """Whether a user may log in to the node."""
        with Peer(self.node) as peer:
            return scram_log_in(peer, user, password, mechanism).error_code == 0

    def peer(self, user, password=None, mechanism="SCRAM-SHA-256"):
        """A connection of a user to the node; the password is the name, if it is not given."""
        made = Peer(self.node)
        assert scram_log_in(made, user, password or user, mechanism).error_code == 0
        return made


@pytest.fixture(scope="module")
def clients(kafka, tmp_path_factory):
    folder = tmp_path_factory.mktemp("clients")
    _, settings = secured(folder, {})
    login = {f"listener.name.sasl_plaintext.{SCRAM.lower()}.sasl.jaas.config":
             f'{_LOGIN} username="{AT_BROKER}" password="{AT_BROKER}";'}  # fmt: skip
    between = {"inter.broker.listener.name": "SASL_PLAINTEXT", "sasl.mechanism.inter.broker.protocol": SCRAM}
    with Cluster(
        folder / "cluster", brokers=1, listeners=["SASL_PLAINTEXT"], settings=SETTINGS,
        single={BROKER: settings | login | between},
    ) as cluster:  # fmt: skip
        cluster.add_scram_users({one: one for one in (ADMIN, AT_BROKER, AT_NODE)})
        to_brokers = (
            "security.protocol=SASL_PLAINTEXT", f"sasl.mechanism={SCRAM}", f"sasl.username={AT_NODE}",
            f"sasl.password={AT_NODE}",
        )  # fmt: skip
        options = ("--sasl-mechanisms", f"{SCRAM},SCRAM-SHA-256,PLAIN", "--acls", "--super-users", f"User:{ADMIN}")
        node = NodeServer(cluster, folder / "node", *options, login=to_brokers)
        found = Clients(cluster, node)
        # Brokers want no more than this from each other.
        found.acls(*_of_brokers("--add"))
        with running(node):
            create_at(cluster, "t", [NODE, BROKER])
            with found.peer(ADMIN, mechanism=SCRAM) as admin:
                wait_until(lambda: not produced(admin).error_code, "the node leads, and the broker follows")
            yield found


def _of_brokers(what):
    users = (part for one in (AT_BROKER, AT_NODE) for part in ("--allow-principal", f"User:{one}"))
    return (what, *users, "--operation", "ClusterAction", "--cluster")


def produced(peer, size=1, timeout_ms=10_000):
    """The answer to a record for the partition, of its only partition and of how long the client has to wait."""
    return _produced(peer, size, timeout_ms).responses[0].partition_responses[0]


def _produced(peer, size, timeout_ms=10_000):
    batch = build([Record(None, b"v" * size, int(time.time() * 1000))], "none")
    return peer.ask(r.produce("t", (0, batch))._replace(timeout_ms=timeout_ms), 9)


def fetched(peer):
    """The answer to a fetch."""
    return peer.ask(r.fetch("t", 0), 12)


@pytest.mark.long
def test_users(clients):
    assert not clients.is_let_in("anna", "secret")
    clients.set_password("anna", "secret")
    assert not clients.is_let_in("anna", "other")
    assert not clients.is_let_in("anna", "secret", SCRAM)
    clients.set_password("anna", "new")
    assert not clients.is_let_in("anna", "secret")
    clients.configs("--entity-type", "users", "--entity-name", "anna", "--delete-config", "SCRAM-SHA-256")
    wait_until(lambda: not clients.is_let_in("anna", "new"), "anna is refused")


def test_users_with_plain_passwords_are_the_nodes(clients):
    clients.set_password("ben", "ben")
    add_users(clients.node.path, {"carl": "carl"})
    for user, may in (("carl", True), ("ben", False)):
        with Peer(clients.node) as peer:
            assert (log_in(peer, user, user).error_code == 0) == may
    assert not clients.is_let_in("carl", "carl")


def test_rights(clients):
    clients.set_password("dora", "dora")
    rule = ("--allow-principal", "User:dora", "--topic", "t")
    names = m.MetadataRequest(None, False, False, True), 12
    with clients.peer("dora") as dora:
        assert produced(dora).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert [one.name for one in dora.ask(*names).topics] == []
        clients.acls("--add", *rule, "--operation", "Write")
        # What changes counts on connections that are open, too.
        wait_until(lambda: not produced(dora).error_code, "dora may write")
        assert [one.name for one in dora.ask(*names).topics] == ["t"]
        [part] = fetched(dora).responses[0].partitions
        assert part.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        clients.acls("--add", "--deny-principal", "User:dora", "--topic", "t", "--operation", "Write")
        wait_until(lambda: produced(dora).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED, "dora is denied it")
        clients.acls("--remove", "--deny-principal", "User:dora", "--topic", "t", "--operation", "Write")
        wait_until(lambda: not produced(dora).error_code, "dora may write again")
        clients.acls("--remove", *rule, "--operation", "Write")
        wait_until(lambda: produced(dora).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED, "dora may not write")


@pytest.mark.long
def test_kafkas_tool_at_the_node(clients, tmp_path):
    """Rights and users are changed and listed there, too, by a user that may."""
    login = tmp_path / "admin.properties"
    login.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={SCRAM}\n"
        f'sasl.jaas.config={_LOGIN} username="{ADMIN}" password="{ADMIN}";\n'
    )
    at = ("--bootstrap-server", clients.node.bootstrap, "--command-config", login)
    acls = "org.apache.kafka.tools.AclCommand"
    run(acls, *at, "--add", "--allow-principal", "User:fred", "--topic", "t", "--operation", "Read")
    clients.set_password("fred", "fred")
    with clients.peer("fred") as fred:
        wait_until(lambda: not fetched(fred).responses[0].partitions[0].error_code, "fred may read")
        refused = fred.ask(m.DescribeAclsRequest(1, None, 1, None, None, 1, 1), 3)
        assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert "(principal=User:fred, host=*, operation=READ, permissionType=ALLOW)" in run(acls, *at, "--list")


@pytest.mark.long
def test_brokers_need_cluster_action(clients):
    with clients.peer(ADMIN, mechanism=SCRAM) as admin:
        assert produced(admin).error_code == 0
        clients.acls(*_of_brokers("--remove"))
        late = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        wait_until(lambda: produced(admin, timeout_ms=1000).error_code in late, "the broker does not get the records")
        clients.acls(*_of_brokers("--add"))
        wait_until(lambda: not produced(admin).error_code, "it gets them again")
    clients.cluster.wait_for_isr("t", 0, {NODE, BROKER})
    wait_until(lambda: is_equal(clients), "all is equal")


def is_equal(clients):
    return whole(clients.cluster.folder_of(BROKER, "t")) == whole(clients.node.folder_of("t"))


@pytest.mark.long
def test_quotas_of_bytes(clients):
    def pause(ask):
        with clients.peer(ADMIN, mechanism=SCRAM) as admin:
            return ask(admin).throttle_time_ms

    def large(peer):
        return _produced(peer, 200_000)

    assert pause(large) == pause(fetched) == 0
    whose = ("--entity-type", "users", "--entity-default")
    clients.configs(*whose, "--add-config", "producer_byte_rate=1000,consumer_byte_rate=1000")
    # It counts for clients, and not for the broker, which gets all.
    wait_until(lambda: pause(large) > 0, "a writer has to wait")
    wait_until(lambda: pause(fetched) > 0, "and so has a reader")
    wait_until(lambda: is_equal(clients), "all is equal")
    clients.cluster.wait_for_isr("t", 0, {NODE, BROKER})
    clients.configs(*whose, "--delete-config", "producer_byte_rate,consumer_byte_rate")
    wait_until(lambda: pause(large) == pause(fetched) == 0, "nothing is limited")


@pytest.mark.long
def test_quotas_of_time_and_of_partitions(clients):
    clients.set_password("emma", "emma")
    clients.acls("--add", "--allow-principal", "User:emma", "--cluster", "--operation", "Create")
    whose = ("--entity-type", "users", "--entity-name", "emma")
    clients.configs(*whose, "--add-config", "request_percentage=0.001")

    def pause():
        with clients.peer("emma") as emma:
            return emma.ask(m.MetadataRequest(None), 12).throttle_time_ms

    wait_until(lambda: pause() > 0, "she has to wait for threads")
    clients.configs(*whose, "--delete-config", "request_percentage", "--add-config", "controller_mutation_rate=0.1")
    wait_until(lambda: pause() == 0, "she does not")
    made = iter(range(1000))

    def created():
        # The controllers count, and the node has the client wait.
        with clients.peer("emma") as emma:
            answer = emma.ask(r.create_topic(f"e{next(made)}", 3), 7)
            return answer.topics[0].error_code, answer.throttle_time_ms > 0

    assert created()[0] == 0
    wait_until(lambda: created() == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, True), "she may create no more")
