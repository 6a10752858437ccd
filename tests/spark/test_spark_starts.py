"""Where streaming queries begin, for each way to name what they read, and their columns."""

import json

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from spark_tools import fails, fill, run_to_the_end

from tests.amounts import one_in

LONG = [pytest.mark.slow, pytest.mark.long]
# How a query names topic `t`; partitions that are still missing can be assigned.
SUBSCRIPTIONS = {"subscribe": "t", "subscribePattern": "^t$", "assign": json.dumps({"t": list(range(10))})}
WAYS = pytest.mark.parametrize(
    ("strategy", "fail_on_data_loss"),
    [
        pytest.param(strategy, fail, marks=() if (strategy, fail) == ("subscribe", "true") else LONG)
        for strategy in SUBSCRIPTIONS
        for fail in ("true", "false")
    ],
)


def stream_of(spark, store, strategy, fail_on_data_loss, **options):
    options = {strategy: SUBSCRIPTIONS[strategy], "failOnDataLoss": fail_on_data_loss, **options}
    return spark.readStream.format("pylog").options(**options).load(store.path)


@pytest.mark.slow
@WAYS
def test_from_the_latest_record_on_and_on_after_a_stop(spark, store, tmp_path, strategy, fail_on_data_loss):
    fill(store, "t", *[["old"]] * 5)
    seen = []
    df = stream_of(spark, store, strategy, fail_on_data_loss, startingOffsets="latest")
    to_seen = df.writeStream.option("checkpointLocation", str(tmp_path / "cp")).foreachBatch(
        lambda batch, _number: seen.extend(int(row.value) for row in batch.collect())
    )

    query = to_seen.start()
    query.processAllAvailable()
    assert seen == []
    fill(store, "t", [1], [], [2], [3])
    query.processAllAvailable()
    assert sorted(seen) == [1, 2, 3]
    # It has nothing to do.
    query.stop()
    assert not query.isActive
    assert query.exception() is None

    fill(store, "t", [], [4], [5, 6])
    query = to_seen.start()
    try:
        query.processAllAvailable()
        assert sorted(seen) == [1, 2, 3, 4, 5, 6]
        store.add_partitions("t", 10)
        fill(store, "t", [7], *[[]] * 5, [8, 9], [], [], [10])
        query.processAllAvailable()
        assert sorted(seen) == list(range(1, 11))
    finally:
        query.stop()


def each(*numbers):
    return json.dumps({"t": {str(partition): number for partition, number in enumerate(numbers)}})


FIRST, SECOND, THIRD = 1_000, 2_000, 3_000
STARTS = {
    "earliest": {"startingOffsets": "earliest"},
    "offsets": {"startingOffsets": each(-2, -1, 0, 1, 2)},
    "times": {"startingOffsetsByTimestamp": each(FIRST, SECOND, THIRD, SECOND, FIRST)},
    "time": {"startingTimestamp": str(SECOND)},
    "late": {"startingTimestamp": str(THIRD + 1), "startingOffsetsByTimestampStrategy": "latest"},
}
# How many of the three records of each partition they find.
FOUND = {
    "earliest": (3, 3, 3, 3, 3),
    "offsets": (3, 0, 3, 2, 1),
    "times": (3, 2, 1, 2, 3),
    "time": (2, 2, 2, 2, 2),
    "late": (0, 0, 0, 0, 0),
}


@pytest.mark.slow
@WAYS
def test_starts(spark, store, tmp_path, strategy, fail_on_data_loss):
    """Five sources of one query, each with a start of its own; they continue together."""
    store.create_topic("t", 5, {"retention.ms": "-1"})
    batch = pa.record_batch({"value": ["0", "1", "2"], "timestamp": [FIRST, SECOND, THIRD]})
    for partition in range(5):
        store.append("t", batch, partition=partition)
    df = None
    for name, start in STARTS.items():
        rows = stream_of(spark, store, strategy, fail_on_data_loss, **start)
        rows = rows.selectExpr(f"'{name}' name", "partition", "cast(value as string) value")
        df = rows if df is None else df.union(rows)
    expected = [
        (name, partition, str(value))
        for name, counts in FOUND.items()
        for partition, count in enumerate(counts)
        for value in range(3 - count, 3)
    ]

    def check():
        query.processAllAvailable()
        rows = spark.createDataFrame(expected, "name string, partition int, value string")
        assert_df_equality(spark.table("starts"), rows, ignore_row_order=True, ignore_nullable=True)

    query = df.writeStream.format("memory").queryName("starts").option("checkpointLocation", str(tmp_path)).start()
    try:
        check()
        fill(store, "t", *[["new"]] * 5)
        expected += [(name, partition, "new") for name in STARTS for partition in range(5)]
        check()
    finally:
        query.stop()


@pytest.mark.slow
@pytest.mark.parametrize("options", one_in(2, [{}, {"startingOffsetsByTimestampStrategy": "error"}]))
def test_a_time_after_all_records(spark, store, options):
    fill(store, "t", [1])
    df = stream_of(spark, store, "subscribe", "true", startingTimestamp=str(10**15), **options)
    with fails(rf"No offset matched from request of topic-partition t-0 and timestamp {10**15}\. .*Strategy to latest"):
        df.writeStream.format("noop").trigger(availableNow=True).start().awaitTermination()


def test_columns_and_nulls(spark, store, tmp_path):
    store.create_topic("t", 1)
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    before = spark.sql("select now() now").first().now
    batch = pa.record_batch(
        {
            "key": pa.array([None, b"k", None, b"k"], pa.binary()),
            "value": pa.array([b"v", None, None, b"v"], pa.binary()),
            "headers": pa.array([[("a", b"b"), ("c", None)], None, None, None], headers),
        }
    )
    store.append("t", batch)
    df = stream_of(spark, store, "subscribe", "true", startingOffsets="earliest", includeHeaders="true")
    query = df.selectExpr("*", f"timestamp >= timestamp '{before}' - interval 1 second AS now").drop("timestamp")
    run_to_the_end(query.writeStream.format("memory").queryName("columns"), tmp_path)
    schema = (
        "key binary, value binary, topic string, partition int, offset bigint, timestampType int, "
        "headers array<struct<key: string, value: binary>>, now boolean"
    )
    rows = [
        (None, b"v", "t", 0, 0, 0, [("a", b"b"), ("c", None)], True),
        (b"k", None, "t", 0, 1, 0, None, True),
        (None, None, "t", 0, 2, 0, None, True),
        (b"k", b"v", "t", 0, 3, 0, None, True),
    ]
    assert_df_equality(spark.table("columns"), spark.createDataFrame(rows, schema))
