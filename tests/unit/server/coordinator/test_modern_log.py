"""Groups of KIP-848 and their log: writes that fail, loading, and groups that change their kind."""

import pytest
from group_rig import subscription
from modern_rig import GROUP, has, topic_id

from pyspark_log.group_records import Current, GroupEpoch, Kind, MemberState, RecordKey, TargetEpoch
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.messages import ListGroupsRequest

T = topic_id("t")


def listed(rig, *types):
    found = rig.coordinator.list_groups(ListGroupsRequest(types_filter=list(types)))
    return [(one.group_id, one.protocol_type, one.group_state, one.group_type) for one in found]


# ---- writes that fail


def test_a_join_that_cannot_be_stored_is_repeated(rig):
    rig.hold = True
    call = rig.enter("m")
    rig.write(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert call.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    rig.hold = False
    again = rig.enter("m")
    assert (again.error, has(again)) == (ErrorCode.NONE, {"t": [0, 1, 2, 3]})
    assert {key.kind for key in rig.records[GROUP]} == set(Kind) - {Kind.REGEX}


def test_what_is_in_doubt_is_stored_before_an_answer(rig):
    rig.enter("a")
    rig.hold = True
    rig.beat("a", -1)
    call = rig.enter("b")
    failed = rig.unwritten.pop(0)
    rig.take(rig.coordinator.stored(failed.ticket, ErrorCode.NOT_ENOUGH_REPLICAS, rig.now))
    kept = rig.unwritten.pop(0)
    rig.keep(kept)
    rig.take(rig.coordinator.stored(kept.ticket, ErrorCode.NONE, rig.now))
    assert call.answer is None
    assert RecordKey(Kind.CURRENT, "a") in rig.records[GROUP]
    rig.write()
    assert has(call) == {"t": [0, 1, 2, 3]}
    assert RecordKey(Kind.CURRENT, "a") not in rig.records[GROUP]


def test_a_group_that_another_server_has(rig):
    rig.hold = True
    call = rig.enter("m")
    rig.take(rig.coordinator.unload(GROUP))
    assert call.error is ErrorCode.NOT_COORDINATOR
    rig.write()
    assert listed(rig) == []


# ---- loading


def test_members_outlive_a_restart(rig):
    rig.enter("a")
    rig.enter("b")
    rig.settle("a", "b")
    before = rig.describe_modern()
    rig.restart()
    assert rig.describe_modern() == before
    assert rig.beat("a", 3).error is ErrorCode.NONE
    rig.pass_time(45_000)
    assert rig.modern_state == "Empty"


def test_a_member_that_is_giving_up_has_its_time_after_a_restart(rig):
    rig.enter("a", rebalance=10_000)
    rig.enter("b")
    rig.beat("a", 2, owned={"t": range(4)})
    rig.restart()
    rig.pass_time(11_000)
    assert rig.beat("a", 2).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_two_owners_in_the_log_are_removed(rig):
    """The first has given up what the second got, but that was not stored."""
    rig.enter("a")
    rig.enter("b")
    rig.enter("c")
    twice = Current(4, 3, MemberState.STABLE, {T: {0: 4}}, {})
    rig.records[GROUP][RecordKey(Kind.CURRENT, "b")] = twice
    rig.restart()
    assert [one.member_id for one in rig.describe_modern().members] == ["c"]
    assert has(rig.beat("c", 4, owned={})) == {"t": [0, 1, 2, 3]}
    assert RecordKey(Kind.CURRENT, "a") not in rig.records[GROUP]


def test_epochs_in_the_log_that_are_ahead(rig):
    rig.enter("a")
    rig.records[GROUP][RecordKey(Kind.TARGET_EPOCH)] = TargetEpoch(7)
    rig.restart()
    assert rig.beat("a", 2, owned={"t": range(4)}).answer.member_epoch == 8
    assert rig.records[GROUP][RecordKey(Kind.GROUP)].epoch == 8


def test_records_of_no_member(rig):
    rig.enter("a")
    rig.records[GROUP][RecordKey(Kind.CURRENT, "b")] = Current(2, 1, MemberState.STABLE, {topic_id("u"): {0: 2}}, {})
    rig.restart()
    rig.beat("a", 2)
    assert RecordKey(Kind.CURRENT, "b") not in rig.records[GROUP]


def test_a_group_is_loaded_once(rig):
    rig.enter("a")
    with pytest.raises(ValueError, match="loaded already"):
        rig.coordinator.load_modern(GROUP, {}, rig.now)
    with pytest.raises(ValueError, match="loaded already"):
        rig.coordinator.load(GROUP, None, rig.now)


# ---- the two kinds


def test_an_empty_classic_group_becomes_modern(rig):
    [member] = rig.start(1)
    assert rig.enter("m").error is ErrorCode.GROUP_ID_NOT_FOUND
    rig.leave(member)
    assert rig.enter("m").error is ErrorCode.NONE
    assert (listed(rig), GROUP in rig.log) == ([(GROUP, "consumer", "Stable", "consumer")], False)
    assert rig.describe().error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_conversion_that_cannot_be_stored_is_repeated(rig):
    rig.leave(*rig.start(1))
    rig.hold = True
    call = rig.enter("m")
    rig.write(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert (call.error, GROUP in rig.log) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, True)
    rig.hold = False
    assert rig.enter("m").error is ErrorCode.NONE
    assert GROUP not in rig.log


def test_an_empty_modern_group_becomes_classic(rig):
    rig.enter("m")
    assert rig.join(version=3).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    rig.beat("m", -1)
    assert rig.join("stranger").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert listed(rig, "consumer") == [(GROUP, "consumer", "Empty", "consumer")]
    rig.start(1, protocols=[("range", subscription("t"))])
    assert listed(rig) == [(GROUP, "consumer", "Stable", "classic")]
    assert rig.records[GROUP] == {}


def test_the_offsets_of_a_modern_group_keep_the_classic_one(rig):
    rig.enter("m")
    rig.beat("m", -1)
    rig.new_id(session=10_000)
    rig.pass_time(20_000)
    assert [one[3] for one in listed(rig)] == ["classic"]


def test_a_modern_group_is_deleted(rig):
    rig.enter("m")
    call = rig.join  # a modern group with members
    assert delete(rig) is ErrorCode.NON_EMPTY_GROUP
    rig.beat("m", -1)
    rig.hold = True
    answer = delete(rig)
    assert (answer, listed(rig)) == (None, [])
    [store] = rig.unwritten
    assert (store.deletes, set(store.records.values())) == (True, {None})
    rig.write(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert [one[2] for one in listed(rig)] == ["Empty"]
    rig.hold = False
    assert delete(rig) is ErrorCode.NONE
    assert rig.records[GROUP] == {}
    assert call is not None


def delete(rig):
    token = Answer()
    rig.take(rig.coordinator.delete(token, GROUP))
    return token.answer


class Answer:
    """What comes of a deletion."""

    version, answer = 0, None


# ---- commits


def test_commits_with_epochs(rig):
    rig.enter("a")
    rig.enter("b")
    rig.settle("a", "b")
    assert rig.commit(3, "a") is ErrorCode.NONE
    assert rig.commit(4, "a") is ErrorCode.STALE_MEMBER_EPOCH
    assert rig.commit(2, "a") is ErrorCode.STALE_MEMBER_EPOCH
    assert rig.commit(2, "a", partitions=[("t", 0)]) is ErrorCode.NONE, "it has had that since epoch 2"
    assert rig.commit(2, "a", partitions=[("t", 3)]) is ErrorCode.STALE_MEMBER_EPOCH
    assert rig.commit(2, "b", partitions=[("t", 3)]) is ErrorCode.STALE_MEMBER_EPOCH, "it has it since epoch 3"
    assert rig.commit(3, "c") is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.commit(3, "a", version=8) is ErrorCode.UNSUPPORTED_VERSION
    assert rig.commit() is ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.commit(transactional=True) is ErrorCode.NONE
    assert rig.commit(2, "a", transactional=True) is ErrorCode.ILLEGAL_GENERATION


def test_commits_of_a_group_without_members(rig):
    rig.enter("a")
    rig.beat("a", -1)
    assert rig.commit() is ErrorCode.NONE
    assert rig.commit(2, "a") is ErrorCode.UNKNOWN_MEMBER_ID


def test_fetches_with_epochs(rig):
    rig.enter("a")
    check = rig.coordinator.check_fetch
    assert check(GROUP, None, -1) is ErrorCode.NONE
    assert check(GROUP, "a", 2) is ErrorCode.NONE
    assert check(GROUP, "a", 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert check(GROUP, "b", 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert check("other", "b", 2) is ErrorCode.NONE


def test_offsets_of_topics_that_are_read_are_not_deleted(rig):
    rig.enter("a")
    assert rig.coordinator.check_offset_delete(GROUP) is ErrorCode.NONE
    assert rig.coordinator.subscribes(GROUP, "t")
    assert not rig.coordinator.subscribes(GROUP, "u")


def test_an_administrator_removes_a_static_member(rig):
    rig.enter("a", instance="i")
    answer = rig.leave(("", "i"), ("", "j"), ("x", None))
    assert [one.error_code for one in answer.members] == [0, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID]
    assert rig.records[GROUP][RecordKey(Kind.GROUP)] == GroupEpoch(3, 0)
