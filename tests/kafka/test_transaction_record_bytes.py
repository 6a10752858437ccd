"""The records of `__transaction_state`, and markers, are the bytes that Kafka's own classes write."""

import json
import random
import shutil

import pytest

from pyspark_log.storage.transactions import TransactionMetadata, TransactionState
from pyspark_log.storage.transactions.records import decode_key, decode_value, encode_key, encode_value
from pyspark_log.types import TopicPartition
from tests.kafka.test_message_bytes import bytes_of

pytestmark = pytest.mark.usefixtures("kafka")

PACKAGE = "org.apache.kafka.coordinator.transaction.generated"


def drawn(chance):
    """A transactional id's metadata, drawn by chance."""
    partitions = {TopicPartition(chance.choice(["a", "b\u20ac", "c"]), chance.randrange(300)) for _ in range(5)}
    state = chance.choice(list(TransactionState))
    return TransactionMetadata(
        chance.choice([0, 7, 2**62]),
        chance.choice([0, 1, 0x7FFE]),
        chance.choice([1, 60_000, 900_000]),
        state,
        frozenset() if state is TransactionState.EMPTY else frozenset(chance.sample(sorted(partitions), 2)),
        chance.choice([0, 1_800_000_000_000]),
        chance.choice([-1, 1_800_000_000_000]),
        chance.choice([-1, 5]),
        chance.choice([-1, 2**40]),
        chance.choice([0, 2]),
    )


def value_json(one):
    """Kafka's form of it."""
    topics = {}
    for at in sorted(one.partitions):
        topics.setdefault(at.topic, []).append(at.partition)
    partitions = [{"topic": topic, "partitionIds": numbers} for topic, numbers in topics.items()]
    return {
        "producerId": one.producer_id, "previousProducerId": one.previous_id, "nextProducerId": one.next_id,
        "producerEpoch": one.epoch, "nextProducerEpoch": -1, "transactionTimeoutMs": one.timeout,
        "transactionStatus": int(one.state),
        "transactionPartitions": None if one.state is TransactionState.EMPTY else partitions,
        "transactionLastUpdateTimestampMs": one.updated, "transactionStartTimestampMs": one.started,
        "clientTransactionVersion": one.client_version,
    }  # fmt: skip


@pytest.mark.skipif(not shutil.which("javac"), reason="compiles a program: needs a JDK")
def test_records_are_written_as_kafka_writes_them():
    chance = random.Random(1)
    cases = [drawn(chance) for _ in range(200)]
    name = {"transactionalId": "t\u20ac"}
    lines = [f"{PACKAGE}.TransactionLogKey 0 {json.dumps(name)}\n"]
    lines += [f"{PACKAGE}.TransactionLogValue 1 {json.dumps(value_json(one))}\n" for one in cases]
    key, *values = bytes_of(lines)
    assert encode_key("t\u20ac").hex() == "0000" + key
    assert decode_key(encode_key("t\u20ac")) == "t\u20ac"
    for one, written in zip(cases, values, strict=True):
        assert encode_value(one).hex() == "0001" + written, one
        assert decode_value(encode_value(one)) == one
    # What brokers before KIP-915 have written.
    old = [f"{PACKAGE}.TransactionLogValue 0 {json.dumps(_untagged(value_json(one)))}\n" for one in cases]
    for one, written in zip(cases, bytes_of(old), strict=True):
        found = decode_value(bytes.fromhex("0000" + written))
        assert (found.producer_id, found.epoch, found.state, found.partitions, found.started) == (
            one.producer_id, one.epoch, one.state, one.partitions, one.started,
        )  # fmt: skip


def _untagged(fields):
    return fields | {"previousProducerId": -1, "nextProducerId": -1, "clientTransactionVersion": 0}
