"""What a broker wrote is read from its folder as its own consumers read it, also while it writes."""

import base64
import contextlib
import json
import threading
import time
import warnings
from itertools import pairwise

import pytest
from click.testing import CliRunner
from kafka_clients import Clients, as_printed, create_topics
from kafka_tools import PATIENCE
from written import NOW, Row, read

from pyspark_log import Store
from pyspark_log.cli.main import main
from pyspark_log.errors import CorruptRecordError, OffsetOutOfRangeError, UnknownTopicError
from pyspark_log.storage.catalog.kafka_files import CLEANER, HIGH_WATERMARK, read_offsets
from pyspark_log.types import READ_COMMITTED, READ_UNCOMMITTED, TopicPartition
from tests.waiting import wait_until

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
    from kafka import TopicPartition as KafkaPartition

# Kafka lets no topic have segments below 1 MiB, but by this setting for its own tests.
SMALL = {"internal.segment.bytes": "14000", "index.interval.bytes": "300", "retention.ms": "-1"}
CODECS = ("gzip", "lz4", "zstd")


@pytest.fixture(scope="module")
def clients(broker):
    clients = Clients(broker)
    yield clients
    clients.close()


def make(broker, name, partitions=1, **configs):
    create_topics(broker, {name: partitions}, SMALL | {key.replace("_", "."): value for key, value in configs.items()})


def producer(broker, **options):
    return KafkaProducer(bootstrap_servers=broker.bootstrap, **options)


def rows_of(count, size=60):
    """Rows with all that records can have."""
    kinds = [b"key %d", b"", None]
    return [
        Row(
            number,
            NOW + 7 * number,
            kinds[number % 3] and kinds[number % 3] % number,
            None if number % 33 == 3 else b"%d" % number * size,
            (("h", b"%d" % number),) if number % 4 == 0 else (),
        )
        for number in range(count)
    ]


def send(found, topic, rows, partition=0):
    sent = [
        found.send(topic, row.value, row.key, list(row.headers), partition=partition, timestamp_ms=row.timestamp)
        for row in rows
    ]
    # Its `flush` can give up before it is done.
    for future in sent:
        future.get(PATIENCE)


def consumed(broker, topic, partition=0, level=READ_UNCOMMITTED):
    """All records that a consumer of Kafka gets, and the offset after them."""
    place = KafkaPartition(topic, partition)
    options = {"enable_auto_commit": False, "auto_offset_reset": "none", "isolation_level": level}
    with KafkaConsumer(bootstrap_servers=broker.bootstrap, **options) as consumer:
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        end, records = consumer.end_offsets([place])[place], []
        deadline = time.monotonic() + PATIENCE
        while consumer.position(place) < end and time.monotonic() < deadline:
            records += consumer.poll(timeout_ms=500).get(place, [])
        assert consumer.position(place) >= end, f"{place} is read up to {consumer.position(place)}, not to {end}"
        return [Row(r.offset, r.timestamp, r.key, r.value, tuple((k, v) for k, v in r.headers)) for r in records], end


def ended(broker, topic, partition=0):
    """Waits until a partition's transactions have their markers; a producer gets the answer that they ended before."""
    place = KafkaPartition(topic, partition)
    options = {"bootstrap_servers": broker.bootstrap, "enable_auto_commit": False}
    with (
        KafkaConsumer(**options, isolation_level=READ_COMMITTED) as committed,
        KafkaConsumer(**options, isolation_level=READ_UNCOMMITTED) as uncommitted,
    ):
        wait_until(
            lambda: committed.end_offsets([place]) == uncommitted.end_offsets([place]),
            f"the transactions in {place} have ended",
        )


def cleaned(broker, topic):
    """Waits until the broker's cleaner has done all that it can before the next append."""

    def is_cleaned():
        with contextlib.suppress(FileNotFoundError):
            *_, active = sorted((broker.log_dir / f"{topic}-0").glob("*.log"))
            known = read_offsets(f"{broker.log_dir}/{CLEANER}").get(TopicPartition(topic, 0), 0)
            return known >= int(active.stem)
        return False

    wait_until(is_cleaned, f"{topic}-0 is cleaned up to its active segment")


def shown(broker, topic, end, partition=0, level=READ_UNCOMMITTED):
    """The broker's folder, once it shows a partition up to that end."""

    def reached():
        store = Store.open(broker.log_dir)
        with contextlib.suppress(Exception):
            return store if store.latest_offset(topic, partition, isolation_level=level) == end else None
        return None

    return wait_until(reached, f"{topic}-{partition} reaches {end}")


def is_read_alike(broker, topic, partition=0, level=READ_UNCOMMITTED):
    """The rows, which both readers agree on."""
    expected, end = consumed(broker, topic, partition, level)
    assert read(shown(broker, topic, end, partition, level), topic, partition, level) == (expected, end)
    return expected


@pytest.mark.parametrize("codec", [None, *CODECS])
def test_every_codec(broker, codec):
    topic, rows = f"codec-{codec}", rows_of(400)
    make(broker, topic, 2)
    for partition in range(2):
        with producer(broker, compression_type=codec, linger_ms=20) as found:
            send(found, topic, rows, partition)
        assert is_read_alike(broker, topic, partition) == rows
    assert len(Store.open(broker.log_dir).segment_files(topic, 0)) > (1 if codec is None else 0)


def test_snappy(broker, clients):
    make(broker, "snappy-read")
    broker.run(
        "org.apache.kafka.tools.ConsoleProducer",
        "--topic",
        "snappy-read",
        "--compression-codec",
        "snappy",
        text="".join(f"line {number}\n" for number in range(500)),
    )
    rows, _ = read(shown(broker, "snappy-read", 500), "snappy-read")
    assert [row.value for row in rows] == [b"line %d" % number for number in range(500)]
    assert clients.printed("snappy-read", 500) == [as_printed(row, 0) for row in rows]


def test_times_of_appends(broker):
    make(broker, "append-time", message_timestamp_type="LogAppendTime")
    with producer(broker) as found:
        send(found, "append-time", rows_of(50))
    rows = is_read_alike(broker, "append-time")
    assert min(row.timestamp for row in rows) > NOW + 1_000_000
    kinds = [batch["timestampType"].to_pylist() for batch in Store.open(broker.log_dir).read("append-time", 0)]
    assert {kind for part in kinds for kind in part} == {1}


def test_large_records(broker):
    make(broker, "large", internal_segment_bytes="3000000", max_message_bytes="2500000")
    rows = [Row(n, NOW + n, b"k", bytes([n]) * 2_000_000, ()) for n in range(4)]
    with producer(broker, max_request_size=3_000_000) as found:
        send(found, "large", rows)
    assert is_read_alike(broker, "large") == rows


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_of_either_protocol(broker, protocol):
    """Of the newer one (KIP-848) `__consumer_offsets` has other records of members, and the same of positions."""
    topic, group = f"grouped-{protocol}", f"{protocol}-readers"
    make(broker, topic, 2)
    with producer(broker) as found:
        for partition, count in enumerate((9, 4)):
            send(found, topic, rows_of(count), partition)
    broker.run(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", "--topic", topic, "--from-beginning", "--group", group,
        "--max-messages", 13, "--timeout-ms", 1000 * PATIENCE, "--command-property", f"group.protocol={protocol}",
    )  # fmt: skip
    with producer(broker) as found:
        send(found, topic, rows_of(2), 1)
    told = broker.run("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--describe", "--group", group)
    fields = [line.split() for line in told.splitlines() if line.startswith(group)]
    expected = sorted([int(field) for field in line[2:6]] for line in fields)
    assert expected == [[0, 9, 9, 0], [1, 4, 6, 2]]
    store = shown(broker, topic, 6, 1)

    def run(*arguments):
        result = CliRunner().invoke(main, ["--store", store.path, *arguments])
        assert result.exit_code == 0, result.output
        return result.output

    names = "partition", "current_offset", "log_end_offset", "lag"

    def found():
        if group not in run("groups", "list").split():
            return None
        return [[row[name] for name in names] for row in json.loads(run("groups", "describe", group, "--json"))]

    wait_until(lambda: found() == expected, lambda: f"the broker's folder shows {expected}, not {found()}")
    records = [json.loads(line) for line in run("consume", "__consumer_offsets", "--format", "offsets").splitlines()]
    # Other tests have groups whose members say what no consumer would.
    wrong = [base64.b64decode(record["key_base64"]) for record in records if "error" in record]
    assert not [key for key in wrong if group.encode() in key]
    shows = {record["partition"]: record["committed"] for record in records if record.get("topic") == topic}
    assert shows == {0: 9, 1: 4}


def test_a_log_that_is_written_to_meanwhile(broker):
    """Each of its followers gets each record once and in order; old segments go at the same time."""
    make(broker, "live", internal_segment_bytes="14000", retention_bytes="60000")
    done = threading.Event()

    def write():
        with producer(broker, linger_ms=1) as found:
            for start in range(0, 6000, 50):
                send(found, "live", [Row(0, NOW, None, b"%d" % n * 10, ()) for n in range(start, start + 50)])
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        store, position, seen = Store.open(broker.log_dir), 0, []
        deadline = time.monotonic() + 2 * PATIENCE
        while (not done.is_set() or position < 6000) and time.monotonic() < deadline:
            try:
                for batch in store.read("live", 0, position):
                    seen += zip(batch["offset"].to_pylist(), batch["value"].to_pylist(), strict=True)
                    position = seen[-1][0] + 1
            except OffsetOutOfRangeError:
                position = max(store.earliest_offset("live", 0), position)
            time.sleep(0.01)
    finally:
        writer.join()
    assert position == 6000
    assert len(seen) > 500
    assert all(before[0] < after[0] for before, after in pairwise(seen))
    assert all(value == b"%d" % offset * 10 for offset, value in seen)


def test_a_topic_that_is_deleted_and_recreated(broker):
    make(broker, "passing")
    with producer(broker) as found:
        send(found, "passing", rows_of(400))
    store = shown(broker, "passing", 400)
    slow = store.read("passing", 0, max_bytes=1)
    first = next(slow)
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap) as admin:
        admin.delete_topics(["passing"])
    wait_until(lambda: "passing" not in store.topics(), "the topic has left the broker's folder")
    make(broker, "passing")
    with producer(broker) as found:
        send(found, "passing", rows_of(600))
    new = shown(broker, "passing", 600)
    # The segment that is open is read to its end; the others are those of another topic.
    seen = first["offset"].to_pylist()
    with pytest.raises(UnknownTopicError, match="the topic was deleted and recreated"):
        seen.extend(offset for part in slow for offset in part["offset"].to_pylist())
    assert seen == list(range(len(seen)))
    assert len(seen) < 400
    assert read(store, "passing") == read(new, "passing") == (rows_of(600), 600)


@pytest.mark.long
def test_the_end_after_a_shutdown(broker):
    """A broker that was shut down in order believes its files: what is damaged at their end counts, for us as well."""
    make(broker, "closed", 2)
    with producer(broker) as found:
        for partition in range(2):
            send(found, "closed", rows_of(10), partition)
    broker.stop()
    try:
        assert (broker.log_dir / ".kafka_cleanshutdown").exists()
        (path,) = (broker.log_dir / "closed-1").glob("*.log")
        data = path.read_bytes()
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        # That of a copy that was made without it; with it the end is known in any case.
        (broker.log_dir / HIGH_WATERMARK).unlink()
        store = Store.open(broker.log_dir)
        ends = [store.latest_offset("closed", partition) for partition in range(2)]
        assert len(read(store, "closed")[0]) == 10
        with pytest.raises(CorruptRecordError):
            read(store, "closed", 1)
    finally:
        broker.start()
    places = [KafkaPartition("closed", partition) for partition in range(2)]
    with KafkaConsumer(bootstrap_servers=broker.bootstrap) as consumer:
        told = consumer.end_offsets(places)
    assert ends == [told[place] for place in places] == [10, 10]
