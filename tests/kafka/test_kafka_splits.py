"""A partition that a broker wrote, read in pieces as the tasks of a query read it: at every split point the same."""

import time

import pyarrow as pa
import pytest
from kafka_clients import create_topics
from kafka_tools import PATIENCE
from test_kafka_reads import SMALL, cleaned, consumed, ended, producer, read, send, shown
from written import NOW, Row

from pyspark_log import DefaultSource
from pyspark_log.types import READ_COMMITTED, READ_UNCOMMITTED
from tests.waiting import wait_until

LEVELS = (READ_COMMITTED, READ_UNCOMMITTED)
TOPIC = "split"
# What `ends` makes.
RECORDS, MARKERS = 46, 8


def values(first, count, size=1):
    return [Row(0, NOW, None, b"%d" % number * size, ()) for number in range(first, first + count)]


@pytest.fixture(scope="module")
def ends(broker):
    """A log of transactions that are committed, aborted and open, over several segments; its ends by level."""
    create_topics(broker, {TOPIC: 1}, SMALL | {"internal.segment.bytes": "800"})
    # What stays open is so for as long as the tests run.
    ids = ({"transactional_id": name, "transaction_timeout_ms": 900_000} for name in ("split-1", "split-2"))
    with producer(broker, **next(ids)) as one, producer(broker, **next(ids)) as two:
        one.init_transactions()
        two.init_transactions()
        two.begin_transaction()
        send(two, TOPIC, values(100, 3))
        for number in range(6):
            one.begin_transaction()
            send(one, TOPIC, values(10 * number, 6, 30))
            if number == 4:
                # The marker of what was aborted comes segments after its first records.
                send(two, TOPIC, values(110, 2))
                two.abort_transaction()
            if number % 2:
                one.abort_transaction()
            else:
                one.commit_transaction()
        two.begin_transaction()
        send(two, TOPIC, values(200, 2))
        one.begin_transaction()
        send(one, TOPIC, values(60, 3))
        one.commit_transaction()
        # A producer gets the answer that a transaction has ended before its marker is there.
        wait_until(lambda: consumed(broker, TOPIC)[1] == RECORDS + MARKERS, f"{TOPIC}-0 has the last marker")
        yield {level: consumed(broker, TOPIC, level=level)[1] for level in LEVELS}
        two.abort_transaction()


@pytest.fixture(scope="module")
def store(broker, ends):
    return shown(broker, TOPIC, ends[READ_UNCOMMITTED])


def between(store, start, end, level, topic=TOPIC):
    parts = store.read(topic, 0, start, end, isolation_level=level)
    return [row for part in parts for row in zip(part["offset"].to_pylist(), part["value"].to_pylist(), strict=True)]


@pytest.mark.parametrize("level", LEVELS)
def test_every_split_point(broker, store, ends, level):
    end = ends[level]
    whole = between(store, 0, end, level)
    assert whole == [(row.offset, row.value) for row in consumed(broker, TOPIC, level=level)[0]]
    assert [len(whole), end < ends[READ_UNCOMMITTED]] == ([18, True] if level == READ_COMMITTED else [RECORDS, False])
    assert len(store.segment_files(TOPIC, 0)) > 5
    for cut in range(end + 1):
        assert between(store, 0, cut, level) + between(store, cut, end, level) == whole
    for start in range(end):
        assert between(store, start, start + 1, level) == [row for row in whole if row[0] == start]


def test_every_split_point_of_a_compacted_log(broker):
    """The cleaner takes aborted records and what is superseded, and rewrites the indexes of transactions."""
    topic = "split-compacted"
    compact = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.ms": "200",
        "internal.segment.bytes": "3000",
        "min.compaction.lag.ms": "0",
        "delete.retention.ms": "0",
    }
    create_topics(broker, {topic: 1}, SMALL | compact)
    sent, deadline = 0, time.monotonic() + 2 * PATIENCE
    with producer(broker, transactional_id="split-compacted") as found:
        found.init_transactions()
        while True:
            for number in range(sent, sent + 8):
                found.begin_transaction()
                rows = [Row(0, NOW, b"key %d" % (number * n % 11), b"%d" % number * 9, ()) for n in range(4)]
                send(found, topic, rows)
                if number % 3:
                    found.commit_transaction()
                else:
                    found.abort_transaction()
            sent += 8
            time.sleep(0.5)
            ended(broker, topic)
            end = consumed(broker, topic)[1]
            store = shown(broker, topic, end)
            left = {level: between(store, 0, end, level, topic) for level in LEVELS}
            if len(left[READ_UNCOMMITTED]) < 4 * sent - 60 and len(left[READ_COMMITTED]) < len(left[READ_UNCOMMITTED]):
                break
            assert time.monotonic() < deadline, "the cleaner does not run"
    # Segments become inactive by appends alone: then the cleaner has nothing more to do.
    cleaned(broker, topic)
    for level in LEVELS:
        whole = between(store, 0, end, level, topic)
        assert whole == [(row.offset, row.value) for row in consumed(broker, topic, level=level)[0]]
        for cut in range(end + 1):
            assert between(store, 0, cut, level, topic) + between(store, cut, end, level, topic) == whole


@pytest.mark.long
@pytest.mark.parametrize("level", LEVELS)
def test_every_number_of_tasks(store, ends, level):
    whole = None
    for count in range(1, ends[level] + 1):
        options = {"path": store.path, "subscribe": TOPIC, "kafka.isolation.level": level, "minPartitions": str(count)}
        source = DefaultSource(options)
        reader = source.reader(source.schema())
        tasks = reader.partitions()
        assert len(tasks) == count
        rows = pa.concat_tables(
            [pa.Table.from_batches(list(reader.read(task)), source_schema(store)) for task in tasks]
        ).to_pylist()
        whole = rows if whole is None else whole
        assert rows == whole
    assert len(whole) == len(read(store, TOPIC, level=level)[0])


def source_schema(store):
    return next(store.read(TOPIC, 0)).schema
