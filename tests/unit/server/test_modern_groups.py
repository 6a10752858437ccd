"""Groups of KIP-848 at a server: heartbeats, and the same groups by `Store`, to administrators, after a restart."""

import re
import sys
from types import ModuleType, SimpleNamespace

import pytest
from server_requests import id_of

from pyspark_log import Store
from pyspark_log.kafka import messages as m
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.server.coordinator import Settings
from pyspark_log.server.groups import Groups
from pyspark_log.server.groups.groups import GroupCluster
from pyspark_log.server.groups.topics import matching
from pyspark_log.server.handlers import Call, Client
from pyspark_log.server.handlers.coordinators.membership import consumer_group_heartbeat
from pyspark_log.server.network import Loop, Workers
from pyspark_log.server.served.folder import FolderLogs
from pyspark_log.server.served.servers import OnlyServer
from tests import requests as r
from tests.server_tools import Peer, served

_Owned = m.ConsumerGroupHeartbeatRequest.TopicPartitions


def _beat(peer, group, member, epoch, version=1, **fields):
    answer = peer.ask(m.ConsumerGroupHeartbeatRequest(group, member, epoch)._replace(**fields), version)
    return answer if answer.error_code == ErrorCode.NONE else ErrorCode(answer.error_code)


def _enter(peer, group, member, topic, version=1, **fields):
    whole = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": [topic], "topic_partitions": []}
    return _beat(peer, group, member, 0, version, **whole | fields)


def _has(answer):
    return {bytes(one.topic_id): list(one.partitions) for one in answer.assignment.topic_partitions}


def _described(peer, group):
    [one] = peer.ask(m.ConsumerGroupDescribeRequest([group], True), 1).groups
    return one


@pytest.mark.parametrize("version", range(2))
def test_a_member_gets_its_partitions(peer, store, topic, group, version):
    member = "m" if version else ""
    answer = _enter(peer, group, member, topic, version)
    assert _has(answer) == {id_of(store, topic): [0]}
    again = _beat(peer, group, answer.member_id, answer.member_epoch, version)
    assert (again.member_epoch, again.assignment) == (answer.member_epoch, None)
    [described] = _described(peer, group).members
    assert (described.member_id, described.client_host) == (answer.member_id, "/127.0.0.1")
    assert described.assignment.topic_partitions[0].topic_name == topic
    found = store.groups[group].describe()
    assert [one.member_id for one in found.members] == [answer.member_id]
    assert _beat(peer, group, answer.member_id, -1, version).member_epoch == -1
    assert _described(peer, group).group_state == "Empty"


def test_partitions_that_are_added(peer, store, topic, group):
    _enter(peer, group, "m", topic)
    store.add_partitions(topic, 3)
    owned = [_Owned(id_of(store, topic), [0])]
    while (answer := _beat(peer, group, "m", 2, topic_partitions=owned)).member_epoch == 2:
        pass
    assert _has(answer) == {id_of(store, topic): [0, 1, 2]}


def test_commits_and_fetches_have_epochs(peer, store, topic, group):
    _enter(peer, group, "m", topic)
    for epoch, error in ((2, ErrorCode.NONE), (3, ErrorCode.STALE_MEMBER_EPOCH)):
        answer = peer.ask(r.commit(group, topic, 5, generation=epoch, member="m"), 9)
        assert answer.topics[0].partitions[0].error_code == error
        [found] = peer.ask(r.committed_of(group, None, member="m", epoch=epoch), 9).groups
        assert found.error_code == error
        assert [one.committed_offset for each in found.topics for one in each.partitions] == ([] if error else [5])


def test_it_is_listed_and_deleted(peer, store, topic, group):
    _enter(peer, group, "m", topic)
    listed = peer.ask(m.ListGroupsRequest(types_filter=["Consumer"]), 5).groups
    assert [one.group_state for one in listed if one.group_id == group] == ["Stable"]
    assert peer.ask(m.DeleteGroupsRequest([group]), 2).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    _beat(peer, group, "m", -1)
    assert peer.ask(m.DeleteGroupsRequest([group]), 2).results[0].error_code == ErrorCode.NONE
    assert _described(peer, group).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert group not in store.groups


def test_a_store_deletes_it(peer, store, topic, group):
    _enter(peer, group, "m", topic)
    _beat(peer, group, "m", -1)
    store.groups[group].delete()
    assert _described(peer, group).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_members_outlive_a_restart(tmp_path):
    with Store.create(tmp_path / "store") as store:
        store.create_topic("t", 2)
    with served(tmp_path / "store", tmp_path) as server:
        with Peer(server) as peer:
            before = _enter(peer, "g", "m", "t")
        server.kill()
        server.start()
        with Peer(server) as peer:
            assert _beat(peer, "g", "m", before.member_epoch).member_epoch == before.member_epoch
            assert _described(peer, "g").group_state == "Stable"


def test_a_store_that_cannot_be_looked_at_for_a_while(tmp_path):
    store = tmp_path / "store"
    with Store.create(store) as created:
        created.create_topic("t", 1)
    with served(store, tmp_path) as server, Peer(server) as peer:
        entered = _enter(peer, "g", "m", "t")
        store.rename(tmp_path / "elsewhere")
        # The member asks again, on the same connection.
        assert _enter(peer, "g", "n", "t") == ErrorCode.COORDINATOR_NOT_AVAILABLE
        (tmp_path / "elsewhere").rename(store)
        assert _beat(peer, "g", "m", entered.member_epoch).member_epoch == entered.member_epoch


def test_a_heartbeat_during_which_another_server_takes_over(tmp_path):
    class Cluster(GroupCluster):
        is_here = True

        def has_group(self, _group):
            return self.is_here

        def topics(self, _fresh):
            self.is_here = False
            return {}

    loop = Loop()
    workers = Workers(loop, 1)
    with Store.create(tmp_path / "store") as store:
        groups = Groups(loop, workers, FolderLogs(store, workers, OnlyServer(0)), Settings(), Cluster())
        call = Call(SimpleNamespace(groups=groups, acls=None), Client("1.2.3.4:5", ("host", 9092)), "client", 1)
        wait = loop.start(consumer_group_heartbeat(call, m.ConsumerGroupHeartbeatRequest("g", "m", 3)))
        wait.then(loop.stop)
        loop.run()
    workers.close()
    loop.close()
    # Not that there is no such group, at which Java's consumer ends.
    assert wait.value.error_code == ErrorCode.NOT_COORDINATOR


# ---- regular expressions


@pytest.fixture
def re2(monkeypatch):
    """In place of google-re2, if that is not installed."""

    class Options:
        log_errors = True

    stand_in = ModuleType("re2")
    stand_in.Options, stand_in.error = Options, re.error
    stand_in.compile = lambda pattern, options: re.compile(pattern)
    monkeypatch.setitem(sys.modules, "re2", stand_in)


@pytest.mark.usefixtures("re2")
def test_names_match_as_a_whole():
    assert matching(["orders", "reorders", "or"], "or.*") == ["orders", "or"]


def test_without_google_re2_nothing_is_matched(monkeypatch):
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(ValueError, match="no google-re2"):
        matching(["orders"], "or.*")


def test_a_text_that_is_no_regular_expression():
    pytest.importorskip("re2")
    with pytest.raises(ValueError, match="no regular expression of RE2"):
        matching(["orders"], "(")
    with pytest.raises(ValueError, match="no regular expression of RE2"):
        matching(["orders"], "(?=orders)")


def test_a_subscription_to_a_regular_expression(peer, store, topic, group):
    pytest.importorskip("re2")
    answer = _enter(peer, group, "m", topic, subscribed_topic_names=None, subscribed_topic_regex=f"{topic}|none")
    assert _has(answer) == {id_of(store, topic): [0]}
    assert _enter(peer, group, "n", topic, subscribed_topic_regex="(") is ErrorCode.INVALID_REGULAR_EXPRESSION
