"""What clients may do at a node of ours and at a broker of Kafka, of one cluster: the answers are equal."""

from types import SimpleNamespace

import pytest
from kafka_cluster import Cluster
from kafka_tools import STEADY, sasl_settings
from node_tools import NODE, NodeServer
from test_rights_beside_kafka import SOON, USERS, answer_to, logged_in, reduced

from pyspark_log.kafka import messages as m
from pyspark_log.server.security.acls import CLUSTER_NAME, Operation, Pattern, Permission, Resource
from pyspark_log.storage.catalog import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from pyspark_log.storage.groups.log.records import partition_for
from tests import requests as r
from tests.ports import HOST
from tests.requests import NO_ID
from tests.rights_requests import Names, requests
from tests.security_tools import add_users
from tests.server_tools import running
from tests.waiting import wait_until

BROKER = 1
#: The leaders of the partitions of topics of coordinators.
LEADERS = (BROKER, BROKER, NODE, NODE)
#: What either side is asked. Not what is about one of them alone, what only a broker serves, and what one side deletes
#: for both.
ALL = [
    name
    for name in requests(Names("t", NO_ID, "g", "x", "anna"))
    if name not in ("DescribeConfigs, of the server", "AlterReplicaLogDirs", "DeleteAcls")
]


def _names(side, user, topic_id=NO_ID):
    """What requests to a side are about: what it leads and coordinates."""

    def is_own(name):
        return LEADERS[partition_for(name, len(LEADERS))] == side

    numbers = range(1000)
    group = next(
        one for one in (f"team-g{number}" for number in numbers)
        if all(map(is_own, (one, f"{one}-missing", f"{one}-modern")))
    )  # fmt: skip
    transaction = next(one for one in (f"team-t{number}" for number in numbers) if is_own(one))
    return Names(f"team-{'kafka' if side == BROKER else 'node'}", topic_id, group, transaction, user)


def _entries():
    """Of anna by name, of bert by a prefix, and of emma, as beside a server of its own."""
    found = []

    def add(user, resource, name, *operations, pattern=Pattern.LITERAL):
        found.extend(
            m.CreateAclsRequest.AclCreation(resource, name, pattern, f"User:{user}", "*", one, Permission.ALLOW)
            for one in operations
        )

    of_topics = (
        Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.ALTER_CONFIGS,
    )  # fmt: skip
    of_groups, of_ids = (Operation.READ, Operation.DELETE), (Operation.WRITE,)
    for side in (BROKER, NODE):
        at = _names(side, "anna")
        for name in (at.topic, f"{at.topic}-missing", f"{at.topic}-new", at.made(), at.gone()):
            add("anna", Resource.TOPIC, name, *of_topics)
        for name in (at.group, f"{at.group}-missing", at.modern()):
            add("anna", Resource.GROUP, name, *of_groups)
        add("anna", Resource.TRANSACTIONAL_ID, at.tid, *of_ids)
    kinds = ((Resource.TOPIC, of_topics), (Resource.GROUP, of_groups), (Resource.TRANSACTIONAL_ID, of_ids))
    for resource, operations in kinds:
        add("bert", resource, "team-", *operations, pattern=Pattern.PREFIXED)
    for user in ("anna", "bert"):
        add(user, Resource.CLUSTER, CLUSTER_NAME, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS)
    add("emma", Resource.TOPIC, "team-", Operation.CREATE, pattern=Pattern.PREFIXED)
    return m.CreateAclsRequest(found)


@pytest.fixture(scope="module")
def sides(kafka, tmp_path_factory):
    """Broker and node: where each is, and the names that it is asked about, by the user."""
    folder = tmp_path_factory.mktemp("sides")
    everywhere = STEADY | {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:dora;User:broker;User:node;User:ANONYMOUS",
    }
    of_broker = sasl_settings({user: user for user in (*USERS, "node")}) | {
        "offsets.topic.num.partitions": len(LEADERS), "transaction.state.log.num.partitions": len(LEADERS),
    }  # fmt: skip
    with Cluster(
        folder / "cluster", brokers=1, listeners=["SASL_PLAINTEXT"], settings=everywhere, single={BROKER: of_broker}
    ) as cluster:
        to_brokers = (
            "security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", "sasl.username=node", "sasl.password=node"
        )  # fmt: skip
        options = ("--sasl-mechanisms", "PLAIN", "--acls", "--super-users", "User:dora;User:broker;User:node")
        with running(NodeServer(cluster, folder / "node", *options, login=to_brokers)) as node:
            add_users(node.path, {user: user for user in (*USERS, "broker")})
            port = int(cluster.bootstrap_of("SASL_PLAINTEXT").rpartition(":")[2])
            yield list(_prepared(cluster, {BROKER: SimpleNamespace(host=HOST, port=port), NODE: node}))


def _prepared(cluster, places):
    """Makes topics and entries, and waits until both sides know all, and lead and coordinate what is theirs."""
    assigned = {OFFSETS_TOPIC: LEADERS, TRANSACTIONS_TOPIC: LEADERS}
    for side in places:
        topic = _names(side, "").topic
        assigned |= dict.fromkeys((topic, *(f"{topic}-gone-{user}" for user in USERS)), (side,))
    made = []
    for name, leaders in assigned.items():
        configs = {"cleanup_policy": "compact"} if name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC) else {}
        made.append(r.new_topic(name, -1, -1, enumerate([side] for side in leaders), **configs))
    created = cluster.ask(BROKER, r.create_topics(*made), 7).topics
    assert {one.error_code for one in created} == {0}
    assert {one.error_code for one in cluster.ask(BROKER, _entries(), 3).results} == {0}
    ids = {one.name: one.topic_id for one in created}
    for side, place in places.items():
        at = _names(side, "dora", ids[_names(side, "").topic])
        with logged_in(place, "dora") as peer:

            def is_ready(peer=peer, at=at):
                known = peer.ask(m.DescribeAclsRequest(1, None, 1, "User:emma", None, 1, 1), 3).resources
                groups = peer.ask(m.DescribeGroupsRequest([at.group, at.modern()]), 5).groups
                one = peer.ask(m.DescribeTransactionsRequest([at.tid]), 0).transaction_states[0]
                return known and all(group.error_code in (0, 69) for group in groups) and one.error_code == 105

            wait_until(is_ready, f"{side} knows all")
        yield side, place, at


def _shown(name, at, answer):
    """What is compared of an answer: what is of one side only is named the same."""

    def neutral(value):
        if isinstance(value, tuple):
            return tuple(map(neutral, value))
        if not isinstance(value, str) or name == "Metadata, of all":
            return value
        return value.replace(at.topic, "TOPIC").replace(at.group, "GROUP").replace(at.tid, "TRANSACTION")

    return list(map(neutral, reduced(answer)))


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("name", ALL)
def test_the_answer_is_the_brokers(sides, user, name):
    answers = []
    for _, place, at in sides:
        mine = at._replace(user=user)
        request, version = requests(mine)[name]
        answers.append(_shown(name, mine, answer_to(place, user, request, version, SOON.get(name, ()))))
    theirs, ours = answers
    assert ours == theirs
