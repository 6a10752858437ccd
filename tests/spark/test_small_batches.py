"""Queries whose small micro-batches are handed over by the process that plans them (`smallBatchBytes`)."""

import pytest
from pyspark.sql import datasource_internal
from spark_tools import all_values_in, batch_sizes, end_offset, fill, read_stream, values_in, write_stream

SMALL = {"smallBatchBytes": "2k"}


@pytest.fixture
def topics(store):
    store.create_topic("out", 2)
    fill(store, "t", range(6), range(6, 9))
    return store


def copy(spark, store, checkpoint, **options):
    return write_stream(read_stream(spark, store, "t", **SMALL, **options), store, checkpoint, topic="out")


@pytest.mark.slow
def test_small_and_large_micro_batches_follow_each_other(spark, topics, tmp_path):
    query = copy(spark, topics, tmp_path / "c", maxOffsetsPerTrigger="3")
    assert batch_sizes(query) == [3, 3, 3]
    fill(topics, "t", ["x" * 5000] * 2, [9])
    query = copy(spark, topics, tmp_path / "c")
    assert batch_sizes(query) == [3]
    fill(topics, "t", [], [10])
    query = copy(spark, topics, tmp_path / "c")
    assert end_offset(query) == {"t": {"0": 8, "1": 5}}
    assert all_values_in(topics, "out") == sorted([*map(str, range(11)), "x" * 5000, "x" * 5000])


@pytest.mark.slow
def test_a_small_batch_has_one_task_and_one_writer(spark, topics, tmp_path):
    copy(spark, topics, tmp_path / "c")
    assert sorted(map(len, values_in(topics, "out")), reverse=True) == [9, 0], "a task without keys fills one partition"


@pytest.mark.slow
def test_all_columns_are_those_of_a_task(spark, topics, tmp_path):
    columns = ("*",)
    tasks, handed = (
        read_stream(spark, topics, "t", columns, includeHeaders="true", **options) for options in ({}, SMALL)
    )
    found = []
    for number, df in enumerate((tasks, handed)):
        query = df.writeStream.format("memory").queryName(f"seen{number}").trigger(availableNow=True).start()
        query.awaitTermination()
        found.append(spark.table(f"seen{number}").orderBy("partition", "offset").collect())
    assert tasks.schema == handed.schema
    assert found[0] == found[1]
    assert len(found[0]) == 9


def test_pyspark_has_the_class_that_hands_rows_over():
    """If a version has not, small batches are read by one task: slower, and this test says so."""
    assert hasattr(datasource_internal._SimpleStreamReaderWrapper, "getCache")
