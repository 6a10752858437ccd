"""Members with a `group.instance.id` (KIP-345): they can restart without a rebalance."""

import pytest
from group_rig import GROUP, REBALANCE, SESSION

from pyspark_log.kafka.error_codes import ErrorCode


def members_of(rig):
    return {one.group_instance_id: one for one in rig.describe().members}


def test_a_static_member_is_taken_in_at_once(rig):
    call = rig.join(instance="i")
    assert rig.state == "PreparingRebalance"
    rig.pass_time(6_000)
    assert call.answer.member_id == "i-1"
    assert call.answer.members[0].group_instance_id == "i"


def test_a_follower_that_restarts_has_its_old_assignment(rig):
    leader, old = rig.start_static("a", "b")
    call = rig.join(instance="b")
    assert (call.error, call.answer.generation_id, call.answer.leader) == (ErrorCode.NONE, 1, leader)
    assert (call.answer.members, call.answer.skip_assignment) == ([], False)
    assert rig.state == "Stable"
    new = call.answer.member_id
    assert new != old
    assert rig.sync(new, 1, instance="b").answer.assignment == old.encode()
    assert {one.member_id: one.instance_id for one in rig.log[GROUP].members} == {leader: "a", new: "b"}
    assert rig.log[GROUP].members[1].assignment == old.encode()


def test_a_leader_that_restarts_does_not_assign(rig):
    rig.start_static("a", "b")
    new = rig.join(instance="a", version=9).answer
    assert new.leader == new.member_id
    assert (new.skip_assignment, [one.group_instance_id for one in new.members]) == (True, ["b", "a"])
    assert rig.state == "Stable"


@pytest.mark.parametrize("version", [5, 8])
def test_an_older_leader_that_restarts_takes_itself_for_a_follower(rig, version):
    old, _ = rig.start_static("a", "b")
    new = rig.join(instance="a", version=version).answer
    assert (new.leader, new.members, new.skip_assignment) == (old, [], False)
    assert rig.log[GROUP].leader == new.member_id
    rig.join(new.member_id, instance="a")
    assert rig.state == "PreparingRebalance", "it leads"


def test_the_old_process_is_fenced(rig):
    old, _ = rig.start_static("a", "b")
    rig.join(instance="a")
    assert rig.heartbeat(old, 1, instance="a") is ErrorCode.FENCED_INSTANCE_ID
    assert rig.sync(old, 1, instance="a").error is ErrorCode.FENCED_INSTANCE_ID
    assert rig.join(old, instance="a").error is ErrorCode.FENCED_INSTANCE_ID
    assert rig.commit(1, old, "a") is ErrorCode.FENCED_INSTANCE_ID
    assert rig.leave((old, "a")).members[0].error_code == ErrorCode.FENCED_INSTANCE_ID
    assert rig.heartbeat(old, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_instance_that_is_not_there_is_unknown(rig):
    (member,) = rig.start_static("a")
    assert rig.heartbeat(member, 1, instance="b") is ErrorCode.UNKNOWN_MEMBER_ID


def test_requests_of_the_old_process_that_wait_are_fenced(rig):
    first = rig.join(instance="a")
    second = rig.join(instance="a")
    assert (first.error, first.answer.member_id) == (ErrorCode.FENCED_INSTANCE_ID, "a-1")
    rig.pass_time(6_000)
    assert second.error is ErrorCode.NONE
    rig.hold = True
    waiting = rig.sync(second.answer.member_id, 1, {second.answer.member_id: b"x"}, instance="a")
    rig.join(instance="a")
    assert waiting.error is ErrorCode.FENCED_INSTANCE_ID


def test_a_restart_before_the_assignment_causes_a_rebalance(rig):
    calls = [rig.join(instance="a"), rig.join(instance="b")]
    rig.pass_time(6_000)
    follower = rig.sync(calls[1].answer.member_id, 1, instance="b")
    again = rig.join(instance="a")
    assert (follower.error, again.answer) == (ErrorCode.REBALANCE_IN_PROGRESS, None)
    rig.join(calls[1].answer.member_id, instance="b")
    assert again.answer.generation_id == 2


def test_a_restart_that_changes_the_protocol_causes_a_rebalance(rig):
    both = (("range", b"r"), ("sticky", b"s"))
    rig.start_static("a", protocols=both)
    call = rig.join(instance="a", protocols=both[::-1])
    assert (call.answer.generation_id, call.answer.protocol_name) == (2, "sticky")


def test_the_answer_waits_for_the_new_id_to_be_stored(rig):
    old, _ = rig.start_static("a", "b")
    rig.hold = True
    call = rig.join(instance="a")
    assert call.answer is None
    rig.write()
    assert call.error is ErrorCode.NONE
    assert rig.heartbeat(old, 1, instance="a") is ErrorCode.FENCED_INSTANCE_ID


def test_the_old_process_is_back_if_the_new_id_is_not_stored(rig):
    old, _ = rig.start_static("a", "b")
    rig.hold = True
    call = rig.join(instance="a", session=20_000, protocols=(("range", b"new"),))
    rig.write(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert (call.error, call.answer.member_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
    assert rig.heartbeat(old, 1, instance="a") is ErrorCode.NONE
    assert members_of(rig)["a"].member_metadata == b"r"
    rig.pass_time(SESSION)
    assert rig.describe().members == [], "its session is as long as it was"


def test_a_rebalance_answers_a_restart_whose_id_is_being_stored(rig):
    _, follower = rig.start_static("a", "b")
    rig.hold = True
    call = rig.join(instance="a")
    other = rig.join(instance="c")
    assert call.answer is None
    rig.write()
    assert call.answer is None, "it waits for the rebalance"
    rig.join(follower, instance="b")
    assert {call.answer.generation_id, other.answer.generation_id} == {2}


def test_a_session_does_not_end_while_the_new_id_is_stored_and_begins_then(rig):
    (_,) = rig.start_static("a")
    rig.hold = True
    call = rig.join(instance="a")
    rig.pass_time(SESSION)
    rig.write()
    assert call.error is ErrorCode.NONE
    rig.pass_time(SESSION - 1)
    assert rig.state == "Stable"
    rig.pass_time(1)
    assert rig.state == "Empty"


def test_a_static_member_that_does_not_join_in_time_stays_until_the_time_to_sync_is_over(rig):
    one, two = rig.start_static("a", "b", session=1_800_000)
    call = rig.join(one, instance="a", session=1_800_000)
    rig.pass_time(REBALANCE)
    assert [member.member_id for member in call.answer.members] == [one, two]
    assert rig.heartbeat(two, 1, instance="b") is ErrorCode.ILLEGAL_GENERATION
    assert rig.sync(one, 2, {one: b"x"}, instance="a").error is ErrorCode.NONE
    assert rig.state == "Stable"
    rig.pass_time(REBALANCE - 1)
    assert set(members_of(rig)) == {"a", "b"}
    rig.pass_time(1)
    assert set(members_of(rig)) == {"a"}
    assert rig.state == "PreparingRebalance"


def test_a_static_member_that_is_back_before_that_is_part_of_the_generation(rig):
    one, two = rig.start_static("a", "b", session=1_800_000)
    rig.join(one, instance="a", session=1_800_000)
    rig.pass_time(REBALANCE)
    rig.sync(one, 2, {one: b"x", two: b"y"}, instance="a")
    call = rig.join(two, instance="b", session=1_800_000)
    assert call.answer.generation_id == 2
    assert rig.sync(two, 2, instance="b").answer.assignment == b"y"
    rig.pass_time(REBALANCE)
    assert rig.state == "Stable"


def test_a_static_leader_that_does_not_join_no_longer_leads(rig):
    one, two = rig.start_static("a", "b", session=1_800_000)
    call = rig.join(two, instance="b", protocols=(("range", b"new"),))
    rig.pass_time(REBALANCE)
    assert call.answer.leader == two
    assert {member.member_id for member in call.answer.members} == {one, two}


def test_a_rebalance_that_no_static_member_joins_is_tried_again(rig):
    one, two = rig.start_static("a", "b", session=1_800_000)
    rig.leave(rig.new_id())
    assert rig.state == "PreparingRebalance"
    rig.pass_time(REBALANCE)
    assert rig.state == "PreparingRebalance"
    rig.join(one, instance="a")
    rig.pass_time(REBALANCE - 1)
    assert rig.state == "PreparingRebalance"
    rig.pass_time(1)
    assert rig.state == "CompletingRebalance"
    assert set(members_of(rig)) == {"a", "b"}
    assert rig.heartbeat(two, 1, instance="b") is ErrorCode.ILLEGAL_GENERATION


def test_a_restart_in_a_rebalance_counts_as_joined(rig):
    leader, _ = rig.start_static("a", "b")
    first = rig.join(leader, instance="a")
    second = rig.join(instance="b")
    assert (first.answer.generation_id, second.answer.generation_id) == (2, 2)


def test_static_and_dynamic_members_share_a_group(rig):
    calls = [rig.join(instance="a"), rig.join(version=3)]
    rig.pass_time(6_000)
    rig.assign(calls, ["a", None])
    assert rig.state == "Stable"
    assert set(members_of(rig)) == {"a", None}


def test_an_administrator_removes_a_static_member_by_its_instance(rig):
    one, two = rig.start_static("a", "b")
    left = rig.leave(("", "b"), ("", "c"), version=3)
    assert [(one.group_instance_id, one.error_code) for one in left.members] == [
        ("b", ErrorCode.NONE), ("c", ErrorCode.UNKNOWN_MEMBER_ID),
    ]  # fmt: skip
    assert rig.heartbeat(two, 1, instance="b") is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.heartbeat(one, 1, instance="a") is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_that_an_administrator_removes_gets_an_answer(rig):
    one, two = rig.start_static("a", "b")
    waiting = rig.join(one, instance="a")
    rig.leave(("", "a"))
    assert (waiting.error, waiting.answer.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")
    second = rig.join(two, instance="b")
    waiting = rig.sync(two, second.answer.generation_id, instance="b")
    rig.hold = True
    assert waiting.error is ErrorCode.NONE
    third = rig.join(two, instance="b")
    waiting = rig.sync(two, third.answer.generation_id, instance="b")
    rig.leave(("", "b"))
    assert waiting.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_restart_before_the_first_generation_may_wait_longer_than_a_session(rig):
    rig.start(1, session=1_800_000)
    rig.join(instance="a")
    waiting = rig.join(instance="a")
    rig.pass_time(SESSION)
    assert waiting.answer is None
