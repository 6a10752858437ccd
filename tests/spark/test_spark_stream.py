"""Streaming reads and writes."""

import json

import pytest
from spark_tools import (
    all_values_in,
    batch_sizes,
    end_offset,
    fill,
    read_stream,
    run_to_the_end,
    values_in,
    write,
    write_stream,
)

from pyspark_log.spark_connector.abilities import HAS_ADMISSION
from pyspark_log.spark_connector.writing.query_run import plan_of
from pyspark_log.storage.groups.offsets import OffsetsLog
from tests.query_offsets import of_topics, own_of


def committed_offsets(store, group):
    """What the group has committed, by partition."""
    return {str(at): kept.offset for at, kept in OffsetsLog(store).fetch(group).items()}


def the_only_group(store):
    (group,) = OffsetsLog(store).groups()
    return group


@pytest.mark.slow
def test_rate_limited_batches_and_a_restart(spark, store, tmp_path):
    fill(store, "t", range(101), range(101, 112), [112])
    df = read_stream(spark, store, "t", maxOffsetsPerTrigger="50")

    query = write_stream(df, store, tmp_path / "cp", topic="out")
    # 50/113 of each partition, rounded down, and one record of the smallest, again and again.
    assert batch_sizes(query) == [49, 49, 15]
    assert end_offset(query) == {"t": {"0": 101, "1": 11, "2": 1}}
    assert all_values_in(store, "out") == sorted(str(number) for number in range(113))
    # The last batch's offsets are committed too: lag is 0.
    group = the_only_group(store)
    assert group.startswith("spark-kafka-source-")
    assert committed_offsets(store, group) == {"t-0": 101, "t-1": 11, "t-2": 1}

    assert batch_sizes(write_stream(df, store, tmp_path / "cp", topic="out")) == []
    fill(store, "t", [113], [], [])
    assert batch_sizes(write_stream(df, store, tmp_path / "cp", topic="out")) == [1]
    assert all_values_in(store, "out") == sorted(str(number) for number in range(114))
    assert the_only_group(store) == group
    assert committed_offsets(store, group)["t-0"] == 102


def test_offsets_in_the_checkpoint(spark, store, tmp_path):
    fill(store, "b", ["x"])
    fill(store, "a", ["y"], ["z"])
    df = read_stream(spark, store, "b,a", **{"kafka.group.id": "mine"})
    write_stream(df, store, tmp_path / "cp", topic="out")
    entry = json.loads((tmp_path / "cp" / "offsets" / "0").read_text().splitlines()[-1])
    assert list(of_topics(entry).items()) == [("a", {"0": 1, "1": 1}), ("b", {"0": 1})]
    assert own_of(entry) == {
        "group": "mine",
        "cluster_id": store.cluster_id,
        "topic_ids": {topic: store.describe_topic(topic).topic_id for topic in ("a", "b")},
        "start": {"a": {"0": 0, "1": 0}, "b": {"0": 0}},
    }
    # Without admission control Spark does not come again after the one micro-batch of availableNow.
    done = 1 if HAS_ADMISSION else 0
    assert committed_offsets(store, "mine") == {"a-0": done, "a-1": done, "b-0": done}


@pytest.mark.slow
def test_a_batch_that_is_run_again_is_published_once(spark, store, tmp_path):
    fill(store, "t", range(20))
    df = read_stream(spark, store, "t", maxOffsetsPerTrigger="10")
    write_stream(df, store, tmp_path / "cp", topic="out")
    # As if the driver had died after the publish and before Spark noted that the batch was done.
    for name in ("1", ".1.crc"):
        (tmp_path / "cp" / "commits" / name).unlink()
    query = write_stream(df, store, tmp_path / "cp", topic="out")
    assert batch_sizes(query) == [10]
    assert values_in(store, "out") == [[str(number) for number in range(20)]]


@pytest.mark.slow
def test_what_was_planned_is_found_in_the_sessions_checkpoint_location(spark, store, tmp_path):
    fill(store, "t", [1])
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / "all"))
    try:
        stream = read_stream(spark, store, "t").writeStream.format("pylog").queryName("q")
        stream.option("topic", "out").trigger(availableNow=True).start(store.path).awaitTermination()
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    decisions = store.decisions
    decisions.follow()
    (decision,) = decisions.last.values()
    assert decision.plan == plan_of(str(tmp_path / "all" / "q"), decision.number)
    assert decision.plan.startswith("offsets ")


@pytest.mark.slow
def test_complete_mode_appends_every_result(spark, store, tmp_path):
    fill(store, "t", ["a", "b", "a", "a"])
    df = (
        read_stream(spark, store, "t", maxOffsetsPerTrigger="2")
        .groupBy("value")
        .count()
        .selectExpr("value key", "string(count) value")
    )
    store.create_topic("counts", 1)
    query = write_stream(df, store, tmp_path / "cp", "complete", topic="counts")
    assert batch_sizes(query) == [2, 2]
    latest = {}
    for batch in store.read("counts", 0):
        latest.update(zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True))
    assert latest == {b"a": b"3", b"b": b"1"}


@pytest.mark.slow
def test_writes_in_foreach_batch(spark, store, tmp_path):
    fill(store, "t", range(4))
    store.create_topic("a", 1)
    store.create_topic("b", 1)

    def two_writes(batch, batch_id):
        for topic in ("a", "b"):
            write(batch, store, topic=topic, publishId=f"job-{topic}", publishNumber=str(batch_id))

    df = read_stream(spark, store, "t", maxOffsetsPerTrigger="2")
    run_to_the_end(df.writeStream.foreachBatch(two_writes), tmp_path / "cp")
    assert values_in(store, "a") == values_in(store, "b") == [["0", "1", "2", "3"]]
