"""The job mirror, and `pylog mirror` of a broker's folder: what a consumer of Kafka reads, and where groups resume."""

import json
import re

import pytest
from click.testing import CliRunner
from kafka_clients import KafkaAdminClient, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka_tools import SPARK_JARS
from test_kafka_reads import SMALL, consumed, ended, make, producer, rows_of, send

from pyspark_log import Store
from pyspark_log import TopicPartition as Partition
from pyspark_log.cli.main import main
from pyspark_log.types import READ_COMMITTED
from tests.jobs.job_tools import Job
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture
def run(broker, tmp_path):
    """Runs the job until all there is is mirrored; returns the target and the summary."""
    if not SPARK_JARS.is_dir():
        pytest.skip("Spark's connector to Kafka is not here: make kafka-jars")
    jars = ("--jars", ",".join(map(str, sorted(SPARK_JARS.glob("*.jar")))))

    def run_once(name, *arguments):
        log, target = tmp_path / "log", name if "://" in name else tmp_path / name
        checkpoint = tmp_path / f"{name.rpartition('/')[2]}-checkpoint"
        given = (target, *arguments, "--checkpoint", checkpoint, "--until-now", "--json")
        given += ("--groups-interval", 3600)  # once, at the end: a slow run would count an offset that moves on twice
        with Job(log, "local[2]", "mirror", *given, options=jars) as job:
            assert job.wait() == 0, log.read_text()[-5000:]
        # The last of those between lines of Spark's.
        return Store.open(target), json.loads(re.findall(r"^\{$.*?^\}$", log.read_text(), re.DOTALL | re.MULTILINE)[-1])

    return run_once


def fill(broker, topic):
    """Two partitions of plain records, and one with transactions that were committed and aborted in turns."""
    make(broker, topic, 2, cleanup_policy="compact", min_cleanable_dirty_ratio="0.9", segment_ms="123456789")
    make(broker, f"{topic}-ended")
    with producer(broker) as found:
        for partition in range(2):
            send(found, topic, keyed(60), partition)
    transact(broker, f"{topic}-ended", 6)


def keyed(count):
    """A compacted topic takes no others."""
    return [row._replace(key=row.key or b"some") for row in rows_of(count)]


def transact(broker, topic, count):
    with producer(broker, transactional_id=topic, transaction_timeout_ms=900_000) as found:
        found.init_transactions()
        for number in range(count):
            found.begin_transaction()
            send(found, topic, rows_of(10))
            if number % 2:
                found.abort_transaction()
            else:
                found.commit_transaction()
    ended(broker, topic)


def commit(broker, group, offsets):
    places = {TopicPartition(*at): OffsetAndMetadata(offset, "", -1) for at, offset in offsets.items()}
    with KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=group, enable_auto_commit=False) as consumer:
        consumer.assign(list(places))
        consumer.commit(places)


def read(store, topic, partition, start=0, **how):
    """The rows of a partition from an offset on, without offsets."""
    found = []
    for batch in store.read(topic, partition, start, headers=True, **how):
        times = batch["timestamp"].cast("int64").to_pylist()
        for row, micros in zip(batch.to_pylist(), times, strict=True):
            headers = tuple((one["key"], one["value"]) for one in row["headers"] or ())
            found.append((micros // 1000, row["key"], row["value"], headers))
    return found


def is_mirrored(broker, store, topic, partition):
    """What a consumer reads is there; returns what the consumer has read, with the offsets."""
    rows = consumed(broker, topic, partition, READ_COMMITTED)[0]
    assert read(store, topic, partition) == [row[1:] for row in rows]
    return rows


@pytest.mark.long
def test_a_cluster_into_an_object_store(broker, run, object_url):
    fill(broker, "lifted")
    commit(broker, "lifters", {("lifted", 0): 25})
    Store.create(object_url)
    arguments = (f"kafka://{broker.bootstrap}", "--topics", "lifted.*", "--groups", "^lifters")
    store, summary = run(object_url, *arguments)
    assert (summary["records"], summary["group_offsets"]) == (150, 1)
    for topic, partition in (("lifted", 0), ("lifted", 1), ("lifted-ended", 0)):
        rows = is_mirrored(broker, store, topic, partition)
        if (topic, partition) == ("lifted", 0):
            assert extra(store, "lifters", topic, partition, [row for row in rows if row.offset >= 25]) == 0
    assert store.describe_topic("lifted").configs["cleanup.policy"] == "compact"


def extra(store, group, topic, partition, unread):
    """How many records more than the unread ones the group reads in the store; it reads at least these."""
    offset = store.groups[group].committed()[Partition(topic, partition)].offset
    found = read(store, topic, partition, offset)
    assert found[len(found) - len(unread) :] == [row[1:] for row in unread]
    return len(found) - len(unread)


def test_a_cluster(broker, run, tmp_path):
    fill(broker, "moved")
    commit(broker, "movers", {("moved", 0): 25, ("moved", 1): 60, ("moved-ended", 0): 25})
    commit(broker, "stayers", {("moved", 0): 25})
    arguments = (broker.bootstrap, "--topics", "moved.*", "--groups", "^movers")
    (tmp_path / "client").write_text("client.id=mirror\n")
    store, summary = run("store", *arguments, "--client-config", tmp_path / "client")
    assert (summary["records"], summary["group_offsets"]) == (150, 3)
    for topic, partition in (("moved", 0), ("moved", 1), ("moved-ended", 0)):
        is_mirrored(broker, store, topic, partition)
    configs = store.describe_topic("moved").configs
    carried = {"cleanup.policy": "compact", "segment.ms": "123456789", "min.cleanable.dirty.ratio": "0.9"}
    assert {name: configs[name] for name in carried} == carried
    assert "internal.segment.bytes" in SMALL
    assert "internal.segment.bytes" not in configs

    # On, with a topic that comes later, and more partitions.
    make(broker, "moved-later", 3)
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_partitions({"moved-ended": 2})
    with producer(broker) as found:
        send(found, "moved-later", rows_of(5), 2)
        send(found, "moved-ended", rows_of(5), 1)
        send(found, "moved", keyed(7), 1)
    commit(broker, "movers", {("moved", 0): 41, ("moved-ended", 1): 3})
    store, summary = run("store", *arguments)
    assert (summary["records"], summary["group_offsets"]) == (17, 2)
    assert store.groups["movers"].committed().keys() == {
        Partition(*at) for at in (("moved", 0), ("moved", 1), ("moved-ended", 0), ("moved-ended", 1))
    }
    assert "stayers" not in store.groups
    for topic, partition in (("moved", 0), ("moved", 1), ("moved-ended", 1), ("moved-later", 2)):
        rows = is_mirrored(broker, store, topic, partition)
        if topic != "moved-later":
            position = {"moved": (41, 60), "moved-ended": (25, 3)}[topic][partition]
            assert extra(store, "movers", topic, partition, [row for row in rows if row.offset >= position]) == 0
    rows = is_mirrored(broker, store, "moved-ended", 0)
    # There are no more gaps than offsets between the group and the end of the micro-batch.
    assert extra(store, "movers", "moved-ended", 0, [row for row in rows if row.offset >= 25]) <= 30


def test_a_folder_of_a_running_broker(broker, tmp_path):
    """What `pylog mirror` makes of it is what a consumer reads, at the same offsets."""
    fill(broker, "copied")
    offsets = {("copied", 0): 25, ("copied", 1): 60, ("copied-ended", 0): 66}
    commit(broker, "copiers", offsets)
    ends = {at: consumed(broker, *at, READ_COMMITTED)[1] for at in offsets}

    def is_all_shown():
        folder = Store.open(broker.log_dir)
        shown = {at: folder.latest_offset(*at, isolation_level=READ_COMMITTED) for at in ends}
        return shown == ends and len(folder.groups["copiers"].committed()) == 3

    wait_until(is_all_shown, "the folder has all")
    call = ["--store", str(tmp_path / "store"), "mirror", str(broker.log_dir), "--topics", "copied.*"]
    done = CliRunner().invoke(main, [*call, "--groups", "^copiers", "--until-now"])
    assert done.exit_code == 0, done.output
    store = Store.open(tmp_path / "store")
    for at in ends:
        rows = consumed(broker, *at, READ_COMMITTED)[0]
        batches = store.read(*at, isolation_level=READ_COMMITTED)
        assert [offset for batch in batches for offset in batch["offset"].to_pylist()] == [row.offset for row in rows]
        assert read(store, *at, isolation_level=READ_COMMITTED) == [row[1:] for row in rows]
    committed = store.groups["copiers"].committed()
    assert {(at.topic, at.partition): commit.offset for at, commit in committed.items()} == offsets
