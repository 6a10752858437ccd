"""`__consumer_offsets` records against bytes that Kafka's own classes wrote."""

from __future__ import annotations

import base64
import json

import pytest

from pyspark_log.storage.groups.log import records
from pyspark_log.storage.groups.log.metadata import assigned_partitions, decode_group_value, subscribed_topics
from pyspark_log.storage.groups.log.records import GroupMetadataKey, OffsetCommitKey, OffsetCommitValue
from pyspark_log.types import TopicPartition
from tests.paths import KAFKA_JAVA

GOLDEN = json.loads((KAFKA_JAVA / "coordinator-records.json").read_text(encoding="utf-8"))


def golden(name: str, version: int) -> tuple[dict, bytes]:
    (found,) = (m for m in GOLDEN["messages"] if m["name"] == name and m["version"] == version)
    return found["fields"], bytes.fromhex(found["hex"])


@pytest.mark.parametrize("version", [0, 1])
def test_offset_key_is_read_in_both_versions(version):
    fields, data = golden("OffsetCommitKey", version)
    assert records.decode_key(data) == OffsetCommitKey(**fields)


def test_offset_key_is_written_as_kafka_writes_it():
    fields, data = golden("OffsetCommitKey", 1)
    assert records.encode_offset_key(OffsetCommitKey(**fields)) == data


@pytest.mark.parametrize("version", range(5))
def test_offset_value_is_read_in_every_version(version):
    fields, data = golden("OffsetCommitValue", version)
    assert records.decode_offset_value(data) == OffsetCommitValue(
        offset=fields["offset"],
        leader_epoch=fields.get("leaderEpoch", -1),
        metadata=fields["metadata"],
        commit_timestamp=fields["commitTimestamp"],
        expire_timestamp=fields.get("expireTimestamp", -1),
    )


def test_offset_value_is_written_as_kafka_writes_it():
    fields, data = golden("OffsetCommitValue", 3)
    value = OffsetCommitValue(fields["offset"], fields["leaderEpoch"], fields["metadata"], fields["commitTimestamp"])
    assert records.encode_offset_value(value) == data


def test_an_offset_that_says_when_it_expires_is_written_as_kafka_writes_it():
    fields, data = golden("OffsetCommitValue", 1)
    value = OffsetCommitValue(
        fields["offset"], -1, fields["metadata"], fields["commitTimestamp"], fields["expireTimestamp"]
    )
    assert records.encode_offset_value(value) == data
    never = records.encode_offset_value(OffsetCommitValue(1, -1, "", 2, records.NEVER))
    assert never.hex() == "00010000000000000001000000000000000000027fffffffffffffff"


@pytest.mark.parametrize("version", range(5))
def test_members_of_a_group_are_read_in_every_version(version):
    fields, data = golden("GroupMetadataValue", version)
    found = decode_group_value(data)
    (member,), (written,) = found.members, fields["members"]
    assert (found.protocol_type, found.generation, found.protocol, found.leader, found.state_timestamp) == (
        "consumer",
        5,
        "range",
        "c-1",
        fields.get("currentStateTimestamp", -1),
    )
    assert (member.member_id, member.client_id, member.client_host) == ("c-1", "c", "/127.0.0.1")
    assert member.instance_id == written.get("groupInstanceId")
    assert member.subscription == base64.b64decode(written["subscription"])
    assert subscribed_topics(member.subscription) == ("orders", "payments")
    assert assigned_partitions(member.assignment) == tuple(TopicPartition("orders", number) for number in range(3))
    for length in range(len(data)):
        with pytest.raises(ValueError, match=r"bytes|null"):
            decode_group_value(data[:length])


@pytest.mark.parametrize("version", range(4))
def test_a_subscription_of_any_version_says_what_is_to_be_read(version):
    fields, data = golden("ConsumerProtocolSubscription", version)
    assert list(subscribed_topics(data)) == fields["topics"]


def test_the_key_of_a_group_is_written_as_kafka_writes_it():
    fields, data = golden("GroupMetadataKey", 2)
    assert records.encode_group_key(fields["group"]) == data


def test_tagged_fields_of_a_newer_writer_are_skipped():
    _, data = golden("OffsetCommitValue", 4)
    tagged = data[:-1] + bytes.fromhex("02 00 03 616263 8101 01 ff")
    assert records.decode_offset_value(tagged) == records.decode_offset_value(data)


def test_group_key_is_recognised():
    fields, data = golden("GroupMetadataKey", 2)
    assert records.decode_key(data) == GroupMetadataKey(fields["group"])


@pytest.mark.parametrize("version", [3, 8, 15, 0x7FFF])
def test_keys_of_later_kinds_are_skipped_without_being_parsed(version):
    assert records.decode_key(version.to_bytes(2, "big") + b"\xff\xff\xff") is None


@pytest.mark.parametrize("name", ["OffsetCommitKey", "OffsetCommitValue"])
def test_a_cut_off_record_is_a_value_error_at_every_length(name):
    decode = records.decode_key if name == "OffsetCommitKey" else records.decode_offset_value
    for version in range(5 if name == "OffsetCommitValue" else 2):
        _, data = golden(name, version)
        for length in range(len(data)):
            with pytest.raises(ValueError, match="bytes"):
                decode(data[:length])


@pytest.mark.parametrize("data", ["ffff", "0001ffff", "00010001ff0000"])
def test_a_key_that_no_kafka_writes_is_a_value_error(data):
    with pytest.raises(ValueError):  # noqa: PT011 - a bad version, a null where none may be, bad UTF-8
        records.decode_key(bytes.fromhex(data))


@pytest.mark.parametrize("version", [-1, 5])
def test_an_offset_value_of_unknown_version_is_a_value_error(version):
    with pytest.raises(ValueError, match=f"version {version}"):
        records.decode_offset_value(version.to_bytes(2, "big", signed=True) + bytes(30))


@pytest.mark.parametrize("case", GOLDEN["group_partitions"], ids=lambda case: case["id"])
def test_groups_are_placed_as_kafka_places_them(case):
    assert records.java_string_hash(case["id"]) == case["hashCode"]
    assert records.partition_for(case["id"], 50) == case["partition_of_50"]


def test_hash_counts_utf_16_units_not_characters():
    assert records.java_string_hash("\U0001f600") == 31 * 0xD83D + 0xDE00


def test_a_name_beyond_the_format_is_refused():
    with pytest.raises(ValueError, match="32768"):
        records.encode_offset_key(OffsetCommitKey("g" * 32768, "t", 0))
