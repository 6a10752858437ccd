"""Kafka's own command-line tools at `pylog serve`."""

import re

import pytest
from confluent_kafka import Producer
from kafka_tools import run

from pyspark_log import Store
from pyspark_log.types import TopicPartition
from tests.amounts import one_in
from tests.server_tools import served_anew
from tests.unit.record_tools import Record, build

pytestmark = pytest.mark.usefixtures("kafka")

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_GROUP = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


@pytest.fixture(scope="module")
def server(kafka, tmp_path_factory):
    with served_anew(tmp_path_factory.mktemp("served")) as running:
        yield running


@pytest.fixture
def store(server):
    with Store.open(server.path) as store:
        yield store


@pytest.fixture
def tool(server):
    """Runs one of Kafka's tools; what it prints."""

    def call(main, *arguments, text=""):
        return run(main, "--bootstrap-server", server.bootstrap, *arguments, text=text)

    return call


def _values(store, topic, partition=0):
    return [row["value"] for rows in store.read(topic, partition) for row in rows.to_pylist()]


def test_topics(tool, store):
    topics = "org.apache.kafka.tools.TopicCommand"
    tool(topics, "--create", "--topic", "made", "--partitions", 3, "--config", "retention.ms=100000")
    assert store.describe_topic("made").configs == {"retention.ms": "100000"}
    assert "made" in tool(topics, "--list").split()
    described = tool(topics, "--describe", "--topic", "made")
    assert "PartitionCount: 3" in described
    assert len(re.findall(r"Leader: 1\s+Replicas: 1\s+Isr: 1", described)) == 3
    tool(topics, "--alter", "--topic", "made", "--partitions", 5)
    assert store.describe_topic("made").partitions == 5
    tool(topics, "--delete", "--topic", "made")
    assert "made" not in store.topics()


def test_configs(tool, store):
    configs = "kafka.admin.ConfigCommand"
    store.create_topic("configured", 1)
    where = ("--entity-type", "topics", "--entity-name", "configured")
    tool(configs, "--alter", *where, "--add-config", "retention.ms=5000,cleanup.policy=[compact,delete]")
    assert store.describe_topic("configured").configs == {"retention.ms": "5000", "cleanup.policy": "compact,delete"}
    described = tool(configs, "--describe", *where)
    assert "retention.ms=5000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=5000" in described
    tool(configs, "--alter", *where, "--delete-config", "retention.ms")
    assert store.describe_topic("configured").configs == {"cleanup.policy": "compact,delete"}
    assert "node.id=1" in tool(configs, "--describe", "--all", "--entity-type", "brokers", "--entity-name", "1")


@pytest.mark.parametrize("codec", one_in(4, _CODECS))
def test_the_console(tool, store, codec):
    topic = f"console-{codec}"
    lines = "".join(f"key{number}:value {number}\n" for number in range(100))
    options = (
        "--compression-codec",
        codec,
        "--reader-property",
        "parse.key=true",
        "--reader-property",
        "key.separator=:",
    )
    tool("org.apache.kafka.tools.ConsoleProducer", "--topic", topic, *options, text=lines)
    assert _values(store, topic) == [b"value %d" % number for number in range(100)]
    read = ("--from-beginning", "--max-messages", 100, "--formatter-property", "print.key=true")
    read += ("--formatter-property", "key.separator=:")
    found = tool("org.apache.kafka.tools.consumer.ConsoleConsumer", "--topic", topic, *read)
    assert found == lines


@pytest.mark.parametrize("protocol", one_in(2, ["consumer", "classic"]))
def test_groups(tool, store, protocol):
    store.create_topic("grouped", 2)
    store.append("grouped", [{"value": b"%d" % number, "partition": number % 2} for number in range(20)])
    consumer = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    how = ("--command-property", f"group.protocol={protocol}")
    tool(consumer, "--topic", "grouped", "--group", "g", "--from-beginning", "--max-messages", 20, *how)
    assert "g" in tool(_GROUP, "--list").split()
    assert re.search(rf"^g +{protocol.capitalize()} +Empty", tool(_GROUP, "--list", "--state", "--type"), re.M | re.I)
    rows = re.findall(r"^g +grouped +(\d) +(\d+) +(\d+) +(\d+)", tool(_GROUP, "--describe", "--group", "g"), re.M)
    assert sorted(rows) == [("0", "10", "10", "0"), ("1", "10", "10", "0")]
    tool(_GROUP, "--reset-offsets", "--group", "g", "--topic", "grouped", "--to-offset", 4, "--execute")
    assert {one.offset for one in store.groups["g"].committed().values()} == {4}
    # What Spark has committed is a group for Kafka's tools, too.
    store.groups["spark"].commit({TopicPartition("grouped", 0): 3})
    rows = re.findall(r"^spark +grouped +(\d) +(\d+) +(\d+) +(\d+)", tool(_GROUP, "--describe", "--all-groups"), re.M)
    assert rows == [("0", "3", "10", "7")]
    tool(_GROUP, "--delete-offsets", "--group", "g", "--topic", "grouped:0")
    assert [at.partition for at in store.groups["g"].committed()] == [1]
    tool(_GROUP, "--delete", "--group", "g")
    assert "g" not in store.groups
    store.delete_topic("grouped")


def test_offsets_and_records(tool, store, tmp_path):
    store.create_topic("counted", 1)
    store.append("counted", [{"value": b"x"} for _ in range(10)])
    assert tool("org.apache.kafka.tools.GetOffsetShell", "--topic", "counted") == "counted:0:10\n"
    wanted = tmp_path / "records.json"
    wanted.write_text('{"version": 1, "partitions": [{"topic": "counted", "partition": 0, "offset": 4}]}')
    assert "counted-0\tlow_watermark: 4" in tool(
        "org.apache.kafka.tools.DeleteRecordsCommand", "--offset-json-file", wanted
    )
    assert store.earliest_offset("counted", 0) == 4
    earliest = tool("org.apache.kafka.tools.GetOffsetShell", "--topic", "counted", "--time", "-2")
    assert earliest == "counted:0:4\n"


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
    rows = store.read("of-transactions", 0, isolation_level="read_committed")
    assert [row["value"] for batch in rows for row in batch.to_pylist()] == [b"a"]


def test_the_cluster(server, store):
    store.create_topic("placed", 1)
    store.append("placed", [{"value": b"x"}])
    where = ("--bootstrap-server", server.bootstrap)
    assert store.cluster_id in run("org.apache.kafka.tools.ClusterTool", "cluster-id", *where)
    dirs = run("org.apache.kafka.tools.LogDirsCommand", *where, "--describe", "--topic-list", "placed")
    assert f'"partition":"placed-0","size":{store.partitions.size("placed", 0)}' in dirs
    assert f'"logDir":"{store.path}/data"' in dirs
    apis = run("org.apache.kafka.tools.BrokerApiVersionsCommand", *where)
    assert "Produce(0): 0 to 13 [usable: 13]" in apis


@pytest.mark.long
def test_the_performance_tools(server, store):
    client = f"bootstrap.servers={server.bootstrap}"
    for acks in ("1", "all"):
        written = run(
            "org.apache.kafka.tools.ProducerPerformance", "--topic", "perf", "--num-records", 50_000,
            "--record-size", 100, "--throughput", -1, "--command-property", client, f"acks={acks}",
        )  # fmt: skip
        assert "50000 records sent" in written
    assert store.latest_offset("perf", 0) == 100_000
    read = run(
        "org.apache.kafka.tools.ConsumerPerformance", "--topic", "perf", "--num-records", 100_000,
        "--bootstrap-server", server.bootstrap, "--timeout", 120_000,
    )  # fmt: skip
    assert read.splitlines()[-1].split(", ")[4] == "100000"
    latency = run("org.apache.kafka.tools.EndToEndLatency", *_latency(server.bootstrap))
    assert "Percentiles" in latency


def _latency(bootstrap):
    return (
        "--bootstrap-server", bootstrap, "--topic", "latency", "--num-records", 200, "--producer-acks", "all",
        "--record-size", 100,
    )  # fmt: skip


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
