"""What clients with few rights see of a server; tests/kafka asks each API beside a real Kafka."""

import logging

import pytest
from broker_tools import fill, high_watermark, tree
from server_requests import batch, produce, produce_request

from pyspark_log import Store
from pyspark_log.errors import InvalidConfigError
from pyspark_log.kafka import messages as m
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.server.documents import followed
from pyspark_log.server.security.acls import Acl, Acls, Operation, Pattern, Permission, Resource, Rules
from tests import requests as r
from tests.documents import documents_at
from tests.security_tools import add_users, log_in
from tests.server_tools import Peer, make_store, served

_PASSWORD = "a long password"


def _right(resource, name, operation=Operation.ALL, pattern=Pattern.LITERAL):
    return Acl(resource, name, pattern, "User:carl", "*", operation, Permission.ALLOW)


@pytest.fixture(scope="module")
def server(tmp_path_factory, served_place):
    """carl may use its topic, group and transactional id; eve nothing; dora is a super user, and uses the others."""
    rights = [_right(Resource.TOPIC, "mine"), _right(Resource.GROUP, "g"), _right(Resource.TRANSACTIONAL_ID, "t")]
    options = ("--sasl-mechanisms", "PLAIN", "--acls", "--super-users", "User:dora", "--verbose")
    folder = tmp_path_factory.mktemp("rights")
    make_store(folder, ("mine", "hidden"), served_place)
    add_users(served_place, dict.fromkeys(("carl", "dora", "eve"), _PASSWORD))
    Acls(documents_at(served_place), ()).change(lambda _: rights)
    with served(served_place, folder, *options) as running:
        yield running


def _peer(server, user):
    peer = Peer(server)
    assert log_in(peer, user, _PASSWORD).error_code == 0
    return peer


@pytest.fixture
def carl(server):
    with _peer(server, "carl") as peer:
        yield peer


@pytest.fixture
def dora(server):
    with _peer(server, "dora") as peer:
        yield peer


def test_a_producer_id_is_for_those_that_may_write(server, carl):
    """To any topic, or idempotently to the cluster."""
    request = m.InitProducerIdRequest(None, 60_000)
    assert carl.ask(request, 4).error_code == 0
    with _peer(server, "eve") as eve:
        assert eve.ask(request, 4).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def _join(peer, member, epoch=0):
    """Joins the group of KIP-848 with all topics, until there is an assignment; the answer."""
    while True:
        request = m.ConsumerGroupHeartbeatRequest("g", member, epoch, None, None, 60_000, None, ".*", None, [])
        answer = peer.ask(request, 1)
        assert answer.error_code == 0
        if answer.assignment is not None and answer.assignment.topic_partitions:
            return answer
        epoch = answer.member_epoch


def _leave(peer, member):
    peer.ask(m.ConsumerGroupHeartbeatRequest("g", member, -1, None, None, -1, None, None, None, None), 1)


def _described(peer):
    [group] = peer.ask(m.ConsumerGroupDescribeRequest(["g"], False), 1).groups
    topics = {
        part.topic_name for member in group.members for part in member.target_assignment.topic_partitions
    }  # fmt: skip
    return group.error_code, topics


def test_an_expression_has_the_topics_that_the_client_sees(carl, dora):
    assert len(_join(carl, "one").assignment.topic_partitions) == 1
    assert _described(carl) == (0, {"mine"})
    _leave(carl, "one")
    # A super user's member has them all, and is not shown to others.
    _join(dora, "two")
    assert _described(dora)[1] >= {"mine", "hidden"}
    assert _described(carl) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, set())
    _leave(dora, "two")


def test_a_transaction_has_the_topics_that_the_client_sees(carl, dora):
    made = dora.ask(m.InitProducerIdRequest("t", 60_000), 4)
    producer = made.producer_id, made.producer_epoch
    added = dora.ask(r.add_partitions("t", producer, {"mine": [0], "hidden": [0]}), 3)
    assert {one.results_by_partition[0].partition_error_code for one in added.results_by_topic_v3_and_below} == {0}
    # Over an object store it has those that it has written to.
    record = batch(b"x", producer_id=producer[0], producer_epoch=producer[1], base_sequence=0, transactional=True)
    for topic in ("mine", "hidden"):
        assert produce(dora, topic, record, transactional_id="t").error_code == 0
    for peer, expected in ((dora, ["hidden", "mine"]), (carl, ["mine"])):
        [state] = peer.ask(m.DescribeTransactionsRequest(["t"]), 0).transaction_states
        assert [one.topic for one in state.topics] == expected
    dora.ask(m.EndTxnRequest("t", *producer, False), 3)


def test_a_pattern_takes_no_time(carl, dora):
    """In Python's own expressions this one takes longer than anybody waits."""
    dora.ask(m.InitProducerIdRequest("a" * 60 + "!", 60_000), 4)
    for peer in (dora, carl):
        assert peer.ask(m.ListTransactionsRequest((), (), -1, "(a+)+"), 2).transaction_states == ()
    assert peer.ask(m.ListTransactionsRequest((), (), -1, "("), 2).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_an_id_does_not_reveal_the_name(server, carl, dora):
    with Store.open(server.path) as store:
        [found] = dora.ask(r.metadata("hidden"), 12).topics
        assert store.describe_topic("hidden").partitions == 1
    [answer] = carl.ask(produce_request("", batch(b"x"), topic_id=found.topic_id), 13).responses
    [refused] = answer.partition_responses
    assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert "hidden" not in refused.error_message


def test_refusals_are_in_the_log(server, carl):
    [answer] = carl.ask(m.DescribeGroupsRequest(["another"]), 5).groups
    assert answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    server.wait_for("User:carl may not describe group another")


def test_names_of_acls_have_an_end(dora):
    long = m.CreateAclsRequest.AclCreation(
        Resource.TOPIC, "x" * 1025, Pattern.LITERAL, "User:a", "*", Operation.READ, Permission.ALLOW
    )
    [result] = dora.ask(m.CreateAclsRequest([long]), 3).results
    assert result.error_code == ErrorCode.INVALID_REQUEST


def test_nothing_is_written_to_a_brokers_folder(tmp_path):
    root = tmp_path / "broker"
    root.mkdir()
    fill(root)
    high_watermark(root, 21)
    before = tree(root)
    everything = m.DeleteAclsRequest.DeleteAclsFilter(1, None, 1, None, None, 1, 1)
    creation = m.CreateAclsRequest.AclCreation(2, "t", 3, "User:a", "*", 3, 3)
    for supers in ("User:nobody", "User:ANONYMOUS"):
        with served(root, tmp_path, "--acls", "--super-users", supers) as server, Peer(server) as peer:
            [deleted] = peer.ask(m.DeleteAclsRequest([everything]), 3).filter_results
            [created] = peer.ask(m.CreateAclsRequest([creation]), 3).results
            assert {deleted.error_code, created.error_code} == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
    assert tree(root) == before


# ---- the rules themselves


class _Counted(str):
    """A name that counts how often its beginning is asked for."""

    __slots__ = ("asked",)

    def __getitem__(self, at):
        self.asked = getattr(self, "asked", 0) + 1
        return super().__getitem__(at)


def test_a_long_name_costs_no_more_than_there_are_prefixes():
    rules = Rules([_right(Resource.TOPIC, "team-", pattern=Pattern.PREFIXED)])
    name = _Counted("team-" + "x" * 30_000)
    assert rules.allow("User:carl", "127.0.0.1", Operation.READ, Resource.TOPIC, name)
    assert name.asked == 1


def test_a_damaged_file_is_reported_once(tmp_path, caplog):
    Store.create(tmp_path / "store").close()
    path = tmp_path / "store" / "state" / "acls.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text("{")
    acls = Acls(documents_at(tmp_path / "store"), {"User:admin"})
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            assert acls.current() is acls.without_entries
    assert len(caplog.records) == 1
    assert "only super users are served" in caplog.text


def test_a_file_does_not_become_too_large_to_be_read(tmp_path, monkeypatch):
    Store.create(tmp_path / "store").close()
    acls = Acls(documents_at(tmp_path / "store"), ())
    acls.change(lambda _: [_right(Resource.TOPIC, "t")])
    monkeypatch.setattr(followed, "MOST_BYTES", 1000)
    with pytest.raises(InvalidConfigError, match="the list of ACLs would have"):
        acls.change(lambda known: known | {_right(Resource.TOPIC, f"t{number}") for number in range(10)})
    assert len(acls.rules().acls) == 1
