"""JoinGroup: ids, checks, protocols, the leader, and when a rebalance is complete."""

import pytest
from group_rig import GROUP, RANGE, REBALANCE, SESSION, Rig

from pyspark_log.kafka.error_codes import ErrorCode


@pytest.mark.parametrize("version", [0, 1, 3])
def test_an_old_client_is_taken_in_without_an_id(rig, version):
    call = rig.join(version=version, client="old")
    rig.pass_time(6_000)
    assert (call.error, call.answer.generation_id, call.answer.protocol_name) == (ErrorCode.NONE, 1, "range")
    assert call.answer.member_id == call.answer.leader == "old-1"
    assert [(one.member_id, one.metadata) for one in call.answer.members] == [("old-1", b"r")]


@pytest.mark.parametrize("version", [4, 9])
def test_a_new_client_comes_back_with_its_id(rig, version):
    first = rig.join(version=version, client="new")
    assert (first.error, first.answer.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "new-1")
    assert rig.state == "Empty"
    second = rig.join("new-1", version)
    assert rig.state == "PreparingRebalance"
    rig.pass_time(6_000)
    assert (second.error, second.answer.protocol_type) == (ErrorCode.NONE, "consumer")


def test_an_id_that_was_not_given_out_is_unknown(rig):
    assert rig.join("c-1").error is ErrorCode.UNKNOWN_MEMBER_ID
    rig.start(1)
    call = rig.join("c-99")
    assert (call.error, call.answer.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "c-99")


def test_an_id_is_forgotten_after_a_session(rig):
    member = rig.new_id()
    rig.pass_time(SESSION - 1)
    assert rig.state == "Empty"
    rig.pass_time(1)
    assert rig.join(member).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.state == "Dead", "nothing is left of the group"
    assert rig.log == {}


def test_a_client_that_is_back_with_its_id_is_not_waited_for():
    rig = Rig(initial_rebalance_delay=0)
    call = rig.join(rig.new_id(session=6_000), session=30_000)
    rig.pass_time(0)
    rig.assign([call])
    assert rig.coordinator.next_deadline() == rig.now + 30_000


def test_an_id_that_is_given_out_is_not_for_a_static_member(rig):
    assert rig.join(rig.new_id(), instance="i").error is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ({"group": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_joins_that_are_refused(rig, how, error):
    call = rig.join(**how)
    assert (call.error, call.answer.generation_id, call.answer.members) == (error, -1, ())
    assert rig.coordinator.next_deadline() is None
    assert rig.state == "Dead", "it makes no group"


@pytest.mark.parametrize(("version", "name"), [(0, ""), (6, ""), (7, None), (9, None)])
def test_an_error_names_no_protocol(rig, version, name):
    assert rig.join("stranger", version).answer.protocol_name == name
    rig.start(1)
    refused = rig.join(version=version, protocol_type="other")
    member = rig.new_id()
    waiting = rig.join(member, version)
    rig.leave(member)
    assert (refused.answer.protocol_name, waiting.answer.protocol_name) == (name, name)


@pytest.mark.parametrize("session", [6_000, 1_800_000])
def test_the_bounds_of_a_session(rig, session):
    assert rig.join(version=3, session=session).answer is None, "it waits"


# ---- the first rebalance


def test_the_first_rebalance_waits_for_more_members_until_none_comes(rig):
    calls = [rig.join(version=3)]
    rig.pass_time(2_999)
    calls.append(rig.join(version=3))
    rig.pass_time(1)
    assert rig.state == "PreparingRebalance", "it has grown, so it waits again"
    rig.pass_time(2_999)
    assert [call.answer for call in calls] == [None, None]
    rig.pass_time(1)
    assert {call.answer.generation_id for call in calls} == {1}
    assert len({call.answer.leader for call in calls}) == 1


def test_the_first_rebalance_lasts_as_long_as_a_rebalance_at_most(rig):
    calls = []
    for _ in range(8):
        calls.append(rig.join(version=3, rebalance=7_000))
        rig.pass_time(1_000)
    assert [call.error for call in calls[:7]] == [ErrorCode.NONE] * 7
    assert calls[7].answer is None, "it came to the second"


def test_a_delay_of_nothing(rig):
    rig = Rig(initial_rebalance_delay=0)
    call = rig.join(version=3)
    assert rig.coordinator.next_deadline() == rig.now
    rig.pass_time(0)
    assert call.answer.generation_id == 1


def test_version_0_has_its_session_to_rebalance(rig):
    rig.start(1)
    call = rig.join(version=0, session=7_000, rebalance=-1)
    rig.pass_time(0)
    assert call.answer is None
    rig.pass_time(SESSION)
    rig.assign([call])
    assert rig.log[GROUP].members[0].rebalance_timeout == 7_000


# ---- later rebalances


def test_a_rebalance_waits_for_all_members(rig):
    one, two = rig.start(2)
    third = rig.join(rig.new_id())
    assert rig.state == "PreparingRebalance"
    assert rig.heartbeat(one, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    again = rig.join(one)
    assert third.answer is None
    last = rig.join(two)
    assert {call.answer.generation_id for call in (again, last, third)} == {2}
    assert {call.answer.leader for call in (again, last, third)} == {one}
    assert [len(call.answer.members) for call in (again, last, third)] == [3, 0, 0]
    assert rig.state == "CompletingRebalance"


def test_a_rebalance_waits_for_ids_that_were_given_out(rig):
    (one,) = rig.start(1)
    pending = rig.new_id(session=6_000)
    call = rig.join(one)
    assert call.answer is None
    rig.pass_time(6_000)
    assert (call.error, len(call.answer.members)) == (ErrorCode.NONE, 1)
    assert rig.join(pending).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_members_that_do_not_join_in_time_are_removed(rig):
    one, two = rig.start(2, session=1_800_000)
    call = rig.join(one)
    rig.pass_time(REBALANCE - 1)
    assert call.answer is None
    rig.pass_time(1)
    assert [member.member_id for member in call.answer.members] == [one]
    assert rig.heartbeat(two, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_slowest_member_says_how_long_a_rebalance_may_last(rig):
    one = rig.join(version=3, rebalance=20_000)
    two = rig.join(version=3, rebalance=50_000, session=1_800_000)
    rig.pass_time(6_000)
    rig.assign([one, two])
    call = rig.join(one.answer.member_id, rebalance=20_000)
    rig.pass_time(49_999)
    assert call.answer is None
    rig.pass_time(1)
    assert call.error is ErrorCode.NONE


def test_the_next_member_leads_if_the_leader_does_not_join(rig):
    one, two, three = rig.start(3, session=1_800_000)
    calls = [rig.join(member, protocols=(("range", b"new"),)) for member in (two, three)]
    rig.pass_time(REBALANCE)
    assert {call.answer.leader for call in calls} == {two}
    assert rig.heartbeat(one, 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_stable_group_rebalances_when_its_leader_joins(rig):
    one, two = rig.start(2)
    assert rig.join(one).answer is None
    assert rig.heartbeat(two, 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_follower_that_joins_as_it_was_gets_what_it_has(rig):
    one, two = rig.start(2)
    call = rig.join(two)
    assert (call.answer.generation_id, call.answer.leader, call.answer.members) == (1, one, [])
    assert rig.state == "Stable"


def test_a_follower_that_has_changed_causes_a_rebalance(rig):
    _, two = rig.start(2)
    assert rig.join(two, protocols=(("range", b"other topics"),)).answer is None
    assert rig.state == "PreparingRebalance"


def test_a_member_that_missed_the_answer_gets_it_again(rig):
    calls = [rig.join(version=3), rig.join(version=3)]
    rig.pass_time(6_000)
    for call in calls:
        again = rig.join(call.answer.member_id)
        assert again.answer == call.answer
    changed = rig.join(calls[1].answer.member_id, protocols=(("range", b"new"),))
    assert changed.answer is None
    assert rig.state == "PreparingRebalance"


def test_a_join_that_is_repeated_replaces_the_first(rig):
    one, two = rig.start(2)
    first = rig.join(one)
    second = rig.join(one)
    assert (first.error, second.answer) == (ErrorCode.REBALANCE_IN_PROGRESS, None)
    rig.join(two)
    assert second.error is ErrorCode.NONE


def test_a_new_member_whose_client_is_gone_is_removed_some_time(rig):
    rig.start(1, session=1_800_000, rebalance=1_800_000)
    call = rig.join(version=3, rebalance=1_800_000)
    rig.pass_time(299_999)
    assert call.answer is None
    rig.pass_time(1)
    assert (call.error, call.answer.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")


# ---- protocols


def protocols(*names):
    return tuple((name, name.encode()) for name in names)


def test_members_vote_for_the_protocol(rig):
    calls = [rig.join(version=3, protocols=protocols(*names)) for names in (["a", "b"], ["b", "a"], ["c", "b", "a"])]
    rig.pass_time(6_000)
    assert {call.answer.protocol_name for call in calls} == {"b"}
    assert [member.metadata for member in calls[0].answer.members] == [b"b"] * 3


def test_a_protocol_that_one_member_lacks_is_not_chosen(rig):
    calls = [rig.join(version=3, protocols=protocols(*names)) for names in (["a", "b"], ["a", "b"], ["b"])]
    rig.pass_time(6_000)
    assert {call.answer.protocol_name for call in calls} == {"b"}


def test_a_member_without_a_protocol_in_common_is_refused(rig):
    rig.join(version=3, protocols=protocols("a", "b"))
    rig.join(version=3, protocols=protocols("b"))
    assert rig.join(version=3, protocols=protocols("a", "c")).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert rig.join(version=3, protocol_type="connect").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_the_protocol_of_members_that_left_does_not_count(rig):
    one, two = rig.start(2, protocols=protocols("a", "b"))
    rig.leave(two)
    call = rig.join(one, protocols=protocols("b"))
    assert (call.error, call.answer.protocol_name) == (ErrorCode.NONE, "b")


def test_the_first_of_equal_names_counts(rig):
    call = rig.join(version=3, protocols=(("a", b"1"), ("a", b"2")))
    rig.pass_time(6_000)
    assert call.answer.members[0].metadata == b"1"


# ---- the largest size


def test_a_group_has_no_more_members_than_it_may(rig):
    rig = Rig(max_size=2)
    one, two = rig.start(2)
    assert rig.join(version=3).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert rig.join().error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert rig.state == "Stable"
    calls = [rig.join(one), rig.join(two)]
    assert [call.error for call in calls] == [ErrorCode.NONE] * 2


def test_of_a_group_that_is_too_large_the_last_to_join_are_removed(rig):
    one, two, three = rig.start(3)
    rig.settings = type(rig.settings)(max_size=2)
    rig.restart()
    assert rig.state == "PreparingRebalance", "so that members commit before they are removed"
    calls = [rig.join(member) for member in (three, two, one)]
    assert [call.error for call in calls] == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.GROUP_MAX_SIZE_REACHED]
    assert rig.heartbeat(one, 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_that_was_given_out_is_no_claim_to_room(rig):
    rig = Rig(max_size=1)
    pending = rig.new_id()
    rig.start(1)
    assert rig.join(pending).error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_groups_are_apart(rig):
    rig.start(1)
    call = rig.join(version=3, group="other", protocols=(("a", b""),))
    rig.pass_time(6_000)
    assert (call.answer.generation_id, call.answer.protocol_name) == (1, "a")
    assert RANGE[0][0] == rig.describe().protocol_data
