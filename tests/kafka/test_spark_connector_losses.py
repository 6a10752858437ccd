"""Streaming queries whose records or topics are deleted: Spark's own Kafka connector and ours do the same about it."""

import pytest
from spark_sides import values

from tests.amounts import one_in

LOSS = pytest.mark.parametrize("fail", one_in(2, [True, False]))


def is_lost(errors, condition):
    """Whether both have failed for this reason."""
    kafkas, ours = errors
    # The error of a task of Kafka's cannot be named here: the driver does not find its class, which came by ADD JAR.
    return ("may have been lost" in kafkas or "UnknownReason" in kafkas) and f"[PYLOG_DATA_LOSS.{condition}]" in ours


def check(queries, errors, condition, fail, first, second):
    """A first micro-batch has `first` rows; then both have failed for this reason, or a second one has `second`."""
    assert is_lost(errors, condition) if fail else errors == ["", ""], errors
    queries.check(*[first] if fail else [first, second])


@LOSS
def test_deleted_records(sides, query, topic, fail):
    """Between two runs: those that the query had yet to read, in part and as a whole."""
    queries = query(subscribe=topic, maxOffsetsPerTrigger="15", failOnDataLoss=str(fail))
    sides.make(topic, values(0, 10), values(0, 5))
    assert queries.run() == ["", ""]
    sides.send(topic, values(10, 10))
    sides.send(topic, values(5, 5), 1)
    sides.delete_records(topic, 0, 13)
    sides.delete_records(topic, 1, 10)
    check(queries, queries.run(), "COULD_NOT_READ_OFFSET_RANGE", fail, 15, 7)


@LOSS
def test_records_that_are_deleted_while_a_query_runs(sides, query, topic, fail):
    queries = query(subscribe=topic, minOffsetsPerTrigger="10", failOnDataLoss=str(fail))
    sides.make(topic, values(0, 4))
    queries.start()
    queries.catch_up()
    for side in sides:
        side.send(topic, values(4, 6))
        side.delete_records(topic, 0, 8)
        side.send(topic, values(10, 4))
    if not fail:
        queries.catch_up()
        queries.stop()
    check(queries, queries.end() if fail else ["", ""], "COULD_NOT_READ_OFFSET_RANGE", fail, 4, 6)


@LOSS
def test_an_added_partition_that_has_lost_records(sides, query, topic, fail):
    queries = query(subscribe=topic, failOnDataLoss=str(fail))
    sides.make(topic, values(0, 4))
    assert queries.run() == ["", ""]
    sides.add_partitions(topic, 2)
    sides.send(topic, values(0, 10), 1)
    sides.delete_records(topic, 1, 3)
    check(queries, queries.run(), "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO", fail, 4, 7)


@pytest.fixture
def parts(sides, topic):
    """The names of two topics, which each side has, with four records each."""
    names = [f"{topic}.{part}" for part in "ab"]
    for name in names:
        sides.make(name, values(0, 4))
    return names


@LOSS
def test_a_topic_that_is_left_out(sides, query, parts, fail):
    queries = query(failOnDataLoss=str(fail))
    assert queries.run({"subscribe": ",".join(parts)}) == ["", ""]
    sides.send(parts[1], values(4, 4))
    check(queries, queries.run({"subscribe": parts[1]}), "PARTITIONS_DELETED", fail, 8, 4)


@LOSS
def test_a_topic_of_a_pattern_that_is_deleted(sides, query, topic, parts, fail):
    queries = query(subscribePattern=f"{topic}[.]", failOnDataLoss=str(fail))
    assert queries.run() == ["", ""]
    sides.delete(parts[0])
    sides.send(parts[1], values(4, 4))
    check(queries, queries.run(), "PARTITIONS_DELETED", fail, 8, 4)


@LOSS
def test_a_deleted_topic(sides, query, parts, fail):
    """Known difference: without failOnDataLoss ours continues without it."""
    queries = query(subscribe=",".join(parts), failOnDataLoss=str(fail))
    assert queries.run() == ["", ""]
    sides.delete(parts[0])
    assert [bool(error) for error in queries.run()] == [True, fail]


@LOSS
@pytest.mark.parametrize("count", one_in(2, [4, 9]))
def test_a_topic_that_is_recreated(sides, query, topic, fail, count):
    """Known differences: ours knows it by its id, and never continues in the new topic at an offset of the old one."""
    queries = query(subscribe=topic, failOnDataLoss=str(fail))
    sides.make(topic, values(0, 6))
    assert queries.run() == ["", ""]
    sides.delete(topic)
    sides.make(topic, values(100, count))
    kafkas, ours = queries.run()
    assert bool(kafkas) == (fail and count < 6), kafkas
    assert ("[PYLOG_DATA_LOSS.PARTITIONS_DELETED]" in ours) == fail, ours
    read = [[row[1] for row in one.rows.get(1, [])] for one in queries.both]
    new = [b"%d" % number for number in range(100, 100 + count)]
    assert read == [new[6:], [] if fail else new]
