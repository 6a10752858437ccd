"""Batch reads with `spark.read.format("pylog")`."""

import datetime
import os
import shutil

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from spark_tools import fails, fill, read, values_of

from pyspark_log import Store


def test_rows_are_those_of_the_kafka_connector(spark, store):
    store.create_topic("t", 2)
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    batch = pa.record_batch(
        {
            "key": pa.array([b"a", None, b""], pa.binary()),
            "value": pa.array([b"1", b"2", None], pa.binary()),
            "timestamp": pa.array([1_000, 1_500, 1_500], pa.int64()),
            "headers": pa.array([[("h", b"x"), ("h", None)], None, None], headers),
        }
    )
    store.append("t", batch, partition=1)

    df = read(spark, store, "t", includeHeaders="true")

    schema = (
        "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, "
        "timestampType int, headers array<struct<key: string, value: binary>>"
    )
    rows = [
        (b"a", b"1", "t", 1, 0, time(1), 0, [("h", b"x"), ("h", None)]),
        (None, b"2", "t", 1, 1, time(1.5), 0, None),
        (b"", None, "t", 1, 2, time(1.5), 0, None),
    ]
    assert_df_equality(df, spark.createDataFrame(rows, schema))
    assert_df_equality(read(spark, store, "t"), df.drop("headers"))


def time(seconds):
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC)


@pytest.mark.slow
def test_a_data_frame_sees_what_is_appended_later(spark, store):
    fill(store, "t", range(10), range(10), [0])
    df = read(spark, store, "t")
    assert df.count() == 21
    fill(store, "t", range(4), [], range(5))
    assert df.count() == 30
    assert df.union(df).count() == 60


def test_offsets_for_each_partition(spark, store):
    fill(store, "t", range(10), range(10, 20), [20])
    df = read(
        spark, store, "t", startingOffsets='{"t":{"0":-2,"1":-2,"2":0}}', endingOffsets='{"t":{"0":-1,"1":-1,"2":1}}'
    )
    assert df.count() == 21
    fill(store, "t", [], [1, 2], [3])
    assert df.count() == 23
    part = read(
        spark, store, "t", startingOffsets='{"t":{"0":8,"1":3,"2":1}}', endingOffsets='{"t":{"0":10,"1":4,"2":1}}'
    )
    assert values_of(part) == ["13", "8", "9"]


@pytest.mark.slow
def test_partitions_in_several_tasks(spark, store):
    fill(store, "t", range(10), range(10, 20), [20])
    df = read(spark, store, "t", minPartitions="6")
    assert tasks_of(df) == [(0, [3, 3, 4]), (1, [3, 3, 4]), (2, [1])]
    # The pieces in between keep their offsets; the first and the last are open, as an unsplit range is.
    fill(store, "t", ["later"])
    assert tasks_of(df) == [(0, [3, 3, 5]), (1, [3, 3, 4]), (2, [1])]
    assert values_of(df) == sorted([*map(str, range(21)), "later"])
    # From earliest to latest is a size of 1: nothing to split, as for the Kafka connector.
    assert tasks_of(read(spark, store, "t", maxRecordsPerPartition="5")) == [(0, [11]), (1, [10]), (2, [1])]
    ends = '{"t":{"0":9,"1":-1,"2":-1}}'
    df = read(spark, store, "t", maxRecordsPerPartition="5", endingOffsets=ends)
    assert tasks_of(df) == [(0, [4, 5]), (1, [5, 5]), (2, [1])]


def tasks_of(df):
    """How many rows each task has of each partition."""
    counts = df.selectExpr("partition", "spark_partition_id() task").groupBy("partition", "task").count().collect()
    counts.sort(key=lambda row: (row.partition, row.task))
    assert len({row.task for row in counts}) == len(counts)
    return [(number, [row["count"] for row in counts if row.partition == number]) for number in range(3)]


def test_nothing_to_read_at_all(spark, store):
    fill(store, "t", [1])
    df = read(spark, store, "t", startingOffsets='{"t":{"0":1}}', endingOffsets='{"t":{"0":1}}')
    assert df.collect() == []
    store.create_topic("empty", 3)
    assert read(spark, store, "empty").count() == 0


@pytest.mark.slow
def test_a_path_can_be_relative_or_a_uri(spark, store):
    fill(store, "t", [1, 2])
    for path in (os.path.relpath(store.path), f"file://{store.path}", f"file:{store.path}"):
        assert spark.read.format("pylog").option("subscribe", "t").load(path).count() == 2
        assert spark.read.format("pylog").options(subscribe="t", path=path).load().count() == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"startingOffsets": '{"t":{"0":0}}'},
            r"\[PYLOG_START_OFFSET_DOES_NOT_MATCH_ASSIGNED\].*Specified: t-0 Assigned: t-0, t-1",
        ),
        (
            {"endingOffsets": '{"t":{"0":0,"1":0,"2":0}}'},
            r"\[PYLOG_END_OFFSET_DOES_NOT_MATCH_ASSIGNED\].*latest\. Specified: t-0, t-1, t-2 Assigned: t-0, t-1",
        ),
        (
            {"startingOffsets": '{"t":{"0":4,"1":0}}'},
            r"\[PYLOG_RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET\].*offset 4 .* offset 3 for topic t partition 0",
        ),
        (
            {"startingOffsets": '{"t":{"0":5,"1":0}}', "minPartitions": "3"},
            r"\[PYLOG_RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET\].*offset 5 .* offset 3 for topic t partition 0",
        ),
        (
            {"endingOffsets": '{"t":{"0":4,"1":0}}'},
            r"\[PYLOG_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE\].*\[0, 4\) for topic partition t-0",
        ),
    ],
)
def test_refused_when_it_runs(spark, store, options, message):
    fill(store, "t", range(3), range(3))
    with fails(message):
        read(spark, store, "t", **options).count()


def test_a_schema_names_the_columns_that_are_read(spark, store):
    fill(store, "t", [1, 2])
    reader = spark.read.format("pylog").option("subscribe", "t")
    df = reader.schema("offset bigint, value binary").load(store.path)
    assert [(row.offset, row.value) for row in df.orderBy("offset").collect()] == [(0, b"1"), (1, b"2")]
    with_headers = "headers array<struct<key: string, value: binary>>"
    assert reader.schema(f"{with_headers}, key binary").load(store.path).collect() == [(None, None)] * 2


@pytest.mark.parametrize(("schema", "what"), [("value string", "value string"), ("value binary, size int", "size int")])
def test_a_schema_with_other_columns_is_refused(spark, store, schema, what):
    fill(store, "t", [1])
    with fails("pylog source has fixed columns", f"this one names {what}. ", "offset bigint"):
        spark.read.format("pylog").schema(schema).option("subscribe", "t").load(store.path).count()


def test_a_read_never_makes_a_store(spark, tmp_path):
    missing = tmp_path / "nothing"
    with fails(r"\[PYLOG_STORE_NOT_FOUND\]", str(missing)):
        spark.read.format("pylog").option("subscribe", "t").load(str(missing)).count()
    assert not missing.exists()


@pytest.mark.slow
def test_a_task_that_does_not_see_the_store_says_so(spark, store):
    fill(store, "t", [1])
    df = read(spark, store, "t")
    assert df.count() == 1
    os.rename(store.path, store.path + ".gone")
    with fails(r"\[PYLOG_STORE_NOT_FOUND\]", store.path, "is not visible on host", "mount it there"):
        df.count()
    fill(Store.create(store.path), "t", [1])
    with fails(r"\[PYLOG_STORE_DIFFERS\]", "is another store"):
        df.count()
    shutil.rmtree(store.path)
    os.rename(store.path + ".gone", store.path)
    assert df.count() == 1


@pytest.mark.slow
def test_a_table_of_the_catalog_has_its_options_in_each_statement(spark, store):
    """Spark passes none of its own on."""
    store.create_topic("t", 1)
    fill(store, "t", [1, 2])
    spark.sql(f"CREATE TABLE logged USING pylog OPTIONS (path '{store.path}', subscribe 't')")
    try:
        with fails("PYLOG_INVALID_OPTION", "FROM t WITH"):
            spark.sql("SELECT * FROM logged").collect()
        options = f"path = '{store.path}', subscribe = 't', topic = 't'"
        value = "SELECT cast('v' AS binary) AS value"
        spark.sql(f"INSERT INTO logged WITH ({options}) BY NAME {value}")
        assert spark.sql(f"SELECT * FROM logged WITH ({options})").count() == 3
    finally:
        spark.sql("DROP TABLE logged")


@pytest.mark.slow
def test_one_task_reads_several_partitions(spark, store):
    fill(store, "t", [1], [2, 3], [4], [], [5])
    for asked, tasks in (("2", 3), ("auto", 1)):
        df = read(spark, store, "t", partitionsPerTask=asked)
        assert df.rdd.getNumPartitions() == tasks
        assert values_of(df) == ["1", "2", "3", "4", "5"]
