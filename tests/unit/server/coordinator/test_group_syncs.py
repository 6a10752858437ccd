"""SyncGroup: the assignment reaches the members of its generation, once it is stored."""

import pytest
from group_rig import GROUP, REBALANCE, SESSION

from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.server.coordinator import GroupRecord, MemberRecord


@pytest.fixture
def joined(rig):
    """Two members that have joined and have yet to sync; the first leads."""
    calls = [rig.join(version=3), rig.join(version=3)]
    rig.pass_time(6_000)
    return [call.answer.member_id for call in calls]


def test_members_wait_for_the_leader(rig, joined):
    one, two = joined
    follower = rig.sync(two, 1)
    assert follower.answer is None
    leader = rig.sync(one, 1, {one: b"x", two: b"y"})
    assert (leader.answer.assignment, follower.answer.assignment) == (b"x", b"y")
    assert (leader.answer.protocol_type, leader.answer.protocol_name) == ("consumer", "range")
    assert rig.state == "Stable"


def test_a_member_that_syncs_later_gets_its_assignment(rig, joined):
    one, two = joined
    rig.sync(one, 1, {one: b"x", two: b"y"})
    assert rig.sync(two, 1).answer.assignment == b"y"
    assert rig.sync(two, 1, version=3, names=(None, None)).answer.assignment == b"y"


def test_the_generation_is_stored_before_it_is_assigned(rig, joined):
    one, two = joined
    rig.hold = True
    calls = [rig.sync(two, 1), rig.sync(one, 1, {one: b"x", two: b"y"})]
    assert [call.answer for call in calls] == [None, None]
    assert rig.state == "CompletingRebalance"
    (store,) = rig.unwritten
    assert (store.group_id, store.record) == (GROUP, GroupRecord(
        "consumer", 1, "range", one, 4_000 + 3_000,
        (
            MemberRecord(one, None, "c", "/127.0.0.1", REBALANCE, SESSION, b"r", b"x"),
            MemberRecord(two, None, "c", "/127.0.0.1", REBALANCE, SESSION, b"r", b"y"),
        ),
    ))  # fmt: skip
    rig.write()
    assert [call.answer.assignment for call in calls] == [b"y", b"x"]


def test_members_without_an_assignment_get_an_empty_one_and_strangers_none(rig, joined):
    one, two = joined
    follower = rig.sync(two, 1)
    rig.sync(one, 1, {"stranger": b"z"})
    assert (follower.error, follower.answer.assignment) == (ErrorCode.NONE, b"")
    assert [(record.member_id, record.assignment) for record in rig.log[GROUP].members] == [(one, b""), (two, b"")]


@pytest.mark.parametrize(
    ("error", "seen"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_members_rebalance_if_the_assignment_is_not_stored(rig, joined, error, seen):
    one, two = joined
    rig.hold = True
    calls = [rig.sync(two, 1), rig.sync(one, 1, {one: b"x", two: b"y"})]
    rig.write(error)
    assert [call.error for call in calls] == [seen, seen]
    assert rig.state == "PreparingRebalance"
    again = [rig.join(one), rig.join(two)]
    assert [call.answer.generation_id for call in again] == [2, 2]


def test_an_assignment_that_is_stored_too_late_is_void(rig, joined):
    one, two = joined
    rig.hold = True
    calls = [rig.sync(two, 1), rig.sync(one, 1, {one: b"x", two: b"y"})]
    third = rig.join(version=3)
    assert [call.error for call in calls] == [ErrorCode.REBALANCE_IN_PROGRESS] * 2
    rig.write()
    assert rig.state == "PreparingRebalance"
    again = [rig.join(one), rig.join(two)]
    calls = [rig.sync(two, 2), rig.sync(third.answer.member_id, 2)]
    assert {call.answer.generation_id for call in (third, *again)} == {2}
    assert [call.answer for call in calls] == [None, None]


def test_a_late_failure_is_void_too(rig, joined):
    one, two = joined
    rig.hold = True
    rig.sync(one, 1, {one: b"x", two: b"y"})
    rig.join(two, protocols=(("range", b"new"),))
    rig.join(one)
    assert rig.state == "CompletingRebalance"
    rig.write(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert rig.state == "CompletingRebalance"


def test_the_leader_cannot_change_an_assignment_that_is_being_stored(rig, joined):
    one, two = joined
    rig.hold = True
    first = rig.sync(one, 1, {one: b"x", two: b"y"})
    second = rig.sync(one, 1, {one: b"other", two: b"y"})
    assert (first.error, len(rig.unwritten)) == (ErrorCode.REBALANCE_IN_PROGRESS, 1)
    rig.write()
    assert second.answer.assignment == rig.log[GROUP].members[0].assignment == b"x"


def test_syncs_that_are_refused(rig, joined):
    one, two = joined
    assert rig.sync("stranger", 1).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.sync(one, 1, group="other").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.sync(one, 1, group="").error is ErrorCode.INVALID_GROUP_ID
    assert rig.sync(one, 0).error is ErrorCode.ILLEGAL_GENERATION
    assert rig.sync(one, 2).error is ErrorCode.ILLEGAL_GENERATION
    assert rig.sync(one, 1, names=("connect", "range")).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert rig.sync(one, 1, names=("consumer", "sticky")).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert rig.sync(one, 1, names=(None, "range")).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert rig.sync(one, 1, names=("consumer", None)).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert rig.sync(two, 1, version=4, names=(None, None)).error is None


def test_a_sync_in_a_rebalance_sends_the_member_back_to_join(rig):
    one, two = rig.start(2)
    rig.join(one)
    assert rig.sync(two, 1).error is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_group_without_members_knows_none(rig):
    (one,) = rig.start(1)
    rig.leave(one)
    assert rig.sync(one, 1).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_members_that_do_not_sync_in_time_are_removed(rig, joined):
    one, two = joined
    waiting = rig.sync(two, 1)
    while rig.now < 7_000 + REBALANCE - 5_000:
        rig.pass_time(5_000)
        assert rig.heartbeat(one, 1) is ErrorCode.NONE
    rig.pass_time(4_999)
    assert waiting.answer is None
    rig.pass_time(1)
    assert waiting.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert rig.heartbeat(one, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.join(two).answer.leader == two


def test_a_stable_group_removes_members_that_do_not_sync_in_time(rig):
    calls = [rig.join(version=3, session=1_800_000) for _ in range(2)]
    rig.pass_time(6_000)
    one, two = (call.answer.member_id for call in calls)
    rig.sync(one, 1, {one: b"x", two: b"y"})
    assert rig.state == "Stable"
    rig.pass_time(REBALANCE)
    assert (rig.state, [member.member_id for member in rig.describe().members]) == ("PreparingRebalance", [one])


def test_a_group_whose_members_have_synced_stays(rig):
    rig.start(2, session=1_800_000)
    rig.pass_time(10 * REBALANCE)
    assert rig.state == "Stable"
