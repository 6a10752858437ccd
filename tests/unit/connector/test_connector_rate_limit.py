"""maxOffsetsPerTrigger, against cases of the Kafka connector's own tests."""

from hypothesis import given
from hypothesis import strategies as st

from pyspark_log.spark_connector.planning.ranges import limit_ends
from pyspark_log.types import TopicPartition

LONG_MAX = 2**63 - 1


def sizes(limit, *bounds):
    """How much of each (start, end) a batch takes."""
    starts = {TopicPartition("t", n): start for n, (start, _) in enumerate(bounds)}
    ends = {TopicPartition("t", n): end for n, (_, end) in enumerate(bounds)}
    limited = limit_ends(limit, starts, ends)
    return [limited[at] - starts[at] for at in sorted(limited)]


def test_shares_are_in_proportion_and_no_partition_starves():
    # KafkaMicroBatchSourceSuite, "maxOffsetsPerTrigger": 101, 11 and 1 records.
    assert sizes(10, (0, 101), (0, 11), (0, 1)) == [8, 1, 1]
    assert sizes(10, (8, 101), (1, 11), (1, 1)) == [9, 1, 0]


def test_no_overflow_at_the_largest_limit():
    assert sizes(LONG_MAX, (5, 15)) == [10]


def test_nothing_new_stays_where_it_is():
    assert sizes(10, (7, 7), (3, 3)) == [0, 0]


def test_a_batch_may_be_a_little_larger_than_its_limit():
    assert sizes(1, (0, 1), (0, 1), (0, 1)) == [1, 1, 1]


@given(st.integers(1, 10**6), st.lists(st.integers(0, 10**9), min_size=1, max_size=20))
def test_every_batch_makes_progress_within_bounds(limit, available):
    taken = sizes(limit, *[(0, size) for size in available])
    assert all(0 <= took <= size for took, size in zip(taken, available, strict=True))
    assert all(took > 0 for took, size in zip(taken, available, strict=True) if size)
    assert sum(taken) <= limit + len(available)
