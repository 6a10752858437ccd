"""Which commits of offsets a group takes, and whose topics they are."""

import pytest
from group_rig import RANGE, SESSION, subscription

from pyspark_log.kafka.error_codes import ErrorCode


def test_members_commit_in_their_generation(rig):
    one, two = rig.start(2)
    assert rig.commit(1, one) is ErrorCode.NONE
    assert rig.commit(1, two) is ErrorCode.NONE
    assert rig.commit(0, one) is ErrorCode.ILLEGAL_GENERATION
    assert rig.commit(2, one) is ErrorCode.ILLEGAL_GENERATION
    assert rig.commit(-1, one) is ErrorCode.ILLEGAL_GENERATION
    assert rig.commit(1, "stranger") is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.commit(1, "") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_commits(rig):
    (one,) = rig.start_static("a")
    assert rig.commit(1, one, "a") is ErrorCode.NONE
    assert rig.commit(1, "stranger", "a") is ErrorCode.FENCED_INSTANCE_ID
    assert rig.commit(1, one, "b") is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.commit(-1, "", "a") is ErrorCode.FENCED_INSTANCE_ID


def test_commits_in_a_rebalance(rig):
    one, two = rig.start(2)
    rig.join(one)
    assert rig.state == "PreparingRebalance"
    assert rig.commit(1, two) is ErrorCode.NONE, "it commits before it gives its partitions up"
    rig.join(two)
    assert rig.state == "CompletingRebalance"
    assert rig.commit(1, two) is ErrorCode.ILLEGAL_GENERATION
    assert rig.commit(2, two) is ErrorCode.REBALANCE_IN_PROGRESS
    assert rig.commit(2, two, transactional=True) is ErrorCode.NONE


def test_commits_without_a_member_are_for_groups_without_members(rig):
    assert rig.commit() is ErrorCode.NONE
    assert rig.state == "Empty", "it makes the group"
    (one,) = rig.start(1)
    assert rig.commit() is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.commit(transactional=True) is ErrorCode.NONE
    rig.leave(one)
    assert rig.commit() is ErrorCode.NONE
    assert rig.commit(1, one) is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.commit(2, one) is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.commit(-1, one) is ErrorCode.NONE


def test_members_do_not_commit_in_a_group_that_does_not_exist(rig):
    assert rig.commit(1, "one", version=8) is ErrorCode.ILLEGAL_GENERATION
    assert rig.commit(1, "one", version=9) is ErrorCode.GROUP_ID_NOT_FOUND
    assert rig.commit(1, "one", version=5, transactional=True) is ErrorCode.ILLEGAL_GENERATION
    assert rig.commit(1, "one", version=9, transactional=True) is ErrorCode.ILLEGAL_GENERATION
    assert rig.state == "Dead"
    assert rig.commit(transactional=True) is ErrorCode.NONE


def test_a_commit_keeps_a_session_and_that_of_a_transaction_does_not(rig):
    one, two = rig.start(2)
    rig.pass_time(SESSION - 1)
    rig.commit(1, one)
    rig.commit(1, two, transactional=True)
    rig.pass_time(1)
    assert [member.member_id for member in rig.describe().members] == [one]
    rig.pass_time(SESSION - 2)
    assert rig.commit(1, one) is ErrorCode.NONE, "also in a rebalance"
    rig.pass_time(SESSION - 1)
    assert rig.state == "PreparingRebalance"


def test_a_group_with_offsets_alone_stays(rig):
    rig.commit()
    member = rig.new_id()
    rig.leave(member)
    assert rig.state == "Empty"


# ---- topics


def test_a_group_reads_the_topics_that_its_members_subscribe_to(rig):
    calls = [
        rig.join(version=3, protocols=(("range", subscription(*topics, version=version)),))
        for topics, version in ((["t1", "t2"], 0), (["t2", "t3"], 3))
    ]
    assert rig.coordinator.subscribes("g", "other"), "it is not known yet"
    rig.pass_time(6_000)
    rig.assign(calls)
    assert [rig.coordinator.subscribes("g", topic) for topic in ("t1", "t2", "t3", "t4")] == [True, True, True, False]
    rig.restart()
    assert [rig.coordinator.subscribes("g", topic) for topic in ("t1", "t4")] == [True, False]
    one, two = (call.answer.member_id for call in calls)
    rig.leave(one)
    assert rig.coordinator.subscribes("g", "t1"), "until the next generation"
    rig.join(two, protocols=(("range", subscription("t5")),))
    assert [rig.coordinator.subscribes("g", topic) for topic in ("t1", "t5")] == [False, True]
    rig.leave(two)
    assert not rig.coordinator.subscribes("g", "t5")


@pytest.mark.parametrize("damaged", [b"", b"\0", b"\0\1\0\0\0\5", subscription("t1")[:-5]])
def test_consumers_whose_subscription_is_not_known_may_read_any_topic(rig, damaged):
    rig.start(1, protocols=(("range", damaged),))
    assert rig.coordinator.subscribes("g", "t1")
    assert rig.coordinator.subscribes("g", "t2")


def test_other_members_than_consumers_read_no_topic(rig):
    rig.start(1, protocol_type="connect", protocols=(("range", subscription("t1")),))
    assert not rig.coordinator.subscribes("g", "t1")


def test_offsets_that_may_be_deleted(rig):
    assert rig.coordinator.check_offset_delete("g") is ErrorCode.GROUP_ID_NOT_FOUND
    assert not rig.coordinator.subscribes("g", "t1")
    (one,) = rig.start(1)
    assert rig.coordinator.check_offset_delete("g") is ErrorCode.NONE
    rig.leave(one)
    assert rig.coordinator.check_offset_delete("g") is ErrorCode.NONE
    rig.start(1, group="connect", protocol_type="connect", protocols=RANGE)
    assert rig.coordinator.check_offset_delete("connect") is ErrorCode.NON_EMPTY_GROUP
