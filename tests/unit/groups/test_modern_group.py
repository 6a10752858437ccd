"""Groups whose members have records of their own (KIP-848), and those that are not understood, are never empty."""

from __future__ import annotations

import base64
import json

import pytest
from broker_tools import add
from click.testing import CliRunner
from group_tools import append
from record_tools import Record, build

from pyspark_log import Store
from pyspark_log.cli.main import main
from pyspark_log.errors import CorruptRecordError, GroupNotEmptyError, UnknownGroupError
from pyspark_log.storage.groups.log.metadata import GroupState
from pyspark_log.storage.groups.log.records import OffsetCommitKey, encode_offset_key
from pyspark_log.storage.groups.offsets import OffsetsLog
from pyspark_log.types import TopicPartition
from tests.store_tools import store_with

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
KIP_848, KIP_1071 = "consumer (KIP-848)", "streams (KIP-1071)"


def text(value):
    return len(value).to_bytes(2, "big") + value.encode()


def compact(value):
    return b"\0" if value is None else bytes([len(value) + 1]) + value.encode()


def key(kind, group, *more):
    return kind.to_bytes(2, "big") + b"".join(map(text, (group, *more)))


def epoch(number):
    return b"\0\0" + number.to_bytes(4, "big") + b"\0"


def member(*topics, instance=None, pattern=None):
    names = bytes([len(topics) + 1]) + b"".join(map(compact, topics))
    head = compact(instance) + compact(None) + compact("client") + compact("/127.0.0.1")
    return b"\0\0" + head + names + compact(pattern) + bytes(4) + compact("uniform") + b"\0"


def current(number, state, topic_id, *partitions):
    numbers = bytes([len(partitions) + 1]) + b"".join(one.to_bytes(4, "big") for one in partitions)
    assigned = b"\2" + base64.urlsafe_b64decode(topic_id + "==") + numbers + b"\0" if partitions else b"\1"
    return b"\0\0" + number.to_bytes(4, "big") * 2 + bytes([state]) + assigned + b"\1" + b"\0"


store = store_with(partitions=2, settings={"offsets.topic.num.partitions": "2"})


def put(store, *pairs):
    for one, value in pairs:
        append(store, "g", one, value)


def run(store, *arguments):
    result = CliRunner().invoke(main, ["--store", store.path, "groups", *arguments])
    return result.exit_code, result.stdout, result.stderr


def records(store):
    """The records of a group with two members, each of which has one partition of `t`."""
    topic_id = store.describe_topic("t").topic_id
    return {
        key(3, "g"): epoch(4),
        key(6, "g"): epoch(4),
        key(4, "g"): b"\0\0\1\0",
        key(5, "g", "m1"): member("t", instance="i1"),
        key(8, "g", "m1"): current(4, 0, topic_id, 0),
        key(5, "g", "m2"): member("t", "u"),
        key(8, "g", "m2"): current(4, 0, topic_id, 1),
    }


def test_members_and_state_are_what_the_records_say(store):
    log = OffsetsLog(store)
    log.commit("g", {T0: 3})
    put(store, *records(store).items())
    assert (log.groups(), log.fetch("g")[T0].offset) == (["g"], 3)
    found = log.describe("g")
    assert (found.state, found.protocol_type, found.topics) == (GroupState.STABLE, KIP_848, {"t", "u"})
    assert [(one.member_id, one.instance_id, one.client_id, one.client_host) for one in found.members] == [
        ("m1", "i1", "client", "/127.0.0.1"),
        ("m2", None, "client", "/127.0.0.1"),
    ]
    assert [one.partitions for one in found.members] == [(T0,), (T1,)]
    (state,) = json.loads(run(store, "describe", "g", "--state", "--json")[1])
    assert (state["state"], state["protocol_type"], state["members"]) == ("Stable", KIP_848, 2)
    rows = json.loads(run(store, "describe", "g", "--json")[1])
    assert [(row["partition"], row["current_offset"], row["consumer_id"]) for row in rows] == [
        (0, 3, "m1"),
        (1, None, "m2"),
    ]
    # The states that a group goes through, by Kafka's rules.
    put(store, (key(3, "g"), epoch(5)))
    assert log.describe("g").state is GroupState.ASSIGNING
    put(store, (key(6, "g"), epoch(5)))
    assert log.describe("g").state is GroupState.RECONCILING
    topic_id = store.describe_topic("t").topic_id
    put(store, (key(8, "g", "m1"), current(5, 0, topic_id, 0)), (key(8, "g", "m2"), current(5, 1, topic_id, 1)))
    assert log.describe("g").state is GroupState.RECONCILING
    put(store, (key(8, "g", "m2"), current(5, 0, "A" * 21 + "Q", 7)))
    assert log.describe("g").state is GroupState.STABLE
    assert log.describe("g").members[1].partitions == (TopicPartition("A" * 21 + "Q", 7),)
    # A member that subscribes by a pattern may read anything.
    put(store, (key(5, "g", "m2"), member(pattern="t.*")))
    assert log.describe("g").topics is None


def test_a_group_with_members_is_neither_deleted_nor_reset_nor_expires(store):
    log = OffsetsLog(store, clock=lambda: 1.0)
    log.commit("g", {T0: 0, T1: 0})
    held = records(store)
    put(store, *held.items())
    with pytest.raises(GroupNotEmptyError, match="2 members"):
        log.delete_group("g")
    with pytest.raises(GroupNotEmptyError, match="2 members"):
        log.delete_offsets("g", [T0])
    code, _, told = run(store, "reset-offsets", "--group", "g", "--all-topics", "--to-latest", "--execute")
    assert (code, "2 members" in told) == (1, True)
    assert OffsetsLog(store).expire() == 0
    assert set(log.fetch("g")) == {T0, T1}
    # When the members have left.
    put(store, *((one, None) for one in held if one[1] in (5, 8)))
    assert (log.describe("g").state, log.describe("g").members) == (GroupState.EMPTY, ())
    assert run(store, "reset-offsets", "--group", "g", "--all-topics", "--to-latest", "--execute")[0] == 0
    log.delete_group("g")
    assert (log.groups(), OffsetsLog(Store.open(store.path)).groups()) == ([], [])
    with pytest.raises(UnknownGroupError):
        log.delete_group("g")


@pytest.mark.parametrize("kind", range(17, 25))
def test_the_state_of_a_streams_group_is_unknown(store, kind):
    log = OffsetsLog(store)
    log.commit("g", {T0: 3})
    put(store, (key(kind, "g"), b"\0\0what it is"))
    assert (log.describe("g").state, log.describe("g").protocol_type) == (GroupState.UNKNOWN, KIP_1071)
    assert json.loads(run(store, "list", "--state=Unknown", "--json")[1]) == [
        {"group": "g", "state": "Unknown", "protocol_type": KIP_1071}
    ]
    assert json.loads(run(store, "describe", "g", "--state", "--json")[1])[0]["members"] is None
    assert run(store, "describe", "g")[0] == 0
    for refused in (lambda: log.delete_group("g"), lambda: log.delete_offsets("g", [T0])):
        with pytest.raises(GroupNotEmptyError, match="may have members"):
            refused()
    put(store, (key(kind, "g"), None))
    assert log.describe("g").state is GroupState.EMPTY


@pytest.mark.parametrize(("kind", "value"), [(3, b"\0\0\1"), (5, b"\0\1" + bytes(40)), (6, b""), (8, b"\0\0\0")])
def test_records_that_are_not_understood_make_no_group_empty(store, kind, value):
    whose = ["m1"] if kind in (5, 8) else []
    OffsetsLog(store).commit("g", {T0: 3})
    put(store, *records(store).items(), (key(kind, "g", *whose), value))
    found = OffsetsLog(store).describe("g")
    assert (found.state, found.protocol_type, len(found.members)) == (GroupState.UNKNOWN, KIP_848, 2)
    assert run(store, "describe", "g", "--members")[0] == 0


def test_the_folder_of_a_broker(tmp_path):
    """Without any committed offset: the group was shown as if there were none."""
    root = tmp_path / "logs"
    root.mkdir()
    pairs = [(key(3, "g"), epoch(1)), (key(5, "g", "m"), member("t")), (key(11, "shared"), epoch(1))]
    pairs += [(encode_offset_key(OffsetCommitKey("g", "t", 0)), None)]
    add(root / "__consumer_offsets-0", 0, build([Record(one, value, 7) for one, value in pairs]))
    store = Store.open(root)
    assert OffsetsLog(store).groups() == ["g"]
    assert OffsetsLog(store).describe("g").state is GroupState.ASSIGNING
    code, told, _ = run(store, "list", "--state")
    assert (code, [line.split("  ") for line in told.splitlines()][1][0]) == (0, "g")
    add(root / "__consumer_offsets-0", 0, (4).to_bytes(8, "big") + build([Record(b"\0\5\0\x09g", b"v", 7)])[8:])
    with pytest.raises(CorruptRecordError, match="offset 4 is not a group record"):
        OffsetsLog(store).groups()
