"""Kafka's own command-line tools at `pylog serve`."""

import re

import pytest
from confluent_kafka import Producer
from kafka_tools import run

from tests.store_tools import values
from tests.unit.record_tools import Record, build

pytestmark = pytest.mark.usefixtures("kafka")


@pytest.fixture
def tool(server):
    """Runs one of Kafka's tools; what it prints."""

    def call(main, *arguments, text=""):
        return run(main, "--bootstrap-server", server.bootstrap, *arguments, text=text)

    return call


def test_transactions(server, tool, store):
    """What is listed, described, and ended that hangs: records of a transaction that no coordinator knows."""
    transactions = "org.apache.kafka.tools.TransactionsCommand"
    store.create_topic("of-transactions", 1)
    settings = {"bootstrap.servers": server.bootstrap, "transactional.id": "shown", "transaction.timeout.ms": 600_000}
    producer = Producer(settings)
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("of-transactions", b"a")
    producer.flush(60)
    assert re.search(r"shown\s+1\s+\d+\s+Ongoing", tool(transactions, "list"))
    described = tool(transactions, "describe", "--transactional-id", "shown")
    assert re.search(r"shown\s.*Ongoing.*of-transactions-0", described)
    partition = ("--topic", "of-transactions", "--partition", 0)
    # Epoch, epoch of the coordinator, last sequence number, time, and where the open transaction begins.
    assert re.search(r"\t0\s+-1\s+0\s+\d+\s+0\s", tool(transactions, "describe-producers", *partition))
    producer.commit_transaction(60)
    hanging = build([Record(value=b"b")], "none", transactional=True, producer_id=7, producer_epoch=0, base_sequence=0)
    store.append_batch("of-transactions", 0, hanging)
    assert store.latest_offset("of-transactions", 0, isolation_level="read_committed") == 2
    # As its record's time is long ago.
    assert "of-transactions" in tool(transactions, "find-hanging", "--broker-id", 1)
    tool(transactions, "abort", *partition, "--start-offset", 2)
    assert store.latest_offset("of-transactions", 0, isolation_level="read_committed") == 4
    assert values(store, 0, "of-transactions", isolation_level="read_committed") == [b"a"]


def test_kafkas_probe_of_what_a_broker_can(server):
    """It makes topics of its own, which must not be there."""
    found = run(
        "org.apache.kafka.tools.ClientCompatibilityTest", "--bootstrap-server", server.bootstrap, "--topic", "probed",
        "--num-cluster-nodes", 1, "--offsets-for-times-supported", "true", "--cluster-id-supported", "true",
        "--expect-record-too-large-exception", "false", "--create-topics-supported", "true",
        "--describe-acls-supported", "true", "--describe-configs-supported", "true",
        "--idempotent-producer-supported", "true",
    )  # fmt: skip
    assert "SUCCESS." in found
