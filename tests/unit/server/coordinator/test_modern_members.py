"""Members of groups of KIP-848: joining, epochs, and how partitions move from one to the other."""

import pytest
from modern_rig import GROUP, REBALANCE, ModernRig, has, topic_id, topics_of

from pyspark_log.group_records import Kind, RecordKey, Target, TargetEpoch
from pyspark_log.kafka.error_codes import ErrorCode

# ---- joining


def test_the_first_member_gets_everything(rig):
    call = rig.enter("m")
    assert (call.error, call.answer.member_id, call.answer.member_epoch) == (ErrorCode.NONE, "m", 2)
    assert call.answer.heartbeat_interval_ms == 5_000
    assert has(call) == {"t": [0, 1, 2, 3]}
    assert rig.modern_state == "Stable"


def test_the_server_chooses_ids_of_old_clients(rig):
    call = rig.enter("", version=0)
    assert call.answer.member_id
    assert rig.beat("", 0, names=["t"], owned={}, rebalance=1).error is ErrorCode.INVALID_REQUEST


def test_an_answer_waits_for_the_log(rig):
    rig.hold = True
    call = rig.enter("m")
    again = rig.beat("m", 0, names=["t"], owned={}, rebalance=REBALANCE)
    assert (call.answer, again.answer) == (None, None)
    assert len(rig.unwritten) == 1
    rig.write()
    assert call.error is again.error is ErrorCode.NONE


def test_what_is_stored_of_a_member(rig):
    rig.enter("m", assignor="range")
    records = rig.records[GROUP]
    assert records[RecordKey(Kind.TARGET, "m")] == Target({topic_id("t"): (0, 1, 2, 3)})
    assert records[RecordKey(Kind.TARGET_EPOCH)] == TargetEpoch(2, rig.now)
    member = records[RecordKey(Kind.MEMBER, "m")]
    assert (member.topics, member.assignor, member.client_host) == (("t",), "range", "/127.0.0.1")
    assert {key.kind for key in records} == {Kind.GROUP, Kind.MEMBER, Kind.TARGET, Kind.TARGET_EPOCH, Kind.CURRENT}


def test_a_heartbeat_without_news_stores_nothing(rig):
    rig.enter("m")
    rig.hold = True
    call = rig.beat("m", 2, owned={"t": range(4)})
    assert (call.error, call.answer.assignment) == (ErrorCode.NONE, None)
    full = rig.beat("m", 2, names=["t"], owned={"t": range(4)}, rebalance=REBALANCE)
    assert has(full) == {"t": [0, 1, 2, 3]}
    assert rig.unwritten == []


@pytest.mark.parametrize("fault", [
    {"rebalance": -1}, {"names": None}, {"owned": None}, {"owned": {"t": [0]}}, {"instance": ""}, {"rack": ""},
    {"group": ""},
])  # fmt: skip
def test_first_heartbeats_that_are_not_complete(rig, fault):
    how = {"names": ["t"], "owned": {}, "rebalance": REBALANCE} | fault
    assert rig.beat("m", 0, **how).error is ErrorCode.INVALID_REQUEST


def test_heartbeats_that_make_no_sense(rig):
    assert rig.beat("m", -3).error is ErrorCode.INVALID_REQUEST
    assert rig.beat("m", -2).error is ErrorCode.INVALID_REQUEST
    assert rig.enter("m", assignor="sticky").error is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert rig.beat("m", 2).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert rig.beat("m", -1).error is ErrorCode.GROUP_ID_NOT_FOUND
    rig.enter("m")
    assert rig.beat("n", 2).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.beat("n", -1).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_full_group():
    rig = ModernRig(modern_max_size=1)
    rig.enter("m")
    assert rig.enter("n").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert rig.beat("m", 2).error is ErrorCode.NONE


def test_a_subscription_to_a_topic_that_does_not_exist_yet(rig):
    call = rig.enter("m", names=["later"])
    assert (call.answer.member_epoch, has(call)) == (2, {})
    rig.change_topics(t=4, later=1)
    call = rig.beat("m", 2, owned={})
    assert (call.answer.member_epoch, has(call)) == (3, {"later": [0]})


def test_a_topic_that_grows(rig):
    rig.enter("m")
    rig.change_topics(t=6)
    assert has(rig.beat("m", 2, owned={"t": range(4)})) == {"t": [0, 1, 2, 3, 4, 5]}
    rig.change_topics(t=6, other=1)
    assert rig.beat("m", 3, owned={"t": range(6)}).answer.member_epoch == 3


# ---- moving


def test_partitions_are_given_up_before_others_get_them(rig):
    rig.enter("a")
    call = rig.enter("b")
    assert (call.answer.member_epoch, has(call)) == (3, {})
    assert rig.modern_state == "Reconciling"
    call = rig.beat("a", 2, owned={"t": range(4)})
    assert (call.answer.member_epoch, has(call)) == (2, {"t": [0, 1]})
    assert has(rig.beat("b", 3, owned={})) is None
    assert rig.beat("a", 2, owned={"t": range(4)}).answer.member_epoch == 2
    assert rig.beat("a", 2).answer.member_epoch == 2, "it has not said that it gave them up"
    assert rig.beat("a", 2, owned={"t": [0, 1]}).answer.member_epoch == 3
    assert has(rig.beat("b", 3, owned={})) == {"t": [2, 3]}
    assert rig.modern_state == "Stable"


def test_what_a_member_leaves_is_given_at_once(rig):
    rig.enter("a")
    rig.enter("b")
    rig.settle("a", "b")
    assert rig.beat("a", -1).answer.member_epoch == -1
    call = rig.beat("b", 3, owned={"t": [2, 3]})
    assert (call.answer.member_epoch, has(call)) == (4, {"t": [0, 1, 2, 3]})
    assert rig.beat("a", 3).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_reads_something_else(rig):
    rig.change_topics(t=2, u=2)
    rig.enter("m", names=["t", "u"])
    call = rig.beat("m", 2, names=["u"], owned={"t": [0, 1], "u": [0, 1]})
    assert (call.answer.member_epoch, has(call)) == (2, {"u": [0, 1]})
    call = rig.beat("m", 2, owned={"u": [0, 1]})
    assert (call.answer.member_epoch, has(call)) == (3, None)


def test_assignments_are_not_made_all_the_time():
    rig = ModernRig(assignment_interval=1_000)
    rig.enter("a")
    call = rig.enter("b")
    assert (call.answer.member_epoch, has(call)) == (2, {})
    assert rig.modern_state == "Assigning"
    rig.pass_time(1_000)
    assert has(rig.beat("a", 2, owned={"t": range(4)})) == {"t": [0, 1]}
    assert rig.modern_state == "Reconciling"


# ---- epochs


def test_old_and_unknown_epochs_are_fenced(rig):
    rig.enter("a")
    rig.enter("b")
    rig.settle("a", "b")
    assert rig.beat("a", 4, owned={}).error is ErrorCode.FENCED_MEMBER_EPOCH
    rig.enter("c")
    rig.settle("a", "b", "c")
    assert rig.epoch("a") == 4
    assert rig.beat("a", 2, owned={}).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert rig.enter("a").answer.member_epoch == 4


def test_the_epoch_before_is_taken_if_the_answer_may_be_lost(rig):
    rig.enter("a")
    rig.change_topics(t=5)
    rig.beat("a", 2, owned={"t": range(4)})
    assert rig.beat("a", 2, owned={"t": range(4)}).answer.member_epoch == 3
    assert rig.beat("a", 2).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert rig.beat("a", 2, owned={"t": [7]}).error is ErrorCode.FENCED_MEMBER_EPOCH


# ---- time


def test_a_member_that_is_not_heard_of_is_removed(rig):
    rig.enter("a")
    rig.enter("b")
    rig.pass_time(30_000)
    rig.beat("b", 3)
    rig.pass_time(20_000)
    assert rig.beat("a", 2).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert has(rig.beat("b", 3, owned={})) == {"t": [0, 1, 2, 3]}


def test_a_member_that_does_not_give_up_in_time_is_removed(rig):
    rig.enter("a", rebalance=10_000)
    rig.enter("b")
    rig.beat("a", 2, owned={"t": range(4)})
    rig.pass_time(9_000)
    assert rig.beat("a", 2, owned={"t": range(4)}).error is ErrorCode.NONE
    rig.pass_time(2_000)
    assert rig.beat("a", 2, owned={"t": range(4)}).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert has(rig.beat("b", 3, owned={})) == {"t": [0, 1, 2, 3]}


def test_a_group_without_members_has_no_deadlines(rig):
    rig.enter("a")
    rig.pass_time(50_000)
    assert (rig.modern_state, rig.coordinator.next_deadline()) == ("Empty", None)
    assert rig.enter("a").answer.member_epoch == 4


# ---- regular expressions


def test_a_regular_expression():
    rig = ModernRig(topics_of(orders=1, other=1))
    call = rig.enter("m", names=None, regex="or.*")
    assert has(call) == {"orders": [0]}
    rig.change_topics(orders=1, other=1, orbits=1)
    assert has(rig.beat("m", 2, owned={"orders": [0]})) == {"orbits": [0], "orders": [0]}
    assert rig.records[GROUP][RecordKey(Kind.REGEX, "or.*")].topics == ("orbits", "orders")
    call = rig.beat("m", 3, names=["other"], regex="", owned={})
    assert has(call) == {"other": [0]}
    assert RecordKey(Kind.REGEX, "or.*") not in rig.records[GROUP]


def test_a_regular_expression_that_is_none(rig):
    assert rig.enter("m", names=None, regex="(").error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert rig.describe_modern().error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_regular_expression_ends_with_its_last_member():
    rig = ModernRig(topics_of(orders=2))
    rig.enter("a", names=None, regex="or.*")
    rig.enter("b", names=None, regex="or.*")
    rig.beat("a", -1)
    assert RecordKey(Kind.REGEX, "or.*") in rig.records[GROUP]
    rig.beat("b", -1)
    assert RecordKey(Kind.REGEX, "or.*") not in rig.records[GROUP]


# ---- static members


def test_a_static_member_comes_back_to_what_it_had(rig):
    rig.enter("a", instance="i")
    assert rig.enter("b", instance="i").error is ErrorCode.UNRELEASED_INSTANCE_ID
    assert rig.beat("a", -2, instance="i").answer.member_epoch == -2
    call = rig.enter("b", instance="i")
    assert (call.answer.member_epoch, has(call)) == (2, {"t": [0, 1, 2, 3]})
    assert rig.beat("a", 2, instance="i").error is ErrorCode.FENCED_INSTANCE_ID
    assert rig.beat("a", -1, instance="i").error is ErrorCode.FENCED_INSTANCE_ID
    assert rig.beat("a", 2).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.beat("b", 2, instance="x").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert [one.member_id for one in rig.describe_modern().members] == ["b"]


def test_a_static_member_that_does_not_come_back(rig):
    rig.enter("a", instance="i")
    rig.beat("a", -2, instance="i")
    rig.pass_time(45_000)
    assert rig.modern_state == "Empty"
    assert rig.enter("b", instance="i").answer.member_epoch == 4
