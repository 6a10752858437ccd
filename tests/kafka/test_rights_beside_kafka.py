"""What clients may do: the same ACLs and requests at a real Kafka and at `pylog serve`, the answers side by side."""

import re

import pytest
from kafka_tools import running_broker, sasl_settings

from pyspark_log.kafka import messages as m
from pyspark_log.kafka.schemas import message_of
from pyspark_log.server.handlers import APIS
from pyspark_log.server.security.acls import CLUSTER_NAME, Operation, Pattern, Permission, Resource
from pyspark_log.storage.catalog import INTERNAL_TOPICS
from tests import requests as r
from tests.requests import NO_ID
from tests.rights_requests import Names, of_groups, of_records, of_topics, of_transactions, requests
from tests.security_tools import log_in, served_with_users
from tests.server_tools import Peer
from tests.waiting import wait_until

#: anna has rights by name, bert by a prefix, carl none, dora is a super user, and emma
#: may create topics. The password of each is its name.
USERS = ("anna", "bert", "carl", "dora", "emma")
TOPIC, GROUP, TRANSACTION = "team-a", "team-g", "team-t"
ALL = requests(Names(TOPIC, NO_ID, GROUP, TRANSACTION, "anna"))
#: Those that anybody may send before it is known.
_LOGIN = {17, 18, 36}
#: What Kafka answers while it has begun to load producer ids, or to create a topic.
SOON = {"InitProducerId": {14}, "Metadata, created": {3, 5}}


def reduced(value):
    """What an answer says of rights: errors, operations, and what there is, but for internal topics."""
    if hasattr(value, "_fields"):
        if getattr(value, "name", None) in INTERNAL_TOPICS:
            return []
        found = []
        for name, one in value._asdict().items():
            if name.endswith(("error_code", "authorized_operations")):
                found.append((name, int(one)))
            elif name == "topic_id":
                found.append((name, one != NO_ID))
            elif name in ("name", "topic_name", "group_id", "transactional_id"):
                found.append((name, one))
            elif name != "configs":
                found += reduced(one)
        return found
    if isinstance(value, (list, tuple)):
        return [one for each in sorted(map(reduced, value)) for one in each]
    return []


def logged_in(where, user):
    peer = Peer(where)
    assert log_in(peer, user, user).error_code == 0
    return peer


# ---- the two sides, with the same entries

#: Rights by name, which anna has; bert has those of topics, groups and transactional ids by the prefix "team-".
_RIGHTS = {
    Resource.TOPIC: (
        Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.ALTER_CONFIGS,
    ),
    Resource.GROUP: (Operation.READ, Operation.DELETE),
    Resource.TRANSACTIONAL_ID: (Operation.WRITE,),
    Resource.CLUSTER: (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS),
}  # fmt: skip
_NAMES = {
    Resource.TOPIC: (TOPIC, *(f"{TOPIC}-{kind}" for kind in ("missing", "new", "made-anna", "gone-anna"))),
    Resource.GROUP: (GROUP, *(f"{GROUP}-{kind}" for kind in ("missing", "modern"))),
    Resource.TRANSACTIONAL_ID: (TRANSACTION,), Resource.CLUSTER: (CLUSTER_NAME,),
}  # fmt: skip


def _entries():
    """Of anna by name, and of bert by a prefix."""
    found = []
    for resource, operations in _RIGHTS.items():
        for operation in operations:
            found += [(resource, name, Pattern.LITERAL, "User:anna", operation) for name in _NAMES[resource]]
            if resource is not Resource.CLUSTER:
                found.append((resource, "team-", Pattern.PREFIXED, "User:bert", operation))
    found.append((Resource.TOPIC, "team-", Pattern.PREFIXED, "User:emma", Operation.CREATE))
    return [
        m.CreateAclsRequest.AclCreation(resource, name, pattern, user, "*", operation, Permission.ALLOW)
        for resource, name, pattern, user, operation in found
    ]


def _prepare(where):
    """Makes the topic, and the entries."""
    with logged_in(where, "dora") as peer:
        names = (TOPIC, *(f"{TOPIC}-gone-{user}" for user in USERS))
        created = peer.ask(r.create_topics(*map(r.new_topic, names)), 7).topics
        assert {one.error_code for one in created} == {0}
        results = peer.ask(m.CreateAclsRequest(_entries()), 3).results
        assert {one.error_code for one in results} == {0}
        # Kafka has made its coordinators and takes the entries in some time later.
        entries = m.DescribeAclsRequest(1, None, 1, None, None, 1, 1)
        wait_until(lambda: len(peer.ask(entries, 3).resources) >= len(_NAMES) + 2, "the entries are known")
        for kind, key in ((0, GROUP), (1, TRANSACTION)):
            find = m.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            wait_until(lambda find=find: not peer.ask(find, 4).coordinators[0].error_code, "there are coordinators")
    return created[0].topic_id


@pytest.fixture(scope="module")
def sides(kafka, tmp_path_factory):
    """Kafka, and then a server, with the same users and entries."""
    users = {user: user for user in USERS}
    settings = sasl_settings(users) | {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:dora;User:broker;User:ANONYMOUS",
    }
    options = ("--sasl-mechanisms", "PLAIN", "--acls", "--super-users", "User:dora")
    with (
        running_broker(tmp_path_factory.mktemp("broker"), settings=settings, protocol="SASL_PLAINTEXT") as broker,
        served_with_users(tmp_path_factory.mktemp("server"), *options, users=users) as server,
    ):
        yield [(side, _prepare(side)) for side in (broker, server)]


def answer_to(where, user, request, version, soon=()):
    """The answer, after what Kafka does meanwhile."""
    with logged_in(where, user) as peer:

        def answered():
            answer = peer.ask(request, version)
            codes = {one for name, one in reduced(answer) if name.endswith("error_code")}
            return None if codes.intersection(soon) else answer

        return wait_until(answered, f"{request} is answered")


def _creation(resource=2, name="odd", pattern=3, principal="User:x", host="*", operation=3, permission=3):
    fields = resource, name, pattern, principal, host, operation, permission
    return m.CreateAclsRequest([m.CreateAclsRequest.AclCreation(*fields)])


def _filter(resource=1, name=None, pattern=1, principal=None, host=None, operation=1, permission=1):
    """As that of DeleteAcls, about what `_creation` has created."""
    fields = resource, name, pattern, principal or "User:x", host, operation, permission
    return m.DescribeAclsRequest(*fields), m.DeleteAclsRequest([m.DeleteAclsRequest.DeleteAclsFilter(*fields)])


CREATIONS = {
    "a topic": _creation(), "a prefix": _creation(pattern=4), "each topic": _creation(name="*"),
    "a user": _creation(resource=7), "a token": _creation(resource=6), "denied": _creation(permission=2),
    "any resource": _creation(resource=1), "an unknown resource": _creation(resource=0), "resource 99": _creation(99),
    "any pattern": _creation(pattern=1), "a match": _creation(pattern=2), "an unknown pattern": _creation(pattern=0),
    "any operation": _creation(operation=1), "operation 99": _creation(operation=99),
    "any permission": _creation(permission=1), "permission 0": _creation(permission=0),
    "no name": _creation(name=""), "another cluster": _creation(resource=4, name="x"),
    "the cluster": _creation(resource=4, name="kafka-cluster"), "no principal": _creation(principal=""),
    "a principal without type": _creation(principal="x"), "a principal without name": _creation(principal="User:"),
    "no host": _creation(host=""), "a host by name": _creation(host="localhost"),
    "an operation of groups": _creation(operation=12), "twice": m.CreateAclsRequest(_creation().creations * 2),
}  # fmt: skip
FILTERS = {
    "all": _filter(), "topics": _filter(2), "a name": _filter(2, "odd"), "literal": _filter(2, "odd", 3),
    "prefixed": _filter(2, "odd", 4), "a match": _filter(2, "oddity", 2), "a match of any": _filter(2, None, 2),
    "each": _filter(2, "*", 3), "each, a match": _filter(2, "*", 2), "an operation": _filter(operation=3),
    "a host": _filter(host="*"), "another host": _filter(host="x"), "denied": _filter(permission=2),
    "an unknown resource": _filter(0), "an unknown pattern": _filter(pattern=0),
    "operation 0": _filter(operation=0), "nobody's": _filter(principal="x"),
    "an empty name": _filter(2, ""), "a denied write of groups": _filter(3, None, 1, None, None, 4, 2),
}  # fmt: skip


def _without_texts(answer):
    """An answer about ACLs without texts and orders."""
    if isinstance(answer, m.CreateAclsResponse):
        return [int(one.error_code) for one in answer.results]
    if isinstance(answer, m.DeleteAclsResponse):
        [one] = answer.filter_results
        return int(one.error_code), sorted(tuple(acl)[2:] for acl in one.matching_acls)
    found = [(tuple(one)[:3], sorted(map(tuple, one.acls))) for one in answer.resources]
    return int(answer.error_code), sorted(found)


def _all_of(sides, request, version):
    answers = []
    for where, _ in sides:
        with logged_in(where, "dora") as peer:
            try:
                answers.append(_without_texts(peer.ask(request, version)))
            except ConnectionError:
                answers.append("closed")
    return answers


def test_acls_are_created_found_and_deleted_as_by_kafka(sides):
    created = {name: _all_of(sides, request, 3) for name, request in CREATIONS.items()}
    found = {name: _all_of(sides, described, 3) for name, (described, _) in FILTERS.items()}
    deleted = {name: _all_of(sides, delete, 3) for name, (_, delete) in reversed(FILTERS.items())}
    for answers in (created, found, deleted):
        for name, (kafkas, ours) in answers.items():
            # Kafka closes the connection, or fails inside, where the server says what is wrong.
            fails = kafkas == "closed" or kafkas[0] == -1
            assert ours[0] == 42 if fails else ours == kafkas, (name, kafkas, ours)


def test_each_api_is_asked():
    assert {message_of(request).api_key for request, _ in ALL.values()} | _LOGIN == set(APIS)


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("name", ALL)
def test_the_answer_is_kafkas(sides, user, name):
    answers = []
    for where, topic_id in sides:
        request, version = requests(Names(TOPIC, topic_id, GROUP, TRANSACTION, user))[name]
        answers.append(reduced(answer_to(where, user, request, version, SOON.get(name, ()))))
    kafkas, ours = answers
    assert ours == kafkas


@pytest.mark.parametrize("of", [of_records, of_topics, of_groups, of_transactions])
def test_what_is_not_allowed_is_not_revealed(sides, of):
    """The same requests about what there is, and about what there is not."""
    _, (where, _) = sides
    there, missing = Names(TOPIC, NO_ID, GROUP, TRANSACTION, "x"), Names("team-b", NO_ID, "team-h", "team-u", "x")
    for name, (request, version) in of(there).items():
        if "by id" not in name:
            answer, other = (
                re.sub(r" at 0x\w+", "", repr(answer_to(where, "carl", asked, version)))
                for asked in (request, of(missing)[name][0])
            )
            for one, another in zip(missing[:4], there[:4], strict=True):
                other = other.replace(repr(one)[1:-1], repr(another)[1:-1])
            assert answer == other, name
