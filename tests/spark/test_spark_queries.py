"""What is done with streams: joins, windows, complete and update mode, and checkpoints of other writers."""

import json

import pytest
from chispa import assert_df_equality
from pyspark.sql.functions import window
from spark_tools import all_values_in, batch_sizes, fails, fill, read_stream, run_to_the_end, write_stream

from pyspark_log.storage.groups.members.query_readers import query_of
from tests.amounts import one_in
from tests.query_offsets import of_topics, own_of


def to_memory(df, name, checkpoint, mode="append"):
    """Reads all there is into a table; returns the finished query."""
    return run_to_the_end(df.writeStream.format("memory").queryName(name).outputMode(mode), checkpoint)


@pytest.mark.slow
@pytest.mark.parametrize(("reuse", "rows"), one_in(2, [("true", 4), ("false", 8)]))
def test_a_stream_joined_with_itself(spark, store, tmp_path, reuse, rows):
    """It is one source, which Spark reads once or for each side."""
    fill(store, "t", [1, 2], [3, 4])
    df = read_stream(spark, store, "t", ("cast(value as string) value",))
    spark.conf.set("spark.sql.exchange.reuse", reuse)
    try:
        query = to_memory(df.alias("a").join(df.alias("b"), "value"), f"joined_{rows}", tmp_path)
    finally:
        spark.conf.unset("spark.sql.exchange.reuse")
    expected = spark.createDataFrame([("1",), ("2",), ("3",), ("4",)], "value string")
    assert_df_equality(spark.table(f"joined_{rows}"), expected, ignore_row_order=True)
    # Spark writes its offset down for each side.
    assert len(set((tmp_path / "offsets/0").read_text().splitlines()[2:])) == 1
    assert batch_sizes(query) == [rows]


@pytest.mark.slow
def test_a_window_of_the_records_times(spark, store, tmp_path):
    """And where the name of the query is seen: Spark does not give it to a source, so an option does."""
    fill(store, "t", [1, 2], [3])
    named = read_stream(spark, store, "t", ("timestamp",), queryName="days", **{"kafka.group.id": "named"})
    unnamed = read_stream(spark, store, "t", ("timestamp",), **{"kafka.group.id": "unnamed"})
    df = named.union(unnamed).withWatermark("timestamp", "10 seconds")
    to_memory(df.groupBy(window("timestamp", "1000 days")).count(), "windows", tmp_path, "complete")
    assert [row["count"] for row in spark.table("windows").collect()] == [6]
    assert [query_of(store.groups[group].committed()).name for group in ("named", "unnamed")] == ["days", ""]


def test_update_mode_is_refused_by_spark(spark, store, tmp_path):
    fill(store, "t", [1])
    with fails("does not support Update mode"):
        write_stream(read_stream(spark, store, "t"), store, tmp_path, "update", topic="out")
    assert store.topics() == ["t"]


@pytest.mark.slow
@pytest.mark.long
def test_a_checkpoint_that_another_writer_has_begun(spark, store, tmp_path):
    """That of an earlier version, or of the Kafka connector: offsets alone, without ids and a group."""
    fill(store, "t", range(4), [4])
    df = read_stream(spark, store, "t")
    write_stream(df, store, tmp_path, topic="out")
    entry = tmp_path / "offsets/0"
    lines = entry.read_text().splitlines()
    offset = json.loads(lines[-1])
    assert own_of(offset)
    entry.write_text("\n".join([*lines[:-1], json.dumps(of_topics(offset))]))
    (tmp_path / "offsets/.0.crc").unlink(missing_ok=True)
    fill(store, "t", [5], [6])
    assert batch_sizes(write_stream(df, store, tmp_path, topic="out")) == [2]
    assert all_values_in(store, "out") == [str(number) for number in range(7)]
