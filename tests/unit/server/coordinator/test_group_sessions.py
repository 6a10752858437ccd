"""Heartbeats, sessions, and members that leave."""

import pytest
from group_rig import GROUP, SESSION

from pyspark_log.kafka.error_codes import ErrorCode


def test_heartbeats_that_are_refused(rig):
    (one,) = rig.start(1)
    assert rig.heartbeat(one, 1, group="") is ErrorCode.INVALID_GROUP_ID
    assert rig.heartbeat(one, 1, group="other") is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.heartbeat("", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.heartbeat("stranger", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.heartbeat(one, 0) is ErrorCode.ILLEGAL_GENERATION
    assert rig.heartbeat(one, -1) is ErrorCode.ILLEGAL_GENERATION
    assert rig.heartbeat(one, 1) is ErrorCode.NONE
    rig.leave(one)
    assert rig.heartbeat(one, 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeats_keep_a_session(rig):
    one, two = rig.start(2)
    for _ in range(5):
        rig.pass_time(SESSION - 1)
        assert rig.heartbeat(one, 1) is ErrorCode.NONE
        assert rig.heartbeat(two, 1) is ErrorCode.NONE
    rig.pass_time(SESSION - 1)
    rig.heartbeat(two, 1)
    rig.pass_time(1)
    assert rig.heartbeat(one, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.heartbeat(two, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert rig.join(two).answer.leader == two


def test_a_heartbeat_counts_between_join_and_sync_and_in_a_rebalance(rig):
    call = rig.join(version=3)
    rig.pass_time(6_000)
    one = call.answer.member_id
    for _ in range(3):
        rig.pass_time(SESSION - 4_000)
        assert rig.heartbeat(one, 1) is ErrorCode.NONE
    assert rig.state == "CompletingRebalance"
    rig.assign([call])
    rig.join(rig.new_id())
    for _ in range(3):
        rig.pass_time(SESSION - 1)
        assert rig.heartbeat(one, 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_that_waits_needs_no_heartbeats(rig):
    one, two = rig.start(2)
    waiting = rig.join(one)
    rig.pass_time(SESSION - 1)
    rig.heartbeat(two, 1)
    rig.pass_time(SESSION - 1)
    assert waiting.answer is None
    rig.join(two)
    rig.pass_time(SESSION - 1)
    waiting = rig.sync(two, 2)
    rig.heartbeat(one, 2)
    rig.pass_time(SESSION - 1)
    assert waiting.answer is None
    rig.heartbeat(one, 2)
    rig.sync(one, 2)
    rig.pass_time(SESSION - 1)
    assert {member.member_id for member in rig.describe().members} == {one, two}, "its session began with the answer"
    rig.pass_time(1)
    assert rig.state == "Empty"


def test_a_group_whose_members_are_gone_is_empty_and_stored(rig):
    rig.start(2)
    rig.pass_time(SESSION)
    assert rig.state == "Empty"
    record = rig.log[GROUP]
    assert (record.generation, record.protocol_type, record.protocol, record.leader) == (2, "consumer", None, None)
    assert (record.members, record.state_timestamp) == ((), rig.now)
    assert rig.coordinator.next_deadline() is None


def test_a_group_that_was_empty_continues_its_generations(rig):
    rig.start(1)
    rig.pass_time(SESSION)
    call = rig.join(version=3, protocol_type="connect", protocols=(("other", b""),))
    rig.pass_time(6_000)
    assert (call.answer.generation_id, call.answer.protocol_type) == (3, "connect")


def test_an_empty_group_that_cannot_be_stored_is_empty_all_the_same(rig):
    (one,) = rig.start(1)
    rig.hold = True
    rig.leave(one)
    rig.write(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert rig.state == "Empty"


def test_a_session_is_as_long_as_the_member_says(rig):
    (one,) = rig.start(1, session=30_000)
    rig.pass_time(29_999)
    assert rig.heartbeat(one, 1) is ErrorCode.NONE
    rig.join(one, session=6_000)
    rig.sync(one, 2)
    rig.pass_time(5_999)
    assert rig.state == "Stable"
    rig.pass_time(1)
    assert rig.state == "Empty"


# ---- leaving


@pytest.mark.parametrize("version", [0, 2, 3, 5])
def test_a_member_leaves(rig, version):
    one, two = rig.start(2)
    answer = rig.leave(two, version=version)
    assert answer.error_code == ErrorCode.NONE
    assert [(left.member_id, left.error_code) for left in answer.members] == ([(two, 0)] if version >= 3 else [])
    assert rig.heartbeat(one, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert rig.heartbeat(two, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_stranger_cannot_leave(rig):
    rig.start(1)
    assert rig.leave("stranger", version=2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    answer = rig.leave("stranger", "")
    assert answer.error_code == ErrorCode.NONE
    assert [left.error_code for left in answer.members] == [ErrorCode.UNKNOWN_MEMBER_ID] * 2
    assert rig.state == "Stable"
    assert rig.leave("stranger", version=2, group="other").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.leave("stranger", group="other").members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.leave("stranger", group="").error_code == ErrorCode.INVALID_GROUP_ID


def test_many_members_leave_at_once(rig):
    one, two, three = rig.start(3)
    rig.leave(one, three)
    call = rig.join(two)
    assert (call.answer.generation_id, call.answer.leader, len(call.answer.members)) == (2, two, 1)


def test_the_last_member_leaves(rig):
    one, two = rig.start(2)
    rig.leave(one, two)
    assert (rig.state, rig.log[GROUP].generation) == ("Empty", 2)


def test_a_rebalance_does_not_wait_for_a_member_that_left(rig):
    one, two = rig.start(2)
    call = rig.join(one)
    rig.leave(two)
    assert call.answer.generation_id == 2


def test_the_first_rebalance_lasts_its_time_when_a_member_leaves(rig):
    one = rig.join(rig.new_id())
    two = rig.new_id()
    waiting = rig.join(two)
    rig.leave(two)
    assert (waiting.error, one.answer) == (ErrorCode.UNKNOWN_MEMBER_ID, None)
    rig.pass_time(6_000)
    assert len(one.answer.members) == 1


def test_a_client_that_was_given_an_id_can_leave(rig):
    member = rig.new_id()
    assert rig.leave(member).members[0].error_code == ErrorCode.NONE
    assert rig.state == "Dead", "nothing is left of the group"
    assert rig.coordinator.next_deadline() is None


# ---- restarts


def test_members_have_a_session_to_be_heard_of_after_a_restart(rig):
    one, two = rig.start(2)
    rig.pass_time(SESSION - 1)
    rig.restart()
    assert rig.state == "Stable"
    rig.pass_time(SESSION - 1)
    assert rig.heartbeat(one, 1) is ErrorCode.NONE
    assert rig.sync(one, 1).answer.assignment == one.encode()
    rig.pass_time(1)
    assert rig.heartbeat(two, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_what_is_known_of_a_group_survives_a_restart(rig):
    rig.start_static("a", "b")
    before = rig.describe()
    rig.restart()
    assert rig.describe() == before
    assert rig.join(instance="b").answer.generation_id == 1


def test_a_group_that_was_rebalancing_is_as_it_was_before(rig):
    one, two = rig.start(2)
    rig.join(one)
    call = rig.join(two)
    rig.restart()
    assert rig.sync(two, call.answer.generation_id).error is ErrorCode.ILLEGAL_GENERATION
    assert rig.heartbeat(two, 1) is ErrorCode.NONE
    calls = [rig.join(one), rig.join(two)]
    assert [call.answer.generation_id for call in calls] == [2, 2]


def test_an_id_that_was_given_out_is_unknown_after_a_restart(rig):
    rig.start(1)
    member = rig.new_id()
    rig.restart()
    assert rig.join(member).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_that_is_given_up_sends_its_clients_away(rig):
    one, two = rig.start(2)
    waiting = rig.join(one)
    rig.take(rig.coordinator.unload(GROUP))
    assert (waiting.error, waiting.answer.member_id) == (ErrorCode.NOT_COORDINATOR, one)
    assert rig.state == "Dead"
    rig.restart()
    calls = [rig.join(one), rig.join(two)]
    waiting = rig.sync(two, calls[1].answer.generation_id)
    rig.take(rig.coordinator.unload(GROUP))
    assert waiting.error is ErrorCode.NOT_COORDINATOR
    stored = dict(rig.log)
    rig.pass_time(10 * SESSION)
    assert rig.log == stored, "it is another server's group now"
    rig.take(rig.coordinator.unload("other"))


def test_what_is_stored_of_a_group_that_is_given_up_changes_nothing(rig):
    calls = [rig.join(version=3), rig.join(version=3)]
    rig.pass_time(6_000)
    one, two = (call.answer.member_id for call in calls)
    rig.hold = True
    waiting = [rig.sync(two, 1), rig.sync(one, 1, {one: b"x", two: b"y"})]
    rig.take(rig.coordinator.unload(GROUP))
    assert [call.error for call in waiting] == [ErrorCode.NOT_COORDINATOR] * 2
    rig.write()
    assert rig.state == "Dead"
    rig.restart()
    assert rig.state == "Stable"
