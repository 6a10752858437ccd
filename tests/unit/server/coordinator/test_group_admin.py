"""DescribeGroups, ListGroups and DeleteGroups, and groups from the log."""

import pytest
from group_rig import GROUP, REBALANCE, SESSION, Call

from pyspark_log.kafka import encode_response
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import DescribeGroupsResponse, ListGroupsRequest, ListGroupsResponse
from pyspark_log.server.coordinator import GroupRecord, MemberRecord


def delete(rig, group=GROUP):
    call = Call(None)
    rig.take(rig.coordinator.delete(call, group))
    return call


def test_a_group_is_described_in_each_state(rig):
    rig.new_id(client="one")
    assert (rig.describe().group_state, rig.describe().protocol_type) == ("Empty", "")
    calls = [rig.join("one-1", client="one"), rig.join(version=3, client="two")]
    assert rig.state == "PreparingRebalance"
    rig.pass_time(6_000)
    described = rig.describe()
    assert (described.group_state, described.protocol_type) == ("CompletingRebalance", "consumer")
    assert described.protocol_data == ""
    assert {member.member_metadata for member in described.members} == {b""}
    rig.assign(calls)
    described = rig.describe()
    assert (described.error_code, described.error_message, described.group_id) == (ErrorCode.NONE, None, GROUP)
    assert (described.group_state, described.protocol_data) == ("Stable", "range")
    assert described.members == [
        DescribeGroupsResponse.DescribedGroupMember(f"{name}-{number}", None, name, "/127.0.0.1", b"r", assigned)
        for name, number, assigned in (("one", 1, b"one-1"), ("two", 2, b"two-2"))
    ]
    for version in range(7):
        encode_response(DescribeGroupsResponse(groups=[rig.describe(version)]), version, 1)


def test_a_group_that_does_not_exist_is_dead(rig):
    old, new = rig.describe(5), rig.describe(6)
    assert (old.group_state, old.error_code, old.error_message) == ("Dead", ErrorCode.NONE, None)
    assert (new.group_state, new.error_code) == ("Dead", ErrorCode.GROUP_ID_NOT_FOUND)
    assert new.error_message == "Group g not found."


def test_groups_are_listed_by_state_and_type(rig):
    rig.start(1)
    rig.commit(group="offsets")
    rig.join(version=3, group="new")

    def listed(states=(), types=()):
        groups = rig.coordinator.list_groups(ListGroupsRequest(states, types))
        for version in range(6):
            encode_response(ListGroupsResponse(groups=groups), version, 1)
        return {(one.group_id, one.protocol_type, one.group_state, one.group_type) for one in groups}

    stable = ("g", "consumer", "Stable", "classic")
    empty, new = ("offsets", "", "Empty", "classic"), ("new", "consumer", "PreparingRebalance", "classic")
    assert listed() == {stable, empty, new}
    assert listed(["stable", "EMPTY"]) == {stable, empty}
    assert listed(types=["Classic"]) == {stable, empty, new}
    assert listed(types=["consumer"]) == set()
    assert listed(["Dead"]) == set()


def test_only_empty_groups_are_deleted(rig):
    assert delete(rig).answer is ErrorCode.GROUP_ID_NOT_FOUND
    (one,) = rig.start(1)
    assert delete(rig).answer is ErrorCode.NON_EMPTY_GROUP
    rig.leave(one)
    assert delete(rig).answer is ErrorCode.NONE
    assert (rig.log, rig.state) == ({GROUP: None}, "Dead")
    assert delete(rig).answer is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_is_deleted_when_that_is_stored(rig):
    rig.commit()
    pending = rig.new_id()
    rig.hold = True
    call = delete(rig)
    assert (call.answer, rig.state) == (None, "Dead")
    assert rig.join(pending).error is ErrorCode.UNKNOWN_MEMBER_ID
    rig.write()
    assert call.answer is ErrorCode.NONE
    rig.pass_time(SESSION)


def test_a_group_is_back_if_its_deletion_is_not_stored(rig):
    (one,) = rig.start(1)
    rig.leave(one)
    rig.hold = True
    call = delete(rig)
    rig.write(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert (call.answer, rig.state) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "Empty")
    rig.hold = False
    rig.start(1)
    assert rig.log[GROUP].generation == 3


def test_a_group_that_is_made_while_one_of_its_name_is_deleted_stays(rig):
    rig.commit()
    rig.hold = True
    delete(rig)
    rig.join(version=3)
    rig.write(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert rig.state == "PreparingRebalance"


# ---- the log


def record(*members, protocol="range", leader="m1", rebalance=REBALANCE):
    return GroupRecord(
        "consumer", 5, protocol, leader, 123,
        tuple(MemberRecord(one, None, "c", "/h", rebalance, SESSION, b"r", one.encode()) for one in members),
    )  # fmt: skip


def test_a_record_that_is_loaded_is_stored_as_it_was(rig):
    rig.start_static("a", "b")
    before = rig.log[GROUP]
    rig.restart()
    one, two = (member.member_id for member in before.members)
    calls = [rig.join(one, instance="a"), rig.join(two, instance="b")]
    rig.assign(calls, ["a", "b"])
    after = rig.log[GROUP]
    assert after.members == before.members
    assert (after.generation, after.leader) == (before.generation + 1, before.leader)


def test_records_of_old_versions_have_the_session_to_rebalance(rig):
    rig.take(rig.coordinator.load(GROUP, record("m1", "m2", rebalance=-1), rig.now))
    call = rig.join("m1")
    rig.pass_time(SESSION)
    assert len(call.answer.members) == 1


def test_a_leader_that_is_no_member_does_not_lead(rig):
    rig.take(rig.coordinator.load(GROUP, record("m1", "m2", leader="stranger"), rig.now))
    calls = [rig.join("m2", protocols=(("range", b"new"),)), rig.join("m1")]
    assert {call.answer.leader for call in calls} == {"m1"}


def test_an_empty_group_is_loaded_with_its_generation(rig):
    rig.take(rig.coordinator.load(GROUP, record(protocol=None, leader=None), rig.now))
    assert rig.state == "Empty"
    rig.start(1)
    assert rig.log[GROUP].generation == 6


def test_a_group_with_offsets_alone_is_loaded(rig):
    rig.take(rig.coordinator.load(GROUP, None, rig.now))
    assert (rig.state, rig.describe().protocol_type) == ("Empty", "")
    assert rig.commit() is ErrorCode.NONE


def test_a_group_is_loaded_once(rig):
    rig.start(1)
    with pytest.raises(ValueError, match="group g is loaded already"):
        rig.coordinator.load(GROUP, None, rig.now)
