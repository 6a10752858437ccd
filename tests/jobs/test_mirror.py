"""The job mirror, from store to store: records, topics, and the offsets of groups."""

import json

import pyarrow as pa
import pytest
from job_tools import T0, committed, fill

from pyspark_log import Store, TopicPartition
from pyspark_log.jobs import mirror
from pyspark_log.jobs.mirroring.syncs import SYNCS_TOPIC, load_syncs
from pyspark_log.storage.compaction import compact
from pyspark_log.storage.groups.log.records import encode_group_key
from tests.store_tools import faults
from tests.unit.group_tools import append, members

pytestmark = pytest.mark.slow


@pytest.fixture
def target(tmp_path):
    """The store that is written; the job makes it."""
    return tmp_path / "target"


@pytest.fixture
def run(spark, store, target, tmp_path, capsys):
    """Runs the job from the store into the target until all there is is mirrored; returns its summary, or its error."""

    def run_once(*arguments, code=0):
        given = (store.path, "--checkpoint", tmp_path / "checkpoint", "--until-now", "--json")
        given += ("--groups-interval", 3600)  # once, at the end: a slow run would count an offset that moves on twice
        assert mirror.main([str(one) for one in (target, *given, *arguments)]) == code
        printed = capsys.readouterr()
        return json.loads(printed.out) if not code else printed.err or json.loads(printed.out)["error"]

    return run_once


def records(store, topic):
    """Its records by partition, without offsets."""
    description, found = store.describe_topic(topic), []
    for partition in range(description.partitions):
        for batch in store.read(topic, partition, headers=True):
            rows = batch.select(["key", "value", "headers", "timestamp", "timestampType"]).to_pylist()
            found += [(partition, *row.values()) for row in rows]
    return found


def put(store, topic, rows, partition=0):
    """Appends rows of key, value, headers and time, one batch."""
    names = ("key", "value", "headers", "timestamp")
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    types = (pa.binary(), pa.binary(), pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})), pa.int64())
    arrays = {name: pa.array(columns[name], kind) for name, kind in zip(names, types, strict=True)}
    store.append(topic, pa.RecordBatch.from_pydict(arrays), partition=partition)


def changes(store, topic, count, keys=7):
    """Makes a topic whose offsets have gaps: values of few keys, with tombstones, compacted up to its last segment."""
    configs = {"cleanup.policy": "compact", "segment.bytes": "2000", "min.cleanable.dirty.ratio": "0.01"}
    store.create_topic(topic, 2, configs)
    for partition in range(2):
        for number in range(count):
            value = None if number % 5 == 4 else b"value %d" % number
            headers = [{"key": "h", "value": b"%d" % number}, {"key": "h", "value": None}] if number % 3 else None
            put(store, topic, [(b"%d" % (number % keys), value, headers, T0 + number)], partition)
    assert not [one.problem for one in compact(store.logs, topic) if one.problem]
    numbers = [row["offset"] for batch in store.read(topic, 0) for row in batch.to_pylist()]
    assert len(numbers) < numbers[-1] + 1 - 10, "there are no gaps"


def test_records_are_the_same_and_are_there_once(run, store, target):
    changes(store, "changes", 100)
    fill(store, "plain", 3, 50)
    store.create_topic("empty", 4)
    store.create_topic("times", 1, {"retention.ms": "-1"})
    put(store, "times", [(None, b"none", None, -1), (b"", b"", [], 0), (None, None, None, T0)])
    assert run("--topics", ".*")["records"] == sum(len(records(store, topic)) for topic in store.topics())
    fill(store, "plain", 3, 20)
    assert run("--topics", ".*")["records"] == 60
    assert run("--topics", ".*")["batches"] == 0
    there = Store.open(target)
    assert set(there.topics()) == {*store.topics(), SYNCS_TOPIC}
    for topic in store.topics():
        assert records(there, topic) == records(store, topic), topic
        assert there.describe_topic(topic).configs == store.describe_topic(topic).configs
        assert there.describe_topic(topic).partitions == store.describe_topic(topic).partitions
    assert faults(there.path) == []


def test_topics_and_partitions_that_come_later(run, store, target):
    fill(store, "a-1", 1, 10)
    fill(store, "other", 1, 10)
    run("--topics", "a-.*", "--rename", "east.")
    fill(store, "a-2", 2, 10)
    store.add_partitions("a-1", 3)
    fill(store, "a-1", 3, 5)
    run("--topics", "a-.*", "--rename", "east.")
    there = Store.open(target)
    assert set(there.topics()) == {"east.a-1", "east.a-2", SYNCS_TOPIC}
    for topic in ("a-1", "a-2"):
        assert records(there, f"east.{topic}") == records(store, topic)


def test_a_topic_that_is_there_keeps_its_configs(run, store, target):
    fill(store, "t", 2, 10)
    there = Store.create(target)
    there.create_topic("t", 3, {"retention.ms": "-1", "segment.bytes": "12345"})
    run("--topics", "t")
    assert there.describe_topic("t").configs == {"retention.ms": "-1", "segment.bytes": "12345"}
    assert there.describe_topic("t").partitions == 3
    assert records(there, "t") == records(store, "t")


def test_times_of_the_source_are_kept(run, store, target):
    """A topic that records the times of appends would give the records others."""
    store.create_topic("t", 1, {"message.timestamp.type": "LogAppendTime", "flush.ms": "1000", "retention.ms": "-1"})
    store.append("t", pa.record_batch({"value": [b"v"]}))
    run("--topics", "t")
    there = Store.open(target)
    assert there.describe_topic("t").configs == {"flush.ms": "1000", "retention.ms": "-1"}
    assert [row[:-1] for row in records(there, "t")] == [row[:-1] for row in records(store, "t")]


def test_a_micro_batch_that_is_done_again_is_there_once(run, store, target, tmp_path):
    """As if the driver had died before it noted that the last micro-batch is done."""
    fill(store, "t", 2, 50)
    run("--topics", "t", "--max-offsets", "40")
    before = load_syncs(Store.open(target), "mirror")
    for name in ("2", ".2.crc"):
        (tmp_path / "checkpoint/commits" / name).unlink(missing_ok=True)
    assert run("--topics", "t", "--max-offsets", "40")["records"] == 0
    assert load_syncs(Store.open(target), "mirror") == before
    fill(store, "t", 2, 10)
    assert run("--topics", "t")["records"] == 20
    there = Store.open(target)
    assert records(there, "t") == records(store, "t")
    assert {str(at): (one.source_offset, one.target_offset) for at, one in load_syncs(there, "mirror").items()} == {
        "t-0": (60, 60),
        "t-1": (60, 60),
    }


# ---- groups


def test_groups_resume_at_the_right_record(run, store, target):
    changes(store, "changes", 100)
    fill(store, "plain", 1, 50)
    there = Store.create(target)
    fill(there, "plain", 1, 7)  # so that offsets differ
    latest = store.latest_offset("changes", 0)
    at = {name: TopicPartition(name, 0) for name in ("changes", "plain")}
    store.groups["begin"].commit({at["changes"]: 0, at["plain"]: 0})
    store.groups["middle"].commit({at["changes"]: latest - 3, at["plain"]: 20})
    store.groups["end"].commit({at["changes"]: latest, at["plain"]: 50})
    store.groups["not asked for"].commit({at["plain"]: 5})
    assert run("--topics", ".*", "--groups", "^(begin|middle|end)$")["group_offsets"] == 6
    assert sorted(there.groups) == ["begin", "end", "middle"]
    offsets = {name: committed(there, name) for name in there.groups}
    assert offsets["begin"] == {"changes-0": 0, "plain-0": 7}
    assert offsets["end"] == {"changes-0": there.latest_offset("changes", 0), "plain-0": 57}
    assert offsets["middle"]["plain-0"] == 27
    assert left(there, "changes", offsets["middle"]["changes-0"]) == left(store, "changes", latest - 3)

    # On with more records, while a group is where it was, and another one moves on.
    fill(store, "plain", 1, 30)
    store.groups["end"].commit({at["plain"]: 77})
    assert run("--topics", ".*", "--groups", "^(begin|middle|end)$")["group_offsets"] == 1
    assert there.groups["end"].committed()[at["plain"]].offset == 84
    assert there.groups["begin"].committed()[at["plain"]].offset == 7


def left(store, topic, offset):
    """The values from an offset on."""
    return [row["value"] for batch in store.read(topic, 0, offset) for row in batch.to_pylist()]


def test_a_group_moves_neither_back_nor_while_it_is_in_use(run, store, target):
    fill(store, "t", 1, 50)
    at = TopicPartition("t", 0)
    store.groups["a"].commit({at: 40})
    store.groups["b"].commit({at: 40})
    run("--topics", "t", "--groups", ".")
    there = Store.open(target)
    store.groups["a"].commit({at: 10})
    there.groups["b"].commit({at: 3})  # a consumer there begins again
    store.groups["b"].commit({at: 45})
    fill(store, "t", 1, 5)
    assert run("--topics", "t", "--groups", ".")["group_offsets"] == 0
    assert there.groups["a"].committed()[at].offset == 40
    assert there.groups["b"].committed()[at].offset == 3


def test_a_group_with_members_is_left_alone(run, store, target):
    fill(store, "t", 1, 50)
    at = TopicPartition("t", 0)
    store.groups["g"].commit({at: 40})
    there = Store.create(target)
    there.groups["g"].commit({TopicPartition("other", 0): 1})
    append(there, "g", encode_group_key("g"), members("t"))
    assert run("--topics", "t", "--groups", ".")["group_offsets"] == 0
    append(there, "g", encode_group_key("g"), members())
    assert run("--topics", "t", "--groups", ".")["group_offsets"] == 1
    assert there.groups["g"].committed()[at].offset == 40


def test_a_group_beyond_what_is_mirrored_and_one_below_what_is_left(run, store, target):
    fill(store, "t", 1, 50)
    at = TopicPartition("t", 0)
    store.groups["below"].commit({at: 5})
    run("--topics", "t")
    there = Store.open(target)
    there.delete_records("t", 0, 20)
    fill(store, "t", 1, 5)
    store.groups["beyond"].commit({at: 55})
    assert load_syncs(there, "mirror")[at].translate(55) == 50
    run("--topics", "t", "--groups", ".")
    assert there.groups["below"].committed()[at].offset == 20
    assert there.groups["beyond"].committed()[at].offset == 55


# ---- what is refused


def test_a_second_checkpoint_is_refused(run, store, target, tmp_path):
    fill(store, "t", 1, 50)
    run("--topics", "t")
    error = run("--topics", "t", "--checkpoint", tmp_path / "another", code=1)
    assert "of query" in error
    assert records(Store.open(target), "t") == records(store, "t")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((), "Missing option '--topics'"),
        (("--topics", "["), "is not a regular expression"),
        (("--topics", "t", "--groups", "["), "is not a regular expression"),
        (("--topics", "t", "--name", ""), "needs a name"),
        (("--topics", "t", "--kafka-option", "a=b"), "No such option"),
    ],
)
def test_refused(store, target, tmp_path, capsys, arguments, error):
    given = (target, store.path, "--checkpoint", tmp_path / "checkpoint", *arguments)
    assert mirror.main(list(map(str, given))) == 2
    assert error in capsys.readouterr().err
    assert not target.exists()


def test_the_source_as_target_is_refused(store, tmp_path, capsys):
    given = (store.path, store.path, "--topics", "t", "--checkpoint", tmp_path / "checkpoint")
    assert mirror.main(list(map(str, given))) == 2
    assert "is also the source" in capsys.readouterr().err


def test_a_login_by_names_of_librdkafka_is_refused(target, tmp_path, capsys):
    (tmp_path / "login").write_text("security.protocol=SASL_SSL\nsasl.username=a\nsasl.password=b\n")
    given = (target, "kafka://localhost:9", "--topics", "t", "--checkpoint", tmp_path / "checkpoint")
    assert mirror.main(list(map(str, (*given, "--client-config", tmp_path / "login")))) == 2
    assert "sasl.password is a name of librdkafka" in capsys.readouterr().err
    assert not target.exists()
