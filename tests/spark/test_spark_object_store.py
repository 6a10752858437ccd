"""Spark reads and writes a store in an object store, whose credentials its processes find in their environment."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from java import java_version
from spark_tools import all_values_in, fails, fill, read, read_stream, values_in, values_of, write, write_stream

from pyspark_log import Store
from tests.campaigns import processes

SLOW = pytest.mark.slow
COPY = Path(__file__).parent / "object_store_copy.py"


@pytest.fixture
def store(object_url):
    """An empty store in the object store."""
    return Store.create(object_url)


def numbers(spark, *numbers):
    return spark.createDataFrame([(str(number),) for number in numbers], "value string")


def committed(store, group):
    return {at.partition: one.offset for at, one in store.groups[group].committed().items()}


def test_what_is_written_is_read_at_once(spark, store):
    store.create_topic("t", 3)
    for number in range(3):
        write(numbers(spark, *range(number * 10, number * 10 + 10)), store, topic="t")
        found = values_of(read(spark, store, "t"))
        assert found == sorted(str(value) for value in range(number * 10 + 10))
    # More than travels in a commit message: each task has objects of its own.
    large = spark.range(0, 40_000, numPartitions=3).selectExpr("string(id) || repeat('.', 60) value", "string(id) key")
    write(large, store, topic="large")
    assert read(spark, store, "large").selectExpr("count(distinct value)").first()[0] == 40_000
    # A read that was planned before sees what has come since.
    df = read(spark, store, "t")
    assert df.count() == 30
    fill(store, "t", ["more"])
    assert df.count() == 31


@SLOW
def test_a_query_that_runs_on_sees_what_comes(spark, store, tmp_path):
    fill(store, "t", [0], [1])
    store.create_topic("out", 2)
    rows = read_stream(spark, store, "t", ("value", "partition"))
    writer = rows.writeStream.format("pylog").options(topic="out", checkpointLocation=str(tmp_path / "checkpoint"))
    query = writer.start(store.path)
    try:
        for number in range(2, 6):
            _until(lambda: values_in(store, "out") == values_in(store, "t"), query)
            fill(store, "t", *([number], []) if number % 2 else ([], [number]))
        _until(lambda: values_in(store, "out") == values_in(store, "t"), query)
    finally:
        query.stop()


def _until(condition, query, patience=120):
    end = time.monotonic() + patience
    while not condition():
        assert query.exception() is None
        assert time.monotonic() < end
        time.sleep(0.05)


@SLOW
@pytest.mark.long
def test_a_named_publisher_and_its_positions(spark, store, tmp_path):
    store.create_topic("out", 2)
    fill(store, "t", range(3), range(3, 5))
    group = {"startingOffsets": "group", "kafka.group.id": "copies"}

    def copy(checkpoint, **options):
        rows = read_stream(spark, store, "t", **group)
        write_stream(rows, store, tmp_path / checkpoint, topic="out", publishOffsets="true", **options)

    copy("one", publishId="copy")
    assert committed(store, "copies") == {0: 3, 1: 2}
    with fails("PYLOG_PUBLISHER_FENCED.*belongs to the checkpoint of query"):
        fill(store, "t", [5])
        copy("two", publishId="copy")
    # Another one of the same group has moved on: what the first one has planned is refused.
    copy("three", publishId="other")
    assert committed(store, "copies") == {0: 4, 1: 2}
    assert [int(value) for value in all_values_in(store, "out")] == [*range(6)]
    with fails("PYLOG_OFFSET_CONFLICT"):
        copy("one", publishId="copy")
    assert [int(value) for value in all_values_in(store, "out")] == [*range(6)]


@SLOW
@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="finds the processes to kill in /proc, which Linux has")
@pytest.mark.skipif(java_version() < 17, reason="Spark needs Java 17 or later")
def test_a_driver_that_is_killed_at_any_moment(store, tmp_path):
    """Its output is there once, in order, with its positions: SIGKILL for the driver and all of its processes."""
    chance, count = random.Random(30), 2000
    store.create_topic("events", 2)
    store.create_topic("copy", 2)
    for partition in range(2):
        store.append(
            "events", pa.record_batch({"value": [f"{partition}-{n}" for n in range(count)]}), partition=partition
        )
    expected, kills, done = values_in(store, "events"), 0, False
    with (tmp_path / "log").open("w") as log:
        while not done:
            before = store.latest_offset("copy", 0)
            done = _run_and_kill(store, tmp_path / "checkpoint", log, before, chance if kills < 5 else None)
            kills += not done
            assert done or kills < 10, (tmp_path / "log").read_text()[-3000:]
            for found, wanted in zip(values_in(store, "copy"), expected, strict=True):
                assert found == wanted[: len(found)]
    assert kills == 5
    assert values_in(store, "copy") == expected
    (group,) = store.groups
    assert committed(store, group) == {0: count, 1: count}


def _run_and_kill(store, checkpoint, log, before, chance):
    """Runs the query, and kills it some time after it has published something; whether it has finished before that."""
    driver = subprocess.Popen(
        [sys.executable, str(COPY), store.path, str(checkpoint)],
        stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
    )  # fmt: skip
    try:
        if chance is None:
            return driver.wait(300) == 0
        while store.latest_offset("copy", 0) == before and driver.poll() is None:
            time.sleep(0.02)
        # Which moment this is within a later micro-batch is left to chance.
        time.sleep(chance.random() / 2)
        return driver.poll() == 0
    finally:
        processes.end_session(driver)
