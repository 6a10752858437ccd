"""How many requests a store in an object store makes: each costs money and some ten milliseconds."""

import collections
import contextlib
import json
import time

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pyspark_log import DefaultSource, Store
from pyspark_log.spark_connector.reading import stream_reader
from pyspark_log.spark_connector.reading.task_reader import read_partition
from tests.store_tools import observed_requests, rows, stage

PARTITIONS = 100


@pytest.fixture
def store(object_url):
    store = Store.create(object_url)
    store.create_topic("t", PARTITIONS, {"retention.ms": "-1"})
    return store


@contextlib.contextmanager
def counted(*, but=()):
    """Counts the requests in the block by their kinds; `but`: objects that do not count."""
    found = collections.Counter()
    with observed_requests(
        lambda request: None if request.is_done or request.key in but else found.update([request.kind])
    ):
        yield found


def everywhere(size, count=PARTITIONS):
    """A record of some bytes for each of `count` partitions."""
    return pa.record_batch({"value": [b"x" * size] * count, "partition": pa.array(range(count), pa.int32())})


@pytest.mark.parametrize("tasks", [5, 20])
def test_a_small_publish_is_one_request(store, tasks):
    plan = store.publishes.plan(["t"])
    with counted() as found:
        parts = [part for _ in range(tasks) for part in stage(store, everywhere(8000 // tasks), plan=plan)]
        store.publishes.publish("p", 0, parts)
    assert found == {"create": 1}
    with counted() as found:
        for number in range(1, 6):
            plan = store.publishes.plan(["t"])
            store.publishes.publish("p", number, stage(store, everywhere(10), plan=plan))
    # A plan looks at the topics as they are now.
    assert found == {"create": 5, "get": 5}


@pytest.mark.parametrize("tasks", [1, 5])
def test_tasks_with_more_have_an_object_each(store, tasks):
    plan = store.publishes.plan(["t"])
    with counted() as found:
        parts = [part for _ in range(tasks) for part in stage(store, everywhere(20_000), plan=plan)]
        store.publishes.publish("p", 0, parts)
    assert found == {"put": tasks, "create": 1}


def test_one_object_for_the_output_of_many_tasks_that_is_small(store):
    plan = store.publishes.plan(["t"])
    with counted() as found:
        parts = [part for _ in range(10) for part in stage(store, everywhere(2000), plan=plan)]
        store.publishes.publish("p", 0, parts)
    assert found == {"put": 1, "create": 1}


def test_a_publish_that_another_one_was_faster_than(store):
    store.publishes.publish("p", 0, stage(store, everywhere(1)))
    parts = stage(store, everywhere(1))
    other = Store.open(store.path)
    other.publishes.publish("q", 0, stage(other, everywhere(1)))
    with counted() as found:
        store.publishes.publish("p", 1, parts)
    # Lost; read to know whose it is, and taken in; won.
    assert found == {"create": 2, "get": 1}


# ---- a query


def reader_of(store, **options):
    given = {"path": store.path, "subscribe": "t", "startingOffsets": "earliest", "partitionspertask": "50", **options}
    source = DefaultSource(given)
    return source.streamReader(source.schema())


def through_json(offset):
    return json.loads(json.dumps(offset))


# `Store.shared` looks each ten seconds whether there is another store by now.
BUT = ["store.json"]


def test_a_query_that_waits_looks_once_a_second(store):
    store.append("t", everywhere(1))
    reader = reader_of(store)
    end = through_json(reader.latestOffset(through_json(reader.initialOffset()), ReadAllAvailable()))
    began, asked = time.monotonic(), 0
    with counted() as found:
        while time.monotonic() - began < 2.5 or asked < 50:
            assert reader.latestOffset(end, ReadAllAvailable()) == end
            asked += 1
    # The first one comes at once, as there was something before; and so may be the second.
    assert found["get"] <= 2 + (time.monotonic() - began) * 1.1
    assert found.keys() <= {"get", "create"}
    assert found["create"] <= 1  # its group's offsets


@pytest.mark.parametrize("decisions", [1, 7])
def test_a_trigger_reads_each_decision_once(store, decisions, monkeypatch):
    monkeypatch.setattr(stream_reader, "_POLL_SECONDS", 0)  # This one has no second to wait.
    writer, reader = Store.open(store.path), reader_of(store)
    end = through_json(reader.latestOffset(through_json(reader.initialOffset()), ReadAllAvailable()))
    for number in range(3):
        for _ in range(decisions):
            writer.append("t", everywhere(5))
        if number:
            with counted(but=BUT) as found:
                start, end = end, through_json(reader.latestOffset(end, ReadAllAvailable()))
                planned = reader.partitions(start, end)
                reader.commit(end)
            assert found == {"get": decisions + 1}
            with counted(but=BUT) as found:
                read = sum(part.num_rows for task in planned for part in read_partition(task))
            # Each task looks once for what it does not know yet, and reads each piece of its partitions.
            assert (len(planned), read) == (2, decisions * PARTITIONS)
            assert found == {"get": len(planned), "get_ranges": decisions * PARTITIONS}
        else:
            # The first time, its group's offsets are committed.
            end = through_json(reader.latestOffset(end, ReadAllAvailable()))
            reader.commit(end)


def test_a_batch_read_is_planned_by_one_look(store):
    store.append("t", everywhere(1))
    source = DefaultSource({"path": store.path, "subscribe": "t"})
    reader = source.reader(source.schema())
    Store.shared(store.path).topics()
    store.append("t", everywhere(1))
    with counted(but=BUT) as found:
        planned = reader.partitions()
    assert found == {"get": 2}
    assert sum(part.num_rows for task in planned for part in read_partition(task)) == 2 * PARTITIONS


# ---- Python


def test_questions(store):
    store.append("t", rows(b"a"), partition=0)
    for call, wanted in (
        (lambda: store.latest_offset("t", 0), {"get": 1}),
        (lambda: list(store.read("t", 0)), {"get": 1, "get_ranges": 1}),
        (lambda: store.offset_for_timestamp("t", 0, 0), {"get": 1, "get_ranges": 1}),
        (store.groups["g"].committed, {"get": 1}),
        (lambda: store.append("t", rows(b"a"), partition=0), {"get": 1, "create": 1}),
        (store.topics, {"get": 1}),
    ):
        with counted() as found:
            call()
        assert found == wanted


def test_a_topic_that_is_followed_is_looked_at_once_a_second(store):
    store.append("t", rows(b"a"), partition=0)
    topic, began = store.topic("t"), time.monotonic()
    with counted() as found:
        assert list(topic.follow(timeout=2.5)) == []
    assert found["get"] <= 4 + (time.monotonic() - began) * 1.1
    assert found.keys() == {"get"}
