"""Records that are gone before they are read: an error, or the rest is read, each record once."""

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from spark_tools import all_values_in, fails, fill, read, read_stream, run_to_the_end, values_of, write_stream

from pyspark_log.storage.compaction.cleaner import compact

SMALL = {"segment.bytes": "1000", "index.interval.bytes": "200"}
FROM_0 = {"startingOffsets": '{"t":{"0":0}}'}


def test_from_the_first_record_that_is_left(spark, store):
    fill(store, "t", range(10))
    df = read(spark, store, "t")
    store.delete_records("t", 0, 10)
    fill(store, "t", range(10, 20))
    assert values_of(df) == [str(number) for number in range(10, 20)]


@pytest.fixture
def retained(store):
    """A topic of 50 records, of which retention leaves only the last."""
    store.create_topic("t", 1, {**SMALL, "retention.bytes": "3000"})
    for number in range(50):
        fill(store, "t", [f"{number:0100}"])
    store.clean("t")
    assert 0 < store.earliest_offset("t", 0) < store.latest_offset("t", 0) == 50
    return store


def left(store):
    return [f"{number:0100}" for number in range(store.earliest_offset("t", 0), 50)]


@pytest.mark.slow
def test_what_retention_has_left_is_read_once(spark, retained, tmp_path):
    options = {**FROM_0, "failOnDataLoss": "false"}
    assert values_of(read(spark, retained, "t", **options)) == left(retained)
    write_stream(read_stream(spark, retained, "t", **options), retained, tmp_path / "cp", topic="out")
    assert all_values_in(retained, "out") == left(retained)


LOST = r"\[PYLOG_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE\].*\[0, {}\) for topic partition t-0.*failOnDataLoss"


def test_what_retention_has_taken_is_an_error(spark, retained):
    with fails(LOST.format("50")):
        read(spark, retained, "t", **FROM_0).count()


@pytest.mark.slow
def test_what_compaction_has_removed_is_not_lost(spark, store, tmp_path):
    store.create_topic("t", 1, {**SMALL, "cleanup.policy": "compact"})
    for number in range(60):
        value = f"{number:040}"
        store.append("t", pa.record_batch({"key": [str(number % 7)], "value": [value]}))
    list(compact(store.logs, "t"))
    rows = [
        (offset, value)
        for batch in store.read("t", 0)
        for offset, value in zip(batch["offset"].to_pylist(), batch["value"].to_pylist(), strict=True)
    ]
    assert len(rows) < 60
    assert rows[0][0] > 0

    columns = ("offset", "value")
    expected = spark.createDataFrame(rows, "offset bigint, value binary")
    for options in (FROM_0, {**FROM_0, "endingOffsets": '{"t":{"0":60}}', "minPartitions": "3"}):
        assert_df_equality(read(spark, store, "t", **options).select(*columns), expected)
    df = read_stream(spark, store, "t", ("offset", "value"), maxOffsetsPerTrigger="30", **FROM_0)
    run_to_the_end(df.writeStream.format("memory").queryName("compacted"), tmp_path / "cp")
    assert_df_equality(spark.table("compacted"), expected)
