"""Where batch reads begin and end by time."""

import json
from functools import reduce

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from spark_tools import fails, read

FIRST, SECOND, THIRD = 1_000, 2_000, 3_000
LATER = THIRD + 1


@pytest.fixture
def times(store):
    """A topic with 0 to 9 at the first time, 10 to 19 at the second, 20 to 29 at the third: v in partition v % 3."""
    store.create_topic("t", 3, {"retention.ms": "-1"})
    for time, start in ((FIRST, 0), (SECOND, 10), (THIRD, 20)):
        for partition in range(3):
            values = [str(value) for value in range(start, start + 10) if value % 3 == partition]
            batch = pa.record_batch({"value": values, "timestamp": [time] * len(values)})
            store.append("t", batch, partition=partition)
    return store


def each(*numbers):
    """A number for each partition, as options have them."""
    return json.dumps({"t": {str(partition): number for partition, number in enumerate(numbers)}})


def in_partitions(values, *partitions):
    return [value for value in values if value % 3 in partitions]


# What a read is given, and the values that it finds.
READS = {
    "from a time of each partition to another": (
        {
            "startingOffsetsByTimestamp": each(SECOND, SECOND, SECOND),
            "endingOffsetsByTimestamp": each(THIRD, THIRD, THIRD),
        },
        range(10, 20),
    ),
    "from times to offsets": (
        {"startingOffsetsByTimestamp": each(FIRST, FIRST, FIRST), "endingOffsets": each(-1, -1, 1)},
        [*in_partitions(range(30), 0, 1), 2],
    ),
    "from offsets to times": (
        {"startingOffsets": "earliest", "endingOffsetsByTimestamp": each(THIRD, THIRD, THIRD)},
        range(20),
    ),
    "only from times": ({"startingOffsetsByTimestamp": each(SECOND, SECOND, SECOND)}, range(10, 30)),
    "only to times": ({"endingOffsetsByTimestamp": each(THIRD, THIRD, THIRD)}, range(20)),
    "one time for all": ({"startingTimestamp": str(SECOND), "endingTimestamp": str(THIRD)}, range(10, 20)),
    "from the end of a partition without a record so late": (
        {"startingOffsetsByTimestamp": each(SECOND, SECOND, LATER), "startingOffsetsByTimestampStrategy": "latest"},
        in_partitions(range(10, 30), 0, 1),
    ),
    "to a time after all": ({"endingTimestamp": str(LATER)}, range(30)),
    "one time for all wins": (
        {
            "startingTimestamp": str(THIRD),
            "startingOffsetsByTimestamp": each(SECOND, SECOND, SECOND),
            "startingOffsets": "earliest",
        },
        range(20, 30),
    ),
    "times win over offsets": (
        {"startingOffsetsByTimestamp": each(SECOND, SECOND, SECOND), "startingOffsets": "earliest"},
        range(10, 30),
    ),
}


def test_bounds_by_time(spark, times):
    found = [
        read(spark, times, "t", partitionsPerTask="3", **options).selectExpr(
            f"'{name}' name", "cast(cast(value as string) as bigint) value"
        )
        for name, (options, _) in READS.items()
    ]
    expected = [(name, value) for name, (_, values) in READS.items() for value in values]
    assert_df_equality(
        # One task: nothing is shuffled to be sorted.
        reduce(lambda one, other: one.union(other), found).coalesce(1),
        spark.createDataFrame(expected, "name string, value bigint"),
        ignore_row_order=True,
        ignore_nullable=True,
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"startingOffsetsByTimestamp": each(SECOND, SECOND, LATER)},
            f"No offset matched from request of topic-partition t-2 and timestamp {LATER}",
        ),
        (
            {"startingOffsets": each(3, 0, 0), "endingOffsetsByTimestamp": each(FIRST, THIRD, THIRD)},
            r"RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET\].*start offset 3 .* end offset 0 .* partition 0",
        ),
        (
            {"startingOffsetsByTimestamp": each(SECOND, SECOND)},
            r"TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED\].*Specified: t-0, t-1 Assigned: t-0, t-1, t-2",
        ),
        (
            {"endingOffsetsByTimestamp": each(SECOND, SECOND, SECOND, SECOND)},
            r"TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED\].*Specified: t-0, t-1, t-2, t-3 Assigned: t-0, t-1, t-2",
        ),
    ],
)
def test_refused_bounds(spark, times, options, message):
    with fails(message):
        read(spark, times, "t", **options).count()
