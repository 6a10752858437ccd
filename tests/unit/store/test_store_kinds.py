"""What holds for a store of either kind: in a folder, and in an object store."""

import contextlib
import os
import shutil
import threading
import time
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from pyspark_log import LATEST, Store, TopicPartition
from pyspark_log.clients import Producer
from pyspark_log.errors import (
    InvalidConfigError,
    InvalidRecordError,
    InvalidTopicError,
    OffsetConflictError,
    OffsetOutOfRangeError,
    PublisherFencedError,
    PublishNumberError,
    RecordTooLargeError,
    StagedOutputError,
    StoreExistsError,
    StoreNotFoundError,
    TopicExistsError,
    UnknownGroupError,
    UnknownTopicError,
)
from pyspark_log.storage.publish.decision import NO_NUMBER
from pyspark_log.types import OffsetStep
from tests.processes import PROCESSES, run_at_once
from tests.store_tools import all_values, rows, stage, values

AT = TopicPartition("t", 0)


@pytest.fixture
def store(place):
    store = Store.create(place, {"offsets.topic.num.partitions": "1"})
    store.create_topic("t", 3, {"retention.ms": "-1"})
    return store


def publish(store, number, *wanted, publisher="p", **more):
    return store.publishes.publish(publisher, number, stage(store, rows(*wanted)) if wanted else [], **more)


# ---- opening


def test_a_folder_that_is_gone_has_no_topics(tmp_path):
    store = Store.create(tmp_path / "store")
    (tmp_path / "store" / "store.json").write_text("{")
    assert store.topics() == []  # as for `verify`, which reports that
    shutil.rmtree(tmp_path / "store")
    with pytest.raises(StoreNotFoundError, match="is gone"):
        store.topics()


def test_a_store_is_found_again(store):
    store.append("t", rows(b"a"), partition=0)
    for again in (Store.open(store.path), Store.open_or_create(store.path), Store.shared(store.path)):
        assert (again.cluster_id, again.path, repr(again)) == (store.cluster_id, store.path, repr(store))
        assert values(again) == [b"a"]
    assert Store.shared(store.path) is Store.shared(store.path)
    with pytest.raises(StoreExistsError, match=store.path):
        Store.create(store.path)
    with Store.open(store.path) as other:
        other.append("t", rows(b"b"), partition=0)
    other.flush()
    assert values(store) == [b"a", b"b"]


def test_a_store_that_is_not_there(place):
    for how in (Store.open, Store.shared):
        with pytest.raises(StoreNotFoundError, match=place):
            how(place)
    with pytest.raises(InvalidConfigError, match=r"no\.such\.config"):
        Store.create(place, {"no.such.config": "1"})
    Store.open_or_create(place, {"num.partitions": "4"}).create_topic("t")
    assert Store.open(place).describe_topic("t").partitions == 4


# ---- topics


def test_topics_are_made_and_deleted(store):
    other = Store.open(store.path)
    store.create_topic("u", 2, {"segment.bytes": "1000"})
    assert other.topics() == ["t", "u"]
    assert other.describe_topic("u").configs == {"segment.bytes": "1000"}
    with pytest.raises(TopicExistsError, match="topic 'u' exists already"):
        other.create_topic("u", 1)
    store.append("u", rows(b"a"))
    store.delete_topic("u")
    for call in (other.describe_topic, other.delete_topic, other.topic, other.flush):
        with pytest.raises(UnknownTopicError):
            call("u")
    before = store.create_topic("u", 1).topic_id
    assert (all_values(other, "u"), other.describe_topic("u").topic_id) == ([], before)
    assert (store.ensure_topic("u"), store.ensure_topic("new"), store.ensure_topic("new")) == (False, True, False)
    wide = {"partitions": 3, "configs": {"retention.ms": "-1"}}
    assert (store.ensure_topic("u", **wide), store.ensure_topic("wide", **wide)) == (False, True)
    made = store.describe_topic("wide")
    assert (made.partitions, made.configs, store.describe_topic("u").partitions) == (3, wide["configs"], 1)


def test_a_topic_is_made_as_asked_where_writes_make_none(place):
    with Store.create(place, {"auto.create.topics.enable": "false"}) as strict:
        with pytest.raises(UnknownTopicError):
            strict.ensure_topic("t")
        assert (strict.ensure_topic("t", 2), strict.ensure_topic("u", configs={"retention.ms": "-1"})) == (True, True)


def test_arguments_of_other_types(store):
    with pytest.raises(InvalidConfigError, match=r"retention\.ms = -1: must be a text, as '-1'"):
        store.create_topic("u", 1, {"retention.ms": -1})
    with pytest.raises(InvalidConfigError, match="'2' partitions; it can have 1 to"):
        store.ensure_topic("u", "2")
    assert store.topics() == ["t"]


@pytest.mark.parametrize("name", ["", "a/b", "..", "x" * 250])
def test_names_that_no_topic_can_have(store, name):
    for call in (
        store.create_topic,
        store.describe_topic,
        store.delete_topic,
        store.ensure_topic,
        lambda one: store.add_partitions(one, 9),
        lambda one: store.alter_configs(one, {}),
    ):
        with pytest.raises(InvalidTopicError):
            call(name)


@pytest.mark.parametrize("name", ["__consumer_offsets", "__pylog_publish"])
def test_topics_of_the_engine_are_not_changed(store, name):
    publish(store, 0, b"a", steps=[OffsetStep("g", AT, None, 5)])
    for call in (
        lambda: store.delete_topic(name),
        lambda: store.add_partitions(name, 60),
        lambda: store.alter_configs(name, {"segment.ms": "1"}),
        lambda: store.append(name, rows(b"a")),
        lambda: store.delete_records(name, 0, 0),
        lambda: store.publishes.plan([name]),
    ):
        with pytest.raises(InvalidTopicError):
            call()


def test_partitions_are_added_and_never_taken_away(store):
    other = Store.open(store.path)
    with pytest.raises(UnknownTopicError, match="no partition 4; it has 3"):
        other.append("t", rows(b"x"), partition=4)
    grow = store.add_partitions
    grown = grow("t", 5)
    assert (grown.partitions, grown.topic_id) == (5, other.describe_topic("t").topic_id)
    other.append("t", rows(b"x"), partition=4)
    assert values(store, 4) == [b"x"]
    for total in (5, 2, 0):
        with pytest.raises(InvalidConfigError, match=rf"has 5 partitions; it can get more, not {total}"):
            grow("t", total)
    for call, *wrong in ((store.create_topic, "u", 0), (store.create_topic, "u", 100_001), (grow, "t", 100_001)):
        with pytest.raises(InvalidConfigError, match="it can have 1 to 100000"):
            call(*wrong)
    assert store.describe_topic("t") == grown
    with pytest.raises(UnknownTopicError):
        grow("missing", 9)


def test_configs_are_changed_and_reset(store):
    store.alter_configs("t", {"segment.bytes": "5000", "segment.ms": "5"})
    changed = store.alter_configs("t", {"segment.ms": "7"}, delete=["segment.ms", "segment.bytes"])
    assert changed.configs == Store.open(store.path).describe_topic("t").configs == {
        "retention.ms": "-1", "segment.ms": "7"
    }  # fmt: skip
    # Nothing of what is refused is changed.
    unknown = "no topic config 'segmnt.ms'; did you mean 'segment.ms'"
    for configs, delete, why in (
        ({"retention.ms": "x"}, [], r"retention\.ms = 'x'"),
        ({"segmnt.ms": "1"}, [], unknown),
        ({}, ["segmnt.ms"], unknown),
    ):
        with pytest.raises(InvalidConfigError, match=why):
            store.alter_configs("t", {"segment.bytes": "100", **configs}, delete)
    with pytest.raises(UnknownTopicError):
        store.alter_configs("missing", {"segment.ms": "1"})
    assert Store.open(store.path).describe_topic("t") == changed


def _change(environment, path, first):
    os.environ.update(environment)  # It says where objects are.
    store = Store.open(path)
    for number in range(first, first + 12, 3):
        store.create_topic(f"n{number}", 1)
        with contextlib.suppress(InvalidConfigError):  # Another one was faster, and it has more.
            store.add_partitions("t", 4 + number)
        store.alter_configs("t", {("segment.ms", "segment.jitter.ms", "segment.bytes")[number % 3]: f"{1000 + number}"})
        store.append("t", rows(b"%d" % number), partition=0)


@pytest.mark.usefixtures("object_server")
def test_processes_that_change_a_store_at_once(store):
    where = dict(os.environ), store.path
    processes = [PROCESSES.Process(target=_change, args=(*where, first)) for first in range(3)]
    run_at_once(processes)
    assert store.topics() == sorted(["t", *(f"n{number}" for number in range(12))])
    wanted = {"retention.ms": "-1", "segment.ms": "1009", "segment.jitter.ms": "1010", "segment.bytes": "1011"}
    assert (store.describe_topic("t").configs, store.describe_topic("t").partitions) == (wanted, 15)
    assert sorted(map(int, values(store))) == [*range(12)]


# ---- records


def test_an_append_of_no_rows(store):
    nothing = pa.record_batch({"value": pa.array([], pa.binary())})
    assert store.append("t", nothing) == store.append("t", pa.Table.from_batches([nothing])) == []
    with pytest.raises(UnknownTopicError):
        store.append("missing", nothing)
    assert store.latest_offset("t", 0) == 0


def test_appends_that_are_refused(store):
    for bad, error in (
        ({"value": [b"a"], "partition": pa.array([3], pa.int32())}, InvalidRecordError),
        ({"valu": [b"a"]}, InvalidRecordError),
        ({"value": [b"x" * 2_000_000]}, RecordTooLargeError),
    ):
        with pytest.raises(error, match="t"):
            store.append("t", pa.record_batch(bad))
    with pytest.raises(InvalidConfigError, match=r"compression\.type = 'brotli'"):
        store.append("t", rows(b"a"), compression_type="brotli")
    for partition in (3, -1):
        with pytest.raises(UnknownTopicError, match=f"no partition {partition}; it has 3"):
            store.append("t", rows(b"a"), partition=partition)
    assert all_values(store) == []


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_codecs(store, codec):
    store.append("t", rows(*[b"v" * 1000] * 50), partition=0, compression_type=codec)
    assert values(store) == [b"v" * 1000] * 50
    assert (store.partitions.size("t", 0) > 50_000) == (codec == "none")


@pytest.mark.parametrize("how", ["append", "publish"])
def test_the_time_of_the_append(store, how):
    store.create_topic("l", 1, {"message.timestamp.type": "LogAppendTime"})
    data = rows(b"a", b"b").append_column("timestamp", pa.array([1000, 2000], pa.int64()))
    before = time.time_ns() // 1_000_000
    if how == "append":
        store.append("l", data)
    else:
        store.publishes.publish("p", 0, stage(store, data, "l"))
    after = time.time_ns() // 1_000_000
    (batch,) = store.read("l", 0)
    assert batch["timestampType"].to_pylist() == [1, 1]
    times = {round(one.timestamp() * 1000) for one in batch["timestamp"].to_pylist()}
    assert len(times) == 1
    assert before <= times.pop() <= after
    assert store.offset_for_timestamp("l", 0, before).offset == 0
    assert store.offset_for_timestamp("l", 0, after + 1) is None


def test_parts_of_a_partition(store):
    for number in range(6):
        store.append("t", rows(b"%d" % (2 * number), b"%d" % (2 * number + 1)), partition=0)
    assert values(store, start=3, end=8) == [b"3", b"4", b"5", b"6", b"7"]
    assert values(store, start=LATEST) == values(store, start=5, end=5) == []
    assert values(store, max_bytes=1) == [b"%d" % number for number in range(12)]
    for bounds in ((13, None), (0, 13), (-5, None)):
        with pytest.raises(OffsetOutOfRangeError) as caught:
            values(store, start=bounds[0], end=bounds[1])
        assert (caught.value.log_start, caught.value.log_end) == (0, 12)
    for call in (store.earliest_offset, store.latest_offset, lambda *at: list(store.read(*at))):
        for where in (("t", 3), ("t", -1), ("missing", 0)):
            with pytest.raises(UnknownTopicError):
                call(*where)
    for bad in ({"max_bytes": 0}, {"isolation_level": "read_all"}, {"columns": ["valu"]}):
        with pytest.raises(InvalidConfigError):
            values(store, **bad)


def test_a_topic_is_deleted_by_its_id(store):
    before = store.create_topic("u", 1).topic_id
    store.delete_topic("u", topic_id=before)
    after = store.create_topic("u", 1).topic_id
    with pytest.raises(UnknownTopicError, match=before):
        store.delete_topic("u", topic_id=before)
    assert store.describe_topic("u").topic_id == after


def test_records_are_deleted_up_to_an_offset(store):
    for number in range(4):
        store.append("t", rows(b"%d" % (2 * number), b"%d" % (2 * number + 1)), partition=0)
    reading = store.read("t", 0)
    assert store.delete_records("t", 0, 3) == 3
    assert store.delete_records("t", 0, 1) == 3
    assert (values(store), store.earliest_offset("t", 0)) == ([b"%d" % number for number in range(3, 8)], 3)
    assert sum(batch.num_rows for batch in reading) == 8  # It was begun before.
    for wrong in (9, -3):
        with pytest.raises(OffsetOutOfRangeError):
            store.delete_records("t", 0, wrong)
    with pytest.raises(OffsetOutOfRangeError):
        values(store, start=2)
    assert store.delete_records("t", 0, LATEST) == 8
    assert (values(store), store.latest_offset("t", 0)) == ([], 8)
    store.append("t", rows(b"8"), partition=0)
    assert store.topic("t").read(partitions=[0]).to_table()["offset"].to_pylist() == [8]
    store.create_topic("c", 1, {"cleanup.policy": "compact"})
    with pytest.raises(InvalidConfigError, match=r"cleanup\.policy"):
        store.delete_records("c", 0, 0)


def test_times(store):
    times = [3000, 1000, 4000, 2000, 5000]
    for one in times:
        store.append("t", [{"value": b"x", "timestamp": one}], partition=0)
    found = [store.offset_for_timestamp("t", 0, at) for at in (0, 3001, 4000, 5000, 5001)]
    assert [one and (one.offset, one.timestamp) for one in found] == [(0, 3000), (2, 4000), (2, 4000), (4, 5000), None]
    store.delete_records("t", 0, 3)
    assert store.offset_for_timestamp("t", 0, 3001).offset == 4
    for wrong in (-1, 1 << 63):
        with pytest.raises(InvalidConfigError):
            store.offset_for_timestamp("t", 0, wrong)
    since = datetime.fromtimestamp(2, UTC)
    assert store.topic("t").read(since, partitions=[0]).to_table()["offset"].to_pylist() == [3, 4]


# ---- publishes


def test_a_producer_of_single_records(store):
    store.create_topic("one", 1)
    with Producer(store) as producer:
        results = [producer.send("one", b"%d" % number).result() for number in range(3)]
        producer.send("one", b"last")
    assert [one.offset for one in results] == [0, 1, 2]
    assert values(store, topic="one") == [b"0", b"1", b"2", b"last"]


def test_a_publish_is_there_once(store):
    parts = stage(store, rows(b"a", b"b", b"c"))
    assert all_values(store) == []
    result = store.publishes.publish("p", 4, parts)
    assert (result.replayed, result.records) == (False, 3)
    again = publish(store, 4, b"x", b"y", b"z")
    assert (again.replayed, again.records, again.decision) == (True, 3, result.decision)
    for number in (0, 3, 6, -1):
        with pytest.raises(PublishNumberError, match=f"number {number}( after 4|: numbers begin)"):
            publish(store, number, b"x")
    assert publish(store, 5).records == 0
    assert sorted(all_values(Store.open(store.path))) == [b"a", b"b", b"c"]
    assert [(one.publisher, one.number, one.records) for one in store.publishes.publishers()] == [("p", 5, 0)]


def test_one_publish_in_itself(store):
    publish(store, 0, b"a", publisher="once", one_off=True)
    assert (all_values(store), store.publishes.publishers()) == ([b"a"], [])


def test_runs_are_fenced(store):
    assert store.publishes.claim("p", "one", 0) == NO_NUMBER
    publish(store, 0, b"a", run="one", claimed=True)
    other = Store.open(store.path)
    assert other.publishes.claim("p", "two", 1) == 0
    with pytest.raises(PublisherFencedError, match="run one was replaced by run two"):
        publish(store, 1, b"x", run="one", claimed=True)
    with pytest.raises(PublisherFencedError):
        store.publishes.check_claim("p", "one")
    other.publishes.check_claim("p", "two")
    with pytest.raises(PublishNumberError):
        store.publishes.claim("p", "three", 7)
    publish(other, 1, b"b", run="two", claimed=True, location="here", plan="q")
    with pytest.raises(PublishNumberError, match="with other input"):
        publish(other, 1, b"b", run="two", claimed=True, location="here", plan="r")
    with pytest.raises(PublisherFencedError, match="belongs to the checkpoint here"):
        publish(store, 2, b"x", location="there")
    assert store.publishes.claim("p", "four", 0, location="there", take_over=True) == NO_NUMBER
    publish(store, 0, b"c", run="four", claimed=True, location="there")
    assert sorted(all_values(store)) == [b"a", b"b", b"c"]


def test_offsets_move_with_a_publish_or_not_at_all(store):
    publish(store, 0, b"a", steps=[OffsetStep("g", AT, None, 5)])
    with pytest.raises(OffsetConflictError) as caught:
        publish(store, 1, b"x", steps=[OffsetStep("g", AT, 4, 9)])
    assert (caught.value.expected, caught.value.found) == (4, 5)
    store.groups["g"].commit({AT: 7})
    publish(store, 1, b"b", steps=[OffsetStep("g", AT, 7, 9), OffsetStep("h", AT, None, 1)])
    assert publish(store, 1, b"b", steps=[OffsetStep("g", AT, 7, 9)]).replayed
    found = {name: store.groups[name].committed()[AT].offset for name in store.groups}
    assert (found, sorted(all_values(store))) == ({"g": 9, "h": 1}, [b"a", b"b"])


@pytest.mark.parametrize("large", [False, True])
def test_a_topic_that_goes_while_a_job_stages(store, large):
    value = b"x" * (1000 if large else 1)
    plan = store.publishes.plan(["t"])
    parts = stage(store, rows(*[value] * 1000), plan=plan)
    assert bool(parts[0].file) == large
    store.delete_topic("t")
    store.create_topic("t", 3)
    with pytest.raises(StagedOutputError, match=r"deleted (or|and) recreated"):
        store.publishes.publish("p", 0, parts)
    assert all_values(store) == []
    store.publishes.publish("p", 0, stage(store, rows(b"a")))
    assert all_values(store) == [b"a"]


def test_parts_keep_the_order_of_tasks_and_rows(store):
    plan, parts, wanted = store.publishes.plan(["t"]), [], []
    for task in range(4):
        writer = store.publishes.writer(plan)
        for chunk in range(3):
            # Every second task has more than stays in memory.
            found = [b"%d/%d/%04d" % (task, chunk, row) + b"." * (task % 2 * 300) for row in range(1000)]
            writer.append("t", pa.record_batch({"value": found, "key": [b"k"] * 1000}))
            wanted += found
        parts += writer.finish()
    assert {bool(part.file) for part in parts} == {False, True}
    store.publishes.publish("p", 0, parts)
    assert all_values(store) == wanted


def test_staged_output_that_is_given_up(store):
    writer = store.publishes.writer(store.publishes.plan(["t"]))
    writer.append("t", rows(*[b"x" * 1000] * 1000))
    parts = writer.finish()
    store.publishes.discard(parts)
    with pytest.raises(UnknownTopicError):
        store.publishes.plan(["missing"])
    assert all_values(store) == []


@pytest.mark.parametrize("name", ["ein Verlag — 出版社 🙂", "a/b\n", "x" * 200])
def test_names_of_publishers_and_groups(store, name):
    publish(store, 0, b"a", publisher=name, steps=[OffsetStep(name, AT, None, 5)])
    other = Store.open(store.path)
    assert publish(other, 0, b"a", publisher=name).replayed
    assert [one.publisher for one in other.publishes.publishers()] == [name]
    assert (list(other.groups), other.groups[name].committed()[AT].offset) == ([name], 5)


# ---- groups


def test_commits_of_a_group(store):
    group, other = store.groups["g"], TopicPartition("u", 4)
    group.commit({AT: 5, other: 6}, "note")
    group.commit({AT: 7}, expected={AT: 5, other: 6})
    with pytest.raises(OffsetConflictError):
        group.commit({AT: 8}, expected={AT: 5})
    for wrong in ({AT: -1}, {AT: 1 << 63}):
        with pytest.raises(InvalidConfigError):
            group.commit(wrong)
    with pytest.raises(InvalidConfigError):
        group.commit({AT: 1}, "x" * 5000)
    with pytest.raises(InvalidConfigError):
        store.groups[""].commit({AT: 1})
    found = Store.open(store.path).groups["g"].committed()
    assert {at: (one.offset, one.metadata) for at, one in found.items()} == {AT: (7, ""), other: (6, "note")}
    assert group.delete_offsets([other, TopicPartition("t", 1)]) == [other]
    with pytest.raises(UnknownGroupError, match="none"):
        store.groups["none"].delete()
    group.delete()
    assert (len(store.groups), group.describe().state.value) == (0, "Dead")


def test_what_groups_committed_for_a_topic_is_deleted_with_it(store):
    store.create_topic("u", 1)
    stays = TopicPartition("u", 0)
    store.groups["both"].commit({AT: 5, TopicPartition("t", 2): 6, stays: 7})
    store.groups["only"].commit({AT: 8})
    other = Store.open(store.path)
    assert sorted(other.groups) == ["both", "only"]
    store.delete_topic("t")
    store.create_topic("t", 3)
    assert {at: one.offset for at, one in other.groups["both"].committed().items()} == {stays: 7}
    assert list(other.groups) == list(store.groups) == ["both"]
    assert store.groups["only"].committed() == {}
    # What is committed for the new topic is the first thing that is committed for it.
    other.groups["only"].commit({AT: 1}, expected={AT: None})
    assert store.groups["only"].committed()[AT].offset == 1


def test_a_group_of_very_many_partitions_and_very_many_groups(store):
    offsets = {TopicPartition("t", number): number for number in range(3000)}
    store.groups["large"].commit(offsets)
    for number in range(100):
        store.groups[f"g{number}"].commit({AT: number})
    other = Store.open(store.path)
    assert {at: one.offset for at, one in other.groups["large"].committed().items()} == offsets
    assert [other.groups[f"g{number}"].committed()[AT].offset for number in range(100)] == [*range(100)]
    assert len(other.groups) == 101


# ---- threads


def test_threads_that_write_and_read_one_store(store):
    """What a thread reads is whole, whatever others decide meanwhile."""
    done = threading.Event()

    def write(name):
        for number in range(15):
            publish(store, number, *[b"%s %d" % (name, number)] * 5, publisher=name.decode())

    def read():
        while not done.is_set():
            for partition in range(3):
                found = [offset for batch in store.read("t", partition) for offset in batch["offset"].to_pylist()]
                assert found == [*range(len(found))]
                store.partitions.describe("t", partition)
                list(store.groups)

    writers = [threading.Thread(target=write, args=(name,)) for name in (b"a", b"b", b"c")]
    reader = threading.Thread(target=read)
    reader.start()
    run_at_once(writers)
    done.set()
    reader.join()
    assert len(all_values(store)) == 3 * 15 * 5


def test_what_is_no_place_of_a_store(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    for name, why in (
        ("file", "it is a file"),
        ("none", "there is no such folder"),
        ("empty", "it holds no store.json"),
    ):
        with pytest.raises(StoreNotFoundError, match=f"{name} is no store: {why}"):
            Store.open(tmp_path / name)
    with pytest.raises(
        InvalidConfigError, match=r"ftp://x/y: a store is a folder .* or in an object store \(s3://, gs"
    ):
        Store.open("ftp://x/y")
