"""Logs in the message formats 0 and 1, as brokers before Kafka 0.11 wrote them: Kafka and we read the same in them."""

import re

import pytest
from kafka_clients import Clients, as_printed, create_topics
from kafka_tools import dump
from test_kafka_reads import read, shown
from written import NOW, Row

from pyspark_log.storage.catalog import kafka_files
from pyspark_log.storage.record.layout import CODECS
from pyspark_log.storage.segment.file_names import LOG, segment_path
from tests.amounts import one_in
from tests.old_messages import message, message_set
from tests.unit.kafka_peer import LegacyRecordBatchBuilder

TOPICS = {f"old-{magic}-{codec}": (magic, codec) for magic in (0, 1) for codec in ("none", "gzip", "snappy", "lz4")}
COUNT, SET = 60, 5


def rows_of(magic):
    rows = []
    for number in range(COUNT):
        text = b"%d" % number
        key, value = [(b"key", b"value " + text), (None, text * 40), (b"", None), (b"key " + text, b"")][number % 4]
        rows.append(Row(number, NOW + 10 * number if magic else -1, key, value, ()))
    return rows


def batches(rows, magic, codec):
    """The rows as the bytes of a log, by a client of Kafka where it has the codec."""
    sets = [rows] if codec == "none" else [rows[at : at + SET] for at in range(0, len(rows), SET)]
    for part in sets:
        # Within sets of format 1 offsets are relative.
        first = part[0].offset if codec != "none" and magic else 0
        if codec == "snappy" or (magic, codec) == (0, "lz4"):
            inside = b"".join(message(magic, r.key, r.value, offset=r.offset - first, time=r.timestamp) for r in part)
            yield message_set(magic, codec, inside, offset=part[-1].offset, time=part[-1].timestamp)
            continue
        peer = LegacyRecordBatchBuilder(magic, CODECS.index(codec), 1 << 20)
        for row in part:
            peer.append(row.offset - first, row.timestamp, row.key, row.value)
        data = bytes(peer.build())
        yield data if codec == "none" else part[-1].offset.to_bytes(8, "big") + data[8:]


@pytest.fixture(scope="module")
def old(broker):
    """The broker, with such logs in the place of its own: two segments each, and nothing beside them."""
    create_topics(broker, dict.fromkeys(TOPICS, 1), {"retention.ms": "-1"})
    ids = broker.topic_ids()
    broker.stop()
    for topic, (magic, codec) in TOPICS.items():
        folder = broker.log_dir / f"{topic}-0"
        for path in folder.iterdir():
            path.unlink()
        kafka_files.write_partition_metadata(f"{folder}/partition.metadata", ids[topic])
        rows = rows_of(magic)
        for part in rows[:40], rows[40:]:
            with open(segment_path(str(folder), part[0].offset, LOG), "wb") as file:
                file.writelines(batches(part, magic, codec))
    # Else the broker does not read what is new to it.
    (broker.log_dir / ".kafka_cleanshutdown").unlink()
    broker.start()
    return broker


@pytest.fixture(scope="module")
def clients(old):
    clients = Clients(old)
    yield clients
    clients.close()


def printed(row):
    return as_printed(row, 0).replace("CreateTime:-1\t", "NO_TIMESTAMP\t")


@pytest.mark.parametrize("topic", one_in(3, TOPICS))
def test_a_consumer_reads_what_we_read(old, clients, topic):
    expected = rows_of(TOPICS[topic][0])
    assert read(shown(old, topic, COUNT), topic) == (expected, COUNT)
    assert clients.printed(topic, COUNT) == [printed(row) for row in expected]
    # What is appended is of the format of today.
    added = [Row(COUNT + n, NOW + n, b"new", b"%d" % n, (("h", b"1"),)) for n in range(3)]
    assert clients.produce(topic, 0, added) == added
    assert read(shown(old, topic, COUNT + 3), topic) == (expected + added, COUNT + 3)
    assert read(shown(old, topic, COUNT + 3), topic, start=33)[0] == (expected + added)[33:]


@pytest.mark.parametrize("topic", one_in(3, TOPICS))
def test_kafka_dumps_them(old, topic):
    paths = sorted((old.log_dir / f"{topic}-0").glob("*.log"))
    told = dump("--deep-iteration", *paths)
    magic, codec = TOPICS[topic]
    assert f"magic: {magic} compresscodec: {codec} " in told
    found = re.findall(r"^\| offset: (\d+) (\w+: -?\d+) keySize: (-?\d+) valueSize: (-?\d+)", told, flags=re.M)
    assert found[:COUNT] == [dumped(row) for row in rows_of(magic)]


def dumped(row):
    sizes = ("-1" if data is None else str(len(data)) for data in (row.key, row.value))
    time = "NoTimestampType: -1" if row.timestamp < 0 else f"CreateTime: {row.timestamp}"
    return (str(row.offset), time, *sizes)
