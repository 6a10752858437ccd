"""minPartitions and maxRecordsPerPartition, against cases of the Kafka connector's own tests."""

import math
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_log.spark_connector.options import ReadOptions, StorePlace
from pyspark_log.spark_connector.planning.ranges import OffsetRange, Splitting
from pyspark_log.spark_connector.reading.batch_reader import PylogBatchReader
from pyspark_log.spark_connector.reading.task_reader import read_partition
from pyspark_log.types import EARLIEST, LATEST, TopicPartition
from tests.store_tools import new_store


def ranges(*bounds):
    return [OffsetRange(TopicPartition("t", number), *edges) for number, edges in enumerate(bounds)]


def pieces(splitting, *bounds):
    """The pieces of each range."""
    found = [[] for _ in bounds]
    for piece in splitting.split(ranges(*bounds)):
        found[piece.at.partition].append((piece.start, piece.end))
    return found


@pytest.mark.parametrize("filled", [1, 2])
def test_packed_tasks_of_a_batch_read_whose_first_partitions_are_empty(tmp_path, filled):
    store = new_store(tmp_path, partitions=3)
    store.append("t", pa.record_batch({"value": [b"a", b"b"]}), partition=filled)
    options = ReadOptions.parse({"subscribe": "t", "partitionspertask": "auto"})
    reader = PylogBatchReader(StorePlace(store.path), options, ("value",))
    rows = [rows for task in reader.partitions() for rows in reader.read(task)]
    assert [value for part in rows for value in part["value"].to_pylist()] == [b"a", b"b"]


# KafkaOffsetRangeCalculatorSuite.
@pytest.mark.parametrize(
    ("least", "bounds", "expected"),
    [
        (None, [(1, 2), (1, 1)], [[(1, 2)], []]),
        (3, [(1, 1), (5, 2)], [[], []]),
        (4, [(1, 5)], [[(1, 2), (2, 3), (3, 4), (4, 5)]]),
        (4, [(1, 5), (1, 21)], [[(1, 5)], [(1, 7), (7, 14), (14, 21)]]),
        (3, [(1, 11)], [[(1, 4), (4, 7), (7, 11)]]),
        (6, [(0, 10), (0, 10), (0, 1)], [[(0, 3), (3, 6), (6, 10)], [(0, 3), (3, 6), (6, 10)], [(0, 1)]]),
        (
            9,
            [(0, 10_000), (0, 15_000), (0, 20_000)],
            [[(n, n + 5000) for n in range(0, end, 5000)] for end in (10_000, 15_000, 20_000)],
        ),
        (
            6,
            [(0, 500), (0, 12_000), (0, 15_001)],
            [[(0, 500)], [(0, 6000), (6000, 12_000)], [(0, 5000), (5000, 10_000), (10_000, 15_001)]],
        ),
        (6, [(0, 1), (0, 1), (0, 10_000)], [[(0, 1)], [(0, 1)], [(n, n + 2500) for n in range(0, 10_000, 2500)]]),
        (4, [(1, 2), (1, 1001)], [[(1, 2)], [(1, 334), (334, 667), (667, 1001)]]),
        (1, [(1, 2)], [[(1, 2)]]),
        (2, [(0, 9), (0, 9)], [[(0, 9)], [(0, 9)]]),
        (3, [(0, 3), (0, 5)], [[(0, 3)], [(0, 2), (2, 5)]]),
    ],
)
def test_a_least_number_of_tasks(least, bounds, expected):
    assert pieces(Splitting(least), *bounds) == expected


@pytest.mark.parametrize(
    ("most", "bounds", "expected"),
    [
        (4, [(1, 5)], [[(1, 5)]]),
        (3, [(1, 5)], [[(1, 3), (3, 5)]]),
        (4, [(0, 10), (0, 4), (7, 7)], [[(0, 3), (3, 6), (6, 10)], [(0, 4)], []]),
        (1, [(1, 4)], [[(1, 2), (2, 3), (3, 4)]]),
    ],
)
def test_a_largest_size_of_a_task(most, bounds, expected):
    assert pieces(Splitting(max_records=most), *bounds) == expected


def test_both():
    # First by size. A small piece then keeps all of its partition as it is.
    assert pieces(Splitting(4, 5), (0, 10), (0, 6)) == [[(0, 5), (5, 10)], [(0, 3), (3, 6)]]
    assert pieces(Splitting(6, 8), (0, 16), (0, 3)) == [[(0, 2), (2, 5), (5, 8), (8, 10), (10, 13), (13, 16)], [(0, 3)]]
    assert pieces(Splitting(2, 5), (0, 10), (0, 6)) == [[(0, 5), (5, 10)], [(0, 3), (3, 6)]]


@pytest.mark.parametrize(
    ("splitting", "bounds", "due"),
    [
        (Splitting(), [(-2, -1)], False),
        (Splitting(2), [(-2, -1), (4, 4)], False),
        (Splitting(3), [(-2, -1), (4, 4)], True),
        (Splitting(None, 1), [(-2, -1)], False),
        (Splitting(None, 5), [(-2, 4), (0, 3)], True),
        (Splitting(None, 5), [(0, -1), (0, 5)], False),
        (Splitting(3, 5), [], True),
    ],
)
def test_whether_a_batch_read_is_split_is_seen_before_sentinels_are_looked_up(splitting, bounds, due):
    assert splitting.is_due(ranges(*bounds)) == due


@given(
    st.none() | st.integers(1, 40),
    st.none() | st.integers(1, 50),
    st.lists(st.tuples(st.integers(0, 2**62), st.integers(-1, 300)), max_size=6),
)
def test_pieces_are_the_ranges(least, most, sizes):
    bounds = [(start, start + size) for start, size in sizes]
    found = pieces(Splitting(least, most), *bounds)
    for (start, end), parts in zip(bounds, found, strict=True):
        assert bool(parts) == (start < end)
        if parts:
            assert (parts[0][0], parts[-1][1]) == (start, end)
        assert all(before[1] == after[0] for before, after in pairwise(parts))
        assert all(0 < until - since <= (most or math.inf) for since, until in parts)


def test_what_comes_to_an_empty_partition_is_read_where_others_are_split(tmp_path):
    """As all that comes between the planning of a batch read and its tasks."""
    store = new_store(tmp_path, partitions=2)
    store.append("t", pa.record_batch({"value": [b"1", b"2", b"3"]}), partition=0)
    options = ReadOptions.parse({"subscribe": "t", "minpartitions": "4"})
    planned = PylogBatchReader(StorePlace(store.path), options, ("value",)).partitions()
    assert [one.range.at.partition for one in planned] == [0, 0, 0, 1]
    store.append("t", pa.record_batch({"value": [b"4"]}), partition=1)
    assert [batch.num_rows for one in planned for batch in read_partition(one)] == [1, 1, 1, 1]


def test_the_first_and_the_last_piece_of_a_batch_read_are_open(tmp_path):
    store = new_store(tmp_path)
    store.append("t", pa.record_batch({"value": [b"v"] * 4}))
    options = ReadOptions.parse({"subscribe": "t", "minpartitions": "3"})
    planned = PylogBatchReader(StorePlace(store.path), options, ("value",)).partitions()
    assert [(one.range.start, one.range.end) for one in planned] == [(EARLIEST, 1), (1, 2), (2, LATEST)]
