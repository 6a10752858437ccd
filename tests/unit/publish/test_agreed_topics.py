"""Topics that a write's plan does not have: its tasks agree on them, whatever happens meanwhile."""

import os
import pickle

import pyarrow as pa
import pytest

from pyspark_log import Store
from pyspark_log.errors import InvalidTopicError, StagedOutputError, UnknownTopicError
from pyspark_log.storage.ingest.partitioner import murmur2
from pyspark_log.storage.log_manager.topics import TopicAdmin
from pyspark_log.storage.maintenance import janitor
from pyspark_log.storage.maintenance.verify.store import verify
from pyspark_log.storage.publish.staging import StagedWriter, StagingPlan
from pyspark_log.storage.publish.staging.agreed_topics import agree
from pyspark_log.storage.publish.staging.staged_file import Job
from tests.processes import PROCESSES
from tests.store_tools import publish

KEYS = [b"%d" % number for number in range(40)]
ROWS = pa.record_batch({"key": KEYS, "value": KEYS})


@pytest.fixture
def store(tmp_path):
    return Store.create(tmp_path / "store", {"num.partitions": "3"})


def task(store, plan):
    """The writer of one task, to which the plan has travelled."""
    return StagedWriter(store.logs, pickle.loads(pickle.dumps(plan)))


def open_plan(store, topics=()):
    return StagingPlan.make(store.logs, topics, others=True)


def partitions_of_keys(parts, store):
    """Publishes parts; which partitions of the topic `new` have each key."""
    publish(store.decisions, "p", 0, parts)
    found = {}
    for partition in range(store.describe_topic("new").partitions):
        for batch in store.read("new", partition):
            for key in batch.column("key").to_pylist():
                found.setdefault(key, []).append(partition)
    return found


def test_all_tasks_go_by_the_partitions_that_the_first_one_has_found(store):
    plan = open_plan(store)
    first, second, third = task(store, plan), task(store, plan), task(Store.open(store.path), plan)
    first.append("new", ROWS)
    assert store.describe_topic("new").partitions == 3
    store.add_partitions("new", 7)
    second.append("new", ROWS)
    third.append("new", ROWS)
    assert [one.partitions for writer in (first, second, third) for one in writer.agreed] == [3, 3, 3]
    found = partitions_of_keys(first.finish() + second.finish() + third.finish(), store)
    assert found == {key: [(murmur2(key) & 0x7FFFFFFF) % 3] * 3 for key in KEYS}


def test_a_topic_that_another_process_has_made_meanwhile(store):
    plan = open_plan(store)
    store.create_topic("new", 5, {"compression.type": "zstd"})
    writer = task(store, plan)
    writer.append("new", ROWS)
    (agreed,) = writer.agreed
    assert (agreed.topic_id, agreed.partitions, agreed.made) == (store.describe_topic("new").topic_id, 5, False)


def test_the_next_write_reads_the_topics_again(store):
    for count in (3, 4):
        writer = task(store, open_plan(store))
        writer.append("new", ROWS)
        assert [(one.partitions, one.made) for one in writer.agreed] == [(count, count == 3)]
        store.add_partitions("new", count + 1)


def test_what_the_plan_has_needs_no_agreement(store):
    store.create_topic("old")
    writer = task(store, open_plan(store, ["old"]))
    writer.append("old", ROWS)
    assert writer.agreed == []
    assert not os.path.exists(f"{store.path}/staging")


@pytest.mark.parametrize(
    ("topic", "error", "message"),
    [
        ("__pylog_publish", InvalidTopicError, "the store's own records"),
        ("__consumer_offsets", InvalidTopicError, "the store's own records"),
        ("a/b", InvalidTopicError, "a/b"),
    ],
)
def test_no_topic_is_made_of_a_name_that_is_refused(store, topic, error, message):
    with pytest.raises(error, match=message):
        task(store, open_plan(store)).append(topic, ROWS)
    assert store.topics(internal=True) == []


def test_no_topic_is_made_where_the_store_forbids_it(tmp_path):
    store = Store.create(tmp_path / "strict", {"auto.create.topics.enable": "false"})
    with pytest.raises(UnknownTopicError, match=r"'new'.*auto.create.topics.enable is false: create it first"):
        task(store, open_plan(store)).append("new", ROWS)
    assert store.topics() == []


def test_nor_where_the_plan_has_all_topics(store):
    with pytest.raises(UnknownTopicError, match="create it first"):
        task(store, StagingPlan.make(store.logs, [])).append("new", ROWS)
    assert store.topics() == []


def test_a_topic_that_is_recreated_while_tasks_are_at_work(store):
    plan = open_plan(store)
    first = task(store, plan)
    first.append("new", ROWS)
    store.delete_topic("new")
    store.create_topic("new", 5)
    with pytest.raises(UnknownTopicError, match="'new' was deleted and recreated"):
        task(store, plan).append("new", ROWS)
    with pytest.raises(StagedOutputError, match="'new' was deleted"):
        publish(store.decisions, "p", 0, first.finish())


def agree_at_once(path, job, barrier, queue):
    store = Store.open(path)
    barrier.wait()
    queue.put(agree(store.logs, job, "new"))


def test_processes_that_meet_it_at_the_same_time(store):
    barrier, queue, job = PROCESSES.Barrier(4), PROCESSES.Queue(), Job.new()
    processes = [PROCESSES.Process(target=agree_at_once, args=(store.path, job, barrier, queue)) for _ in range(4)]
    for process in processes:
        process.start()
    agreed = {queue.get(timeout=240) for _ in processes}
    for process in processes:
        process.join()
    described = store.describe_topic("new")
    assert {(one.topic_id, one.partitions) for one in agreed} == {(described.topic_id, described.partitions)}
    # The task that creates the topic need not be the task that records it.
    assert any(one.made for one in agreed)


def test_a_task_that_makes_the_topic_knows_it_also_if_another_one_writes_it_down(store, monkeypatch):
    job, make = Job.new(), TopicAdmin.create_if_missing

    def another_one_is_faster(admin, topic):
        made = make(admin, topic)
        monkeypatch.setattr(TopicAdmin, "create_if_missing", make)
        assert not agree(Store.open(store.path).logs, job, topic).made
        return made

    monkeypatch.setattr(TopicAdmin, "create_if_missing", another_one_is_faster)
    assert agree(store.logs, job, "new").made


def test_what_a_dead_write_has_left_goes_by_its_age(store):
    writer = task(store, open_plan(store))
    writer.append("new", ROWS)
    (agreed,) = writer.agreed
    assert not verify(store.path).damaged
    janitor.sweep_staging(store)
    assert os.path.exists(f"{store.path}/staging/{agreed.file}")
    for name in os.listdir(f"{store.path}/staging"):
        os.utime(f"{store.path}/staging/{name}", (0, 0))
    janitor.sweep_staging(store)
    assert not os.path.exists(f"{store.path}/staging/{agreed.file}")


def test_a_file_that_is_damaged_is_reported(store):
    plan = open_plan(store)
    writer = task(store, plan)
    writer.append("new", ROWS)
    path = f"{store.path}/staging/{writer.agreed[0].file}"
    with open(path, "wb") as file:
        file.write(b'{"topic_id": 3}')
    with pytest.raises(StagedOutputError, match=path):
        task(store, plan).append("new", ROWS)
