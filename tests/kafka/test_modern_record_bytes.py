"""The records of groups of KIP-848 are the bytes that Kafka's own classes write."""

import base64
import json
import random
import shutil

import pytest

from pyspark_log.group_records import (
    Current,
    GroupEpoch,
    Kind,
    MatchedTopics,
    MemberMetadata,
    MemberState,
    RecordKey,
    Target,
    TargetEpoch,
)
from pyspark_log.storage.groups.log.modern_records import decode_key, decode_value, encode_key, encode_value
from tests.kafka.test_message_bytes import bytes_of

pytestmark = pytest.mark.usefixtures("kafka")

PACKAGE = "org.apache.kafka.coordinator.group.generated"
NAMES = {
    Kind.GROUP: "ConsumerGroupMetadata", Kind.MEMBER: "ConsumerGroupMemberMetadata",
    Kind.TARGET_EPOCH: "ConsumerGroupTargetAssignmentMetadata", Kind.TARGET: "ConsumerGroupTargetAssignmentMember",
    Kind.CURRENT: "ConsumerGroupCurrentMemberAssignment", Kind.REGEX: "ConsumerGroupRegularExpression",
}  # fmt: skip


class Drawn:
    """Values drawn from a seed."""

    def __init__(self, seed):
        self.chance = random.Random(seed)

    def text(self):
        return "".join(self.chance.choices("aé\u20ac-", k=self.chance.choice([0, 1, 9, 200])))

    def maybe_text(self):
        return self.chance.choice([None, self.text()])

    def number(self):
        return self.chance.choice([-2, -1, 0, 1, 300, 2**31 - 1])

    def long(self):
        return self.chance.choice([-(2**63), 0, 1, 2**40])

    def topic_ids(self):
        return [self.chance.randbytes(16) for _ in range(self.chance.choice([0, 1, 3]))]

    def numbers(self):
        return sorted(self.chance.sample(range(1000), self.chance.choice([0, 1, 5, 200])))

    def texts(self):
        return tuple(self.text() for _ in range(self.chance.choice([0, 1, 4])))

    def owned(self):
        return {one: {number: self.number() for number in [*self.numbers(), 1000]} for one in self.topic_ids()}

    def value(self, kind):
        if kind is Kind.GROUP:
            return GroupEpoch(self.number(), self.long())
        if kind is Kind.TARGET_EPOCH:
            return TargetEpoch(self.number(), self.long())
        if kind is Kind.TARGET:
            return Target({one: tuple(self.numbers()) for one in self.topic_ids()})
        if kind is Kind.REGEX:
            return MatchedTopics(self.texts(), self.long(), self.long())
        if kind is Kind.CURRENT:
            state = self.chance.choice(list(MemberState))
            return Current(self.number(), self.number(), state, self.owned(), self.owned())
        return MemberMetadata(
            self.maybe_text(), self.maybe_text(), self.text(), self.text(), self.texts(), self.maybe_text(),
            self.number(), self.maybe_text(),
        )  # fmt: skip


def key_json(key):
    """Kafka's form of a key."""
    name = {Kind.REGEX: "regularExpression"}.get(key.kind, "memberId")
    return {"groupId": "g\u20ac"} | ({} if key.kind in (Kind.GROUP, Kind.TARGET_EPOCH) else {name: key.name})


def topics(owned):
    """Kafka's form of partitions, with epochs if there are some."""
    return [
        {"topicId": base64.urlsafe_b64encode(one).decode().rstrip("="), "partitions": list(numbers)}
        | ({"assignmentEpochs": list(numbers.values())} if isinstance(numbers, dict) else {})
        for one, numbers in owned.items()
    ]


def value_json(value):
    """Kafka's form of a value."""
    match value:
        case GroupEpoch():
            return {"epoch": value.epoch, "metadataHash": value.metadata_hash}
        case TargetEpoch():
            return {"assignmentEpoch": value.epoch, "assignmentTimestamp": value.timestamp}
        case Target():
            return {"topicPartitions": topics(value.partitions)}
        case MatchedTopics():
            return {"topics": value.topics, "version": value.version, "timestamp": value.timestamp}
        case Current():
            return {
                "memberEpoch": value.epoch, "previousMemberEpoch": value.previous_epoch, "state": int(value.state),
                "assignedPartitions": topics(value.assigned), "partitionsPendingRevocation": topics(value.revoking),
            }  # fmt: skip
        case MemberMetadata():
            return {
                "instanceId": value.instance_id, "rackId": value.rack_id, "clientId": value.client_id,
                "clientHost": value.client_host, "subscribedTopicNames": value.topics,
                "subscribedTopicRegex": value.regex, "rebalanceTimeoutMs": value.rebalance_timeout,
                "serverAssignor": value.assignor, "classicMemberMetadata": None,
            }  # fmt: skip


@pytest.mark.skipif(not shutil.which("javac"), reason="compiles a program: needs a JDK")
def test_records_are_written_as_kafka_writes_them():
    drawn = Drawn(1)
    cases = [(RecordKey(kind, drawn.text()), drawn.value(kind)) for kind in Kind for _ in range(30)]
    cases = [(key if "memberId" in key_json(key) or key.kind is Kind.REGEX else RecordKey(key.kind), value)
             for key, value in cases]  # fmt: skip
    lines = []
    for key, value in cases:
        lines.append(f"{PACKAGE}.{NAMES[key.kind]}Key 0 {json.dumps(key_json(key))}\n")
        lines.append(f"{PACKAGE}.{NAMES[key.kind]}Value 0 {json.dumps(value_json(value))}\n")
    written = iter(bytes_of(lines))
    for key, value in cases:
        # The version comes before what the classes write: a key's is its kind.
        assert encode_key("g\u20ac", key).hex() == f"{key.kind:04x}" + next(written), key
        assert encode_value(value).hex() == "0000" + next(written), value
        assert decode_key(encode_key("g\u20ac", key)) == ("g\u20ac", key)
        assert decode_value(key.kind, encode_value(value)) == value
