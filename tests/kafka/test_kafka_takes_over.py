"""A broker takes over partitions whose files we wrote: it serves every record of them, and appends to them."""

import shutil
from pathlib import Path

import pytest
from kafka_clients import Clients, as_printed, create_topics
from written import CODECS, NOW, Row, write

from pyspark_log import Store
from pyspark_log.storage import checkpoint_files
from pyspark_log.storage.types import TopicPartition

PARTITIONS = 2
LOG_START = 100


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A store, and the rows of each of its topics and partitions."""
    with Store.create(tmp_path_factory.mktemp("ours") / "store") as store:
        rows = {codec: write(store, codec, configs={"compression.type": codec}) for codec in CODECS}
        rows["appended"] = write(store, "appended", configs={"message.timestamp.type": "LogAppendTime"})
        rows["cut"] = write(store, "cut")
        store.delete_records("cut", 1, LOG_START)
        rows["cut"][1] = rows["cut"][1][LOG_START:]
    return store, rows


@pytest.fixture(scope="module")
def taken_over(broker, written):
    """The broker, with our folders in the place of its own."""
    store, rows = written
    # Kafka would delete records of such times at once.
    create_topics(broker, dict.fromkeys(rows, PARTITIONS), {"retention.ms": "-1"})
    ids = broker.topic_ids()
    broker.stop()
    for topic in rows:
        for partition in range(PARTITIONS):
            folder = broker.log_folder / f"{topic}-{partition}"
            shutil.rmtree(folder)
            shutil.copytree(Path(store.path, "data", folder.name), folder)
            checkpoint_files.write_partition_metadata(f"{folder}/partition.metadata", ids[topic])
    starts = str(broker.log_folder / checkpoint_files.LOG_START)
    known = checkpoint_files.read_offsets(starts)
    checkpoint_files.write_offsets(starts, {**known, TopicPartition("cut", 1): LOG_START})
    (broker.log_folder / ".kafka_cleanshutdown").unlink()
    broker.start()
    return broker


@pytest.fixture(scope="module")
def clients(taken_over):
    clients = Clients(taken_over)
    yield clients
    clients.close()


def more(clients, topic, partition, end):
    """Has a producer append to a partition; returns the rows, which have the offsets from its end on."""
    rows = [Row(end + n, NOW + n, b"key", f"more {n}".encode(), (("h", b"1"),)) for n in range(100)]
    assert clients.produce(topic, partition, rows) == rows
    return rows


# kafka-python reads snappy with a package of its own only.
@pytest.mark.parametrize("topic", ["uncompressed", "gzip", "lz4", "zstd", "cut"])
def test_a_consumer_reads_all_and_a_producer_appends(clients, written, topic):
    for partition, rows in enumerate(written[1][topic]):
        assert clients.read(topic, partition) == rows
        added = more(clients, topic, partition, rows[-1].offset + 1)
        assert clients.read(topic, partition) == rows + added


def test_times_of_appends_stay(clients, written):
    store, rows = written
    for partition in range(PARTITIONS):
        found = clients.records("appended", partition)
        times = [record.timestamp for record in found]
        ours = [batch["timestamp"].cast("int64").to_pylist() for batch in store.read("appended", partition)]
        assert times == [time // 1000 for batch in ours for time in batch]
        assert {record.timestamp_type for record in found} == {1}
        assert [(r.offset, r.key, r.value) for r in found] == [
            (row.offset, row.key, row.value) for row in rows["appended"][partition]
        ]


def test_the_console_consumer_reads_all_and_the_console_producer_appends(taken_over, clients, written):
    expected = [[as_printed(row, partition) for row in rows] for partition, rows in enumerate(written[1]["snappy"])]
    ours = sum(map(len, expected))
    taken_over.run(
        "org.apache.kafka.tools.ConsoleProducer", "--topic", "snappy", "--compression-codec", "snappy", text="a\nb\n"
    )
    lines = clients.printed("snappy", ours + 2)
    added = []
    for partition, rows in enumerate(expected):
        found = [line for line in lines if f"\tPartition:{partition}\t" in line]
        assert found[: len(rows)] == rows
        added += [line.rpartition("\t")[2] for line in found[len(rows) :]]
    assert sorted(added) == ["a", "b"]
