"""A broker takes over partitions whose files we wrote: it serves every record of them, and appends to them."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from kafka_clients import Clients, as_printed, create_topics
from written import CODECS, NOW, SEGMENTED, Row, end_transaction, extend, read, send, write

from pyspark_log import Store
from pyspark_log.cli.main import main
from pyspark_log.storage.catalog import kafka_files
from pyspark_log.storage.compaction.cleaner import compact
from pyspark_log.storage.log import leader_epochs
from pyspark_log.storage.log.appending.replica import truncate
from pyspark_log.types import READ_COMMITTED, TopicPartition
from tests.waiting import wait_until

DOCS = Path(__file__).parents[2] / "docs/guides/kafka.md"
PARTITIONS = 2
LOG_START = 100
#: More than the broker has by then.
EPOCHS = 5
#: A producer id that the broker assigns to no producer here.
PRODUCER = 5_000_000
EXPORTED = ("exported", "transactions")
#: Compacted by us; the broker has to leave the first as it is, and to compact the second once more.
COMPACTED = ("compacted.by.us", "compacted.twice")
#: The first has the id that the store gave to the topic, the second none.
STRAYS = ("another.id", "no.id")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A store, and the rows of each of its topics and partitions."""
    with Store.create(tmp_path_factory.mktemp("ours") / "store") as store:
        rows = {codec: write(store, codec, configs={"compression.type": codec}) for codec in CODECS}
        # With files that Kafka does not know.
        configs = {"message.timestamp.type": "LogAppendTime", "source.position.header": "source"}
        rows["appended"] = write(store, "appended", configs=configs)
        assert list(Path(store.path).glob("data/appended-*/*.positions"))
        for topic in ("exported", *STRAYS):
            rows[topic] = write(store, topic)
        store.delete_records("exported", 1, LOG_START)
        rows["exported"][1] = rows["exported"][1][LOG_START:]
        for epoch in range(1, EPOCHS + 1):
            with store.logs.writer("exported", 0).hold() as held:
                end = truncate(held.log, held.state.next_offset - 3)
                # As a leader's election begins one.
                leader_epochs.begin(held.log.place.folder, epoch, end)
                held.log.lease.save(held.state._replace(leader_epoch=epoch), durable=True)
            rows["exported"][0] = rows["exported"][0][:end] + extend(store, "exported", 0)
        rows["transactions"] = write(store, "transactions")
        rows["transactions"][1] += transact(store, "transactions")
        for topic in COMPACTED:
            rows[topic] = write_compacted(store, topic)
    return store, rows


def write_compacted(store, topic):
    """Makes a topic and compacts it, one partition with transactions; returns what is left in each."""
    store.create_topic(topic, PARTITIONS, SEGMENTED | {"cleanup.policy": "compact", "compression.type": "lz4"})
    written = 0
    for partition in range(PARTITIONS):
        written += len(extend(store, topic, partition, 40, keyless=False))
        if partition == 1:
            written += len(transact(store, topic, keyless=False))
        written += len(extend(store, topic, partition, 40, keyless=False))
    assert not [outcome.problem for outcome in compact(store.logs, topic) if outcome.problem]
    rows = [read(store, topic, partition, READ_COMMITTED)[0] for partition in range(PARTITIONS)]
    assert sum(map(len, rows)) < written / 2
    return rows


def transact(store, topic, *, keyless=True):
    """Appends transactions to a partition: one is committed, one aborted. Returns the rows of the first and more."""
    place = (topic, 1)
    end = store.latest_offset(*place)
    rows = [Row(end + n, NOW, b"key", f"value {n}".encode(), ()) for n in range(60)]
    for sequence in range(0, 60, 3):
        send(store, *place, rows[sequence : sequence + 3], PRODUCER, base_sequence=sequence, transactional=True)
        given_up = [Row(-1, NOW, b"given up", None, ())] * 3
        send(store, *place, given_up, PRODUCER + 1, base_sequence=sequence, transactional=True)
    end_transaction(store, *place, PRODUCER, commit=True)
    end_transaction(store, *place, PRODUCER + 1, commit=False)
    # The rows of the two alternate, three by three.
    committed = [row._replace(offset=end + 2 * (n - n % 3) + n % 3) for n, row in enumerate(rows)]
    return committed + extend(store, *place, 20, keyless=keyless)


@pytest.fixture(scope="module")
def taken_over(broker, written, tmp_path_factory):
    """The broker, with our folders in the place of its own: some as they are, others exported."""
    store, rows = written
    # Kafka would delete records of such times at once.
    create_topics(broker, dict.fromkeys(rows.keys() - {COMPACTED[1]}, PARTITIONS), {"retention.ms": "-1"})
    create_topics(
        broker, {COMPACTED[1]: PARTITIONS}, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    )
    ids = broker.topic_ids()
    folders = {topic: tmp_path_factory.mktemp("exported") / topic for topic in EXPORTED}
    for topic, folder in folders.items():
        arguments = ["--store", store.path, "export-kafka", topic, str(folder), "--topic-id", ids[topic]]
        assert CliRunner().invoke(main, arguments).exit_code == 0
    broker.stop()
    # What a log dir of ours can have beside partitions.
    for name in ("pylog-store.json", *(f"{12345:020d}{suffix}" for suffix in (".log", ".index", ".timeindex"))):
        (broker.log_dir / name).write_bytes(b"no file of a broker's")
    for topic in rows.keys() - folders.keys():
        for partition in range(PARTITIONS):
            place = broker.log_dir / f"{topic}-{partition}"
            shutil.rmtree(place)
            shutil.copytree(Path(store.path, "data", place.name), place)
            if topic not in STRAYS:
                kafka_files.write_partition_metadata(f"{place}/partition.metadata", ids[topic])
    for partition in range(PARTITIONS):
        os.unlink(broker.log_dir / f"{STRAYS[1]}-{partition}" / "partition.metadata")
    for folder in folders.values():
        hand_over(folder, broker.log_dir)
    broker.start()
    return broker


def hand_over(folder, logs):
    """Does what docs/guides/kafka.md says."""
    section = DOCS.read_text().partition("## A topic of a store for a broker\n")[2]
    script = re.search(r"```sh\n(.*?)```", section, re.DOTALL)[1]
    subprocess.run(["sh", "-eu", "-c", script], env=os.environ | {"FOLDER": str(folder), "LOGS": str(logs)}, check=True)


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
@pytest.mark.parametrize("topic", ["uncompressed", "gzip", "lz4", "zstd", *EXPORTED, COMPACTED[0]])
def test_a_consumer_reads_all_and_a_producer_appends(clients, written, topic):
    for partition, rows in enumerate(written[1][topic]):
        assert clients.read(topic, partition) == rows
        added = more(clients, topic, partition, rows[-1].offset + 1)
        assert clients.read(topic, partition) == rows + added


def test_kafkas_tool_takes_the_committed_offsets_of_a_group(taken_over, clients, written, tmp_path):
    """As docs/guides/from-kafka.md says."""
    store, file = Store.open(written[0].path), tmp_path / "billing.csv"
    offsets = {TopicPartition("exported", 0): 7, TopicPartition("exported", 1): LOG_START + 3}
    store.groups["billing"].commit(offsets)
    arguments = ["groups", "reset-offsets", "--group", "billing", "--topic", "exported", "--to-current", "--export"]
    exported = CliRunner().invoke(main, ["--store", store.path, *arguments])
    assert exported.exit_code == 0, exported.output
    file.write_text(exported.stdout)
    tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    taken_over.run(tool, "--group", "billing", "--reset-offsets", "--from-file", file, "--execute")
    printed = taken_over.run(tool, "--group", "billing", "--describe", "--offsets")
    assert sorted(line.split()[1:4] for line in printed.splitlines() if line.startswith("billing")) == [
        ["exported", str(at.partition), str(offset)] for at, offset in sorted(offsets.items())
    ]


def test_the_broker_continues_to_compact(taken_over, clients, written):

    def is_cleaned():
        cleaned = kafka_files.read_offsets(f"{taken_over.log_dir}/{kafka_files.CLEANER}")
        return all(cleaned.get(TopicPartition(COMPACTED[1], partition), 0) > 0 for partition in range(PARTITIONS))

    wait_until(is_cleaned, "the broker has compacted it")
    for partition, rows in enumerate(written[1][COMPACTED[1]]):
        found = clients.read(COMPACTED[1], partition)
        ours = Store.open(taken_over.log_dir)
        assert read(ours, COMPACTED[1], partition, READ_COMMITTED)[0] == found
        # It has more inactive segments than there were for us, where the last of each key stays.
        assert found == [row for row in rows if row in found]
        assert {row.key: row for row in found} == {row.key: row for row in rows}
        added = more(clients, COMPACTED[1], partition, rows[-1].offset + 1)
        assert clients.read(COMPACTED[1], partition)[-len(added) :] == added


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


@pytest.mark.parametrize("topic", STRAYS)
def test_folders_without_the_id_of_the_topic_are_set_aside(taken_over, clients, topic):
    for partition in range(PARTITIONS):
        assert clients.records(topic, partition) == []
        (aside,) = taken_over.log_dir.glob(f"{topic}-{partition}.*-stray")
        assert re.fullmatch(r"[0-9a-f]{32}-stray", aside.name.rpartition(".")[2])
        assert len(list(aside.glob("*.log"))) > 1


def test_leader_epochs_of_an_export_are_below_those_of_the_broker(taken_over, written):
    store, rows = written
    assert store.logs.reader("exported", 0).state().leader_epoch == EPOCHS
    for partition in range(PARTITIONS):
        file = taken_over.log_dir / f"exported-{partition}" / "leader-epoch-checkpoint"
        first, *others = kafka_files.read_epochs(str(file))
        assert first == (0, rows["exported"][partition][0].offset)
        assert [start for _, start in others] == [rows["exported"][partition][-1].offset + 1]
    assert "truncation of conflicting entries" not in taken_over.output()
