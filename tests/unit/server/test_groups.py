"""Groups of clients at a server: membership, committed offsets, and the same groups by `Store` and after a restart."""

import pytest
from server_requests import each_version, id_of

from pyspark_log import Consumer, Store
from pyspark_log.errors import GroupNotEmptyError
from pyspark_log.kafka import messages as m
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.storage.groups import GroupState
from pyspark_log.types import TopicPartition
from tests import requests as r
from tests.requests import NO_ID
from tests.server_tools import Peer, Server

_PROTOCOL = m.JoinGroupRequest.JoinGroupRequestProtocol
_ASSIGNMENT = m.SyncGroupRequest.SyncGroupRequestAssignment
_SUBSCRIPTION = b"\x00\x00" + b"\x00\x00\x00\x01" + b"\x00\x05topic" + b"\xff\xff\xff\xff"


def _join(group, member="", **fields):
    request = m.JoinGroupRequest(group, 30_000, 30_000, member, None, "consumer", [_PROTOCOL("range", _SUBSCRIPTION)])
    return request._replace(**fields)


def _joined(peer, group, version=9, **fields):
    """Joins as a client does, with the id that the server gives it."""
    answer = peer.ask(_join(group, **fields), version)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        answer = peer.ask(_join(group, answer.member_id, **fields), version)
    assert answer.error_code == ErrorCode.NONE
    return answer


def _synced(peer, group, joined, assignment=b"mine", version=5):
    names = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
    assignments = [_ASSIGNMENT(joined.member_id, assignment)] if joined.leader == joined.member_id else []
    request = m.SyncGroupRequest(group, joined.generation_id, joined.member_id, assignments=assignments)
    return peer.ask(request._replace(**names), version)


def _member(peer, group, **fields):
    joined = _joined(peer, group, **fields)
    assert _synced(peer, group, joined).error_code == ErrorCode.NONE
    return joined


def _commit(peer, group, topic, offset, version=8, **fields):
    """Commits an offset of the first partition, or of the one that is given; the error."""
    request = r.commit(group, topic, offset, epoch=3 if version >= 6 else -1, **fields)
    [[part]] = [one.partitions for one in peer.ask(request, version).topics]
    return part.error_code


def _committed(peer, group, topic, numbers=(0,), version=7, topic_id=NO_ID):
    """What is committed of a topic, or with None of all, by partition."""
    if version >= 8:
        [one] = peer.ask(r.committed_of(group, topic, *numbers, topic_id=topic_id), version).groups
        assert one.error_code == ErrorCode.NONE
        topics = one.topics
    else:
        topics = peer.ask(r.committed(group, topic, *numbers), version).topics
    return {part.partition_index: part for found in topics for part in found.partitions}


# ---- membership


@each_version(m.FindCoordinatorRequest)
def test_each_version_finds_the_coordinator(peer, server, version):
    many = {"coordinator_keys": ["a", "b"]} if version >= 4 else {"key": "a"}
    answer = peer.ask(m.FindCoordinatorRequest(**many), version)
    found = answer.coordinators if version >= 4 else [answer]
    assert [(one.error_code, one.node_id, one.host, one.port) for one in found] == [
        (ErrorCode.NONE, 1, server.host, server.port)
    ] * (2 if version >= 4 else 1)


def test_the_coordinator_of_transactions(peer, server):
    found = [peer.ask(m.FindCoordinatorRequest("t", kind), 3) for kind in range(3)]
    assert [one.error_code for one in found] == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    assert {(one.host, one.port) for one in found[:2]} == {(server.host, server.port)}


@each_version(m.JoinGroupRequest)
def test_each_version_of_a_join(peer, group, version):
    fields = {"rebalance_timeout_ms": -1} if version == 0 else {}
    joined = _joined(peer, group, version, **fields)
    assert joined.generation_id == 1
    assert joined.leader == joined.member_id
    [member] = joined.members
    assert (member.member_id, member.metadata) == (joined.member_id, _SUBSCRIPTION)
    assert joined.protocol_name == "range"
    sync = _synced(peer, group, joined, version=min(version, 5))
    assert (sync.error_code, sync.assignment) == (ErrorCode.NONE, b"mine")
    heart = peer.ask(m.HeartbeatRequest(group, 1, joined.member_id), min(version, 4))
    assert heart.error_code == ErrorCode.NONE
    left = m.LeaveGroupRequest(group, joined.member_id)
    if version >= 3:
        left = m.LeaveGroupRequest(group, members=[m.LeaveGroupRequest.MemberIdentity(joined.member_id)])
    answer = peer.ask(left, min(version, 5))
    assert answer.error_code == ErrorCode.NONE
    assert [one.error_code for one in answer.members] == ([ErrorCode.NONE] if version >= 3 else [])


def test_assignors_that_do_not_fit_are_in_the_log(server, peer, group):
    """A member of another library may wait without a word: it has assignors of its own by default. Logged once."""
    _member(peer, group)
    with Peer(server) as other:
        request = _join(group, protocols=[_PROTOCOL("RoundRobinAssigner", b""), _PROTOCOL("mine", b"")])
        for _ in range(3):
            assert other.ask(request, 3).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    server.wait_for(f"group {group}: tests (127.0.0.1:")
    assert server.output().count(f"group {group}: ") == 1
    assert "it has RoundRobinAssigner, mine" in server.output()


def test_a_member_whose_client_has_died_is_removed_in_time(server, peer, group):
    with Peer(server) as other:
        died = _member(other, group, session_timeout_ms=6000)
    joined = _joined(peer, group)
    # The join was answered when the session of the other had ended, not when its rebalance time was over.
    assert [one.member_id for one in joined.members] == [joined.member_id]
    heart = peer.ask(m.HeartbeatRequest(group, 1, died.member_id), 4)
    assert heart.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_members_outlive_a_restart_of_the_server(tmp_path):
    Store.create(tmp_path / "store").create_topic("t", 1)
    server = Server(tmp_path / "store", tmp_path)
    try:
        with Peer(server.start()) as peer:
            joined = _member(peer, "g")
            assert _commit(peer, "g", "t", 5, generation=1, member=joined.member_id) == ErrorCode.NONE
        server.kill()
        with Peer(server.start()) as peer:
            assert peer.ask(m.HeartbeatRequest("g", 1, joined.member_id), 4).error_code == ErrorCode.NONE
            assert peer.ask(m.HeartbeatRequest("g", 1, "other"), 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID
            assert _committed(peer, "g", "t")[0].committed_offset == 5
            assert _commit(peer, "g", "t", 6, generation=1, member=joined.member_id) == ErrorCode.NONE
            assert _commit(peer, "g", "t", 4, generation=0, member=joined.member_id) == ErrorCode.ILLEGAL_GENERATION
    finally:
        server.kill()


# ---- committed offsets


@each_version(m.OffsetCommitRequest)
def test_each_version_of_a_commit(peer, store, topic, group, version):
    by_id = {"topic_id": id_of(store, topic)} if version >= 10 else {}
    named = "" if by_id else topic
    assert _commit(peer, group, named, 7, version, metadata="note", **by_id) == ErrorCode.NONE
    [found] = store.groups[group].committed().items()
    assert found[0] == TopicPartition(topic, 0)
    assert (found[1].offset, found[1].metadata, found[1].leader_epoch) == (7, "note", 3 if version >= 6 else -1)


@each_version(m.OffsetFetchRequest)
def test_each_version_of_a_fetch(peer, store, topic, group, version):
    store.add_partitions(topic, 2)
    by_id = {"topic_id": id_of(store, topic)} if version >= 10 else {}
    _commit(peer, group, topic, 7, metadata="note")
    found = _committed(peer, group, "" if by_id else topic, (0, 1), version, **by_id)
    assert [(found[number].committed_offset, found[number].metadata) for number in (0, 1)] == [(7, "note"), (-1, "")]
    if version >= 5:
        assert found[0].committed_leader_epoch == 3


@each_version(m.OffsetFetchRequest, lowest=2)
def test_all_that_a_group_has(peer, topic, group, version):
    _commit(peer, group, topic, 7)
    found = _committed(peer, group, None, version=version)
    assert {number: part.committed_offset for number, part in found.items()} == {0: 7}


def test_offsets_that_spark_commits_are_seen(peer, store, topic, group):
    store.groups[group].commit({TopicPartition(topic, 0): 3})
    assert _committed(peer, group, topic)[0].committed_offset == 3
    store.groups[group].commit({TopicPartition(topic, 0): 4})
    assert _committed(peer, group, topic)[0].committed_offset == 4


@pytest.mark.parametrize("offset", [-1, -2])
def test_an_offset_with_which_a_group_starts_over(peer, store, topic, group, offset):
    """kafkajs commits it for a partition whose offset is out of range; Kafka keeps any number."""
    assert _commit(peer, group, topic, 4) == ErrorCode.NONE
    assert _commit(peer, group, topic, offset) == ErrorCode.NONE
    assert _committed(peer, group, topic)[0].committed_offset == offset
    assert store.groups[group].committed() == {}
    assert store.groups.log.describe(group).state is GroupState.EMPTY
    at = TopicPartition(topic, 0)
    with Consumer(store, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
        consumer.assign([at])
        assert (consumer.committed(at), consumer.position(at)) == (None, 0)
    store.groups[group].commit({at: 3}, expected={at: None})


def test_commits_that_are_refused(server, peer, store, topic, group):
    joined = _member(peer, group)
    mine = {"generation": 1, "member": joined.member_id}
    assert _commit(peer, group, topic, 1, **mine) == ErrorCode.NONE
    assert _commit(peer, group, topic, 2) == ErrorCode.UNKNOWN_MEMBER_ID
    assert _commit(peer, group, topic, 2, **{**mine, "generation": 2}) == ErrorCode.ILLEGAL_GENERATION
    assert _commit(peer, group, topic, 2, **{**mine, "member": "other"}) == ErrorCode.UNKNOWN_MEMBER_ID
    for _ in range(2):
        assert _commit(peer, group, topic, 2, metadata="x" * 4097, **mine) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    port = peer.socket.getsockname()[1]
    said = f"tests (127.0.0.1:{port}) cannot commit offset 2 for {topic}-0: OFFSET_METADATA_TOO_LARGE"
    server.wait_for(said)
    assert server.output().count(said) == 1
    assert _commit(peer, group, topic, 2, partition=1, **mine) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert _commit(peer, group, "missing", 2, **mine) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    # As with Kafka, a group without a name can have committed offsets, and no members.
    assert _commit(peer, "", topic, 2) == ErrorCode.NONE
    assert _committed(peer, "", topic)[0].committed_offset == 2
    assert _committed(peer, group, topic)[0].committed_offset == 1
    # Others see that it has members, too.
    with pytest.raises(GroupNotEmptyError):
        store.groups[group].delete()


def test_members_that_share_the_files_have_their_group_alone(peer, store, topic, group):
    with Consumer(store, topic, group_id=group) as consumer:
        consumer.poll()
        joined = _joined(peer, group)
        assert _synced(peer, group, joined).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        peer.ask(m.LeaveGroupRequest(group, joined.member_id), 0)
        consumer.poll()
        assert len(consumer.assignment()) == store.describe_topic(topic).partitions
        consumer.commit({TopicPartition(topic, 0): 0})
    # When they have left, the server's may come.
    _member(peer, group)
    with pytest.raises(GroupNotEmptyError):
        Consumer(store, topic, group_id=group)


# ---- administration


@each_version(m.DescribeGroupsRequest)
def test_each_version_describes(peer, topic, group, version):
    joined = _member(peer, group)
    [found] = peer.ask(m.DescribeGroupsRequest([group]), version).groups
    assert (found.error_code, found.group_state) == (ErrorCode.NONE, "Stable")
    assert (found.protocol_type, found.protocol_data) == ("consumer", "range")
    [member] = found.members
    assert (member.member_id, member.client_id, member.client_host) == (joined.member_id, "tests", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (_SUBSCRIPTION, b"mine")
    [missing] = peer.ask(m.DescribeGroupsRequest(["missing"]), version).groups
    assert (missing.group_state, missing.error_code) == ("Dead", ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)


@each_version(m.ListGroupsRequest)
def test_each_version_lists(peer, store, topic, group, version):
    _member(peer, group)
    of_spark = f"{group}-spark"
    store.groups[of_spark].commit({TopicPartition(topic, 0): 3})
    listed = {one.group_id: one for one in peer.ask(m.ListGroupsRequest(), version).groups}
    assert {group, of_spark} <= listed.keys()
    if version >= 4:
        assert (listed[group].group_state, listed[of_spark].group_state) == ("Stable", "Empty")
        stable = peer.ask(m.ListGroupsRequest(["Stable"]), version).groups
        assert group in {one.group_id for one in stable}
        assert of_spark not in {one.group_id for one in stable}


@each_version(m.DeleteGroupsRequest)
def test_each_version_deletes(peer, store, topic, group, version):
    _member(peer, group)
    of_spark = f"{group}-spark"
    store.groups[of_spark].commit({TopicPartition(topic, 0): 3})
    answer = peer.ask(m.DeleteGroupsRequest([group, of_spark, "missing"]), version)
    expected = [ErrorCode.NON_EMPTY_GROUP, ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND]
    assert [one.error_code for one in answer.results] == expected
    assert of_spark not in store.groups
    assert group in store.groups


def test_what_others_have_deleted_is_gone(peer, store, topic, group):
    _commit(peer, group, topic, 7)
    store.groups[group].delete()
    assert group not in {one.group_id for one in peer.ask(m.ListGroupsRequest(), 4).groups}
    assert _committed(peer, group, topic)[0].committed_offset == -1


def test_offsets_are_deleted(peer, store, topic, group):
    def delete(name):
        part = m.OffsetDeleteRequest.OffsetDeleteRequestPartition(0)
        request = m.OffsetDeleteRequest(group, [m.OffsetDeleteRequest.OffsetDeleteRequestTopic(name, [part])])
        answer = peer.ask(request, 0)
        return answer.error_code or answer.topics[0].partitions[0].error_code

    assert delete(topic) == ErrorCode.GROUP_ID_NOT_FOUND
    joined = _member(peer, group)
    mine = {"generation": 1, "member": joined.member_id}
    _commit(peer, group, topic, 7, **mine)
    assert delete("topic") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    store.create_topic("topic", 1)
    assert delete("topic") == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert delete(topic) == ErrorCode.NONE
    assert _committed(peer, group, topic)[0].committed_offset == -1
