"""Records that do not fit their schema go to a topic, each once, whichever attempts of a task read them."""

import itertools
import json
from dataclasses import replace

import pyarrow as pa
import pytest

from pyspark_log import DefaultSource, Store
from pyspark_log.spark_connector.errors import ConnectorError
from pyspark_log.spark_connector.reading import dead_letters, task_reader
from pyspark_log.storage.groups import NEVER

SCHEMA = json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}})
OPTIONS = {
    "subscribe": "t", "startingOffsets": "earliest", "valueFormat": "json", "valueSchema": SCHEMA,
    "onBadRecord": "topic", "deadLetterTopic": "bad",
}  # fmt: skip
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TIME = 1_000  # long past each retention


def append(store, values, topic="t"):
    columns = {
        "key": pa.array([b"k%d" % at for at in range(len(values))]),
        "value": pa.array(values, pa.binary()),
        "headers": pa.array([[("own", b"x")]] * len(values), HEADERS),
        "timestamp": pa.array([TIME] * len(values), pa.timestamp("ms")),
    }
    store.append(topic, pa.record_batch(columns), partition=0)


def good(number):
    return json.dumps({"n": number}).encode()


@pytest.fixture
def store(place):
    store = Store.create(place)
    store.create_topic("t", 1, {"retention.ms": "-1"})
    return store


def source_of(store, **options):
    return DefaultSource({"path": store.path, **OPTIONS, **options})


def planned(store, start=None, **options):
    """The end of a micro-batch, and its one task, with the group that the checkpoint would have."""
    source = source_of(store, **options)
    reader = source.streamReader(source.schema())
    start = start or reader.initialOffset()
    end = reader._next_end(start, is_limited=True)
    (task,) = reader.partitions(start, end)
    return end, task


def rows_of(batches):
    return [row["value"] and row["value"]["n"] for batch in batches for row in batch.to_pylist()]


def letters(store):
    """The dead letters: their values, and what their headers say."""
    rows = store.topic("bad").read(headers=True).to_table().sort_by("offset").to_pylist()
    return [(row["value"], {header["key"]: header["value"] for header in row["headers"]}) for row in rows]


def test_a_bad_record_goes_to_the_topic_with_its_place_and_the_reason(store):
    append(store, [good(0), b"no json", None])
    _, task = planned(store)
    assert rows_of(task_reader.read_partition(task)) == [0, None]
    (row,) = store.topic("bad").read(headers=True).to_table().to_pylist()
    assert (row["key"], row["value"], row["timestamp"].timestamp()) == (b"k1", b"no json", TIME / 1000)
    headers = {header["key"]: header["value"] for header in row["headers"]}
    assert headers.pop("__pylog.errors.message").startswith(b"it is no JSON")
    assert headers == {
        "own": b"x", "__pylog.errors.topic": b"t", "__pylog.errors.partition": b"0", "__pylog.errors.offset": b"1",
        "__pylog.errors.part": b"value",
    }  # fmt: skip
    (group,) = (name for name in store.groups if name.endswith("-dead-letters"))
    ((at, committed),) = store.groups[group].committed().items()
    assert (at.topic.startswith("t-"), committed.offset) == (True, 2)
    # In an object store no offset expires.
    assert committed.expire_timestamp == (NEVER if store.path.startswith("/") else -1)


def test_attempts_of_a_task_in_any_order_publish_each_bad_record_once(store, monkeypatch):
    """Two attempts read three batches each, one of which has no bad record, and take their turns."""
    monkeypatch.setattr(dead_letters, "_MOST_BYTES", 1)  # it publishes with each batch
    monkeypatch.setattr(task_reader, "_BATCH_BYTES", 1)
    for turns in sorted(set(itertools.permutations("aaaabbbb")))[::6]:
        if "bad" in store.topics():
            store.delete_topic("bad")
        for values in ([b"x0", good(1)], [good(2)], [b"x3", b"x4"]):
            append(store, values)
        _, task = planned(store, startingOffsets=json.dumps({"t": {"0": store.latest_offset("t", 0) - 5}}))
        attempts = {name: task_reader.read_partition(task) for name in "ab"}
        for turn in turns:
            next(attempts[turn], None)
        assert [value for value, _ in letters(store)] == [b"x0", b"x3", b"x4"], turns


def test_an_attempt_that_another_one_overtakes_publishes_what_is_left(store, monkeypatch):
    """Between its look at the committed offset and its publish the other one has published a part."""
    append(store, [b"x0", good(1), b"x2"])
    _, task = planned(store)
    overtaking = []
    plan = type(store.publishes).plan

    def overtaken(publishes, topics, *arguments, **named):
        if not overtaking:
            overtaking.append(True)
            # One that stops after the first of both, as if it was killed then.
            monkeypatch.setattr(dead_letters, "_MOST_BYTES", 1)
            monkeypatch.setattr(task_reader, "_BATCH_BYTES", 1)
            assert rows_of(task_reader.read_partition(replace(task, range=replace(task.range, end=2)))) == [1]
        return plan(publishes, topics, *arguments, **named)

    monkeypatch.setattr(type(store.publishes), "plan", overtaken)
    assert rows_of(task_reader.read_partition(task)) == [1]
    assert [value for value, _ in letters(store)] == [b"x0", b"x2"]


def test_micro_batches_that_are_run_again_and_a_new_checkpoint(store):
    append(store, [b"x0", good(1)])
    first, task = planned(store)
    append(store, [b"x2", good(3)])
    for _ in range(2):
        list(task_reader.read_partition(task))
    for _ in range(2):
        _, task = planned(store, first)
        assert rows_of(task_reader.read_partition(task)) == [3]
    assert [value for value, _ in letters(store)] == [b"x0", b"x2"]
    _, task = planned(store)
    list(task_reader.read_partition(task))
    assert [value for value, _ in letters(store)] == [b"x0", b"x2"] * 2


def test_a_topic_that_is_recreated_begins_again(store):
    named = {"kafka.group.id": "g"}
    for value in (b"old", b"new"):
        append(store, [value])
        _, task = planned(store, **named)
        list(task_reader.read_partition(task))
        store.delete_topic("t")
        store.create_topic("t", 1, {"retention.ms": "-1"})
    assert [value for value, _ in letters(store)] == [b"old", b"new"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"onBadRecord": "fail"}, "onBadRecord=topic and deadLetterTopic go together"),
        ({"deadLetterTopic": ""}, "onBadRecord=topic and deadLetterTopic go together"),
        ({"deadLetterTopic": "a/b"}, "PYLOG_INVALID_TOPIC"),
        ({"deadLetterTopic": "__consumer_offsets"}, "PYLOG_INVALID_TOPIC"),
        ({"minPartitions": "4"}, "minPartitions: the bad records of a partition are published in order"),
        ({"deadLetterTopic": "t"}, "the query reads t, so it would read its own bad records"),
    ],
)
def test_dead_letters_that_are_refused(tmp_path, options, problem):
    store = Store.create(tmp_path / "store")
    store.create_topic("t", 1)
    append(store, [b"x"])
    with pytest.raises(ConnectorError, match=problem):
        planned(store, **options)
    assert store.topics() == ["t"]


def test_a_batch_read_would_write_with_each_action(tmp_path):
    store = Store.create(tmp_path / "store")
    store.create_topic("t", 1)
    source = source_of(store)
    with pytest.raises(ConnectorError, match=r"streaming queries.*onBadRecord=null, and write the rows whose value_b"):
        source.reader(source.schema())
