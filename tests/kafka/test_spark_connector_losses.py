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


@LOSS
def test_deleted_records(sides, query, topic, fail):
    """Between two runs: those that the query had yet to read, in part and as a whole."""
    queries = query(subscribe=topic, maxOffsetsPerTrigger="15", failOnDataLoss=str(fail))
    for side in sides:
        side.create(topic, 2)
        side.send(topic, values(0, 10))
        side.send(topic, values(0, 5), 1)
    assert queries.run() == ["", ""]
    for side in sides:
        side.send(topic, values(10, 10))
        side.send(topic, values(5, 5), 1)
        side.delete_records(topic, 0, 13)
        side.delete_records(topic, 1, 10)
    errors = queries.run()
    assert is_lost(errors, "COULD_NOT_READ_OFFSET_RANGE") if fail else errors == ["", ""], errors
    queries.check(*[15] if fail else [15, 7])


@LOSS
def test_records_that_are_deleted_while_a_query_runs(sides, query, topic, fail):
    queries = query(subscribe=topic, minOffsetsPerTrigger="10", failOnDataLoss=str(fail))
    for side in sides:
        side.create(topic)
        side.send(topic, values(0, 4))
    queries.start()
    queries.catch_up()
    for side in sides:
        side.send(topic, values(4, 6))
        side.delete_records(topic, 0, 8)
        side.send(topic, values(10, 4))
    if fail:
        assert is_lost(errors := queries.end(), "COULD_NOT_READ_OFFSET_RANGE"), errors
    else:
        queries.catch_up()
        queries.stop()
    queries.check(*[4] if fail else [4, 6])


@LOSS
def test_an_added_partition_that_has_lost_records(sides, query, topic, fail):
    queries = query(subscribe=topic, failOnDataLoss=str(fail))
    for side in sides:
        side.create(topic)
        side.send(topic, values(0, 4))
    assert queries.run() == ["", ""]
    for side in sides:
        side.add_partitions(topic, 2)
        side.send(topic, values(0, 10), 1)
        side.delete_records(topic, 1, 3)
    errors = queries.run()
    assert is_lost(errors, "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO") if fail else errors == ["", ""], errors
    queries.check(*[4] if fail else [4, 7])


@LOSS
def test_a_topic_that_is_left_out(sides, query, topic, fail):
    queries = query(failOnDataLoss=str(fail))
    for side in sides:
        for name in ("a", "b"):
            side.create(f"{topic}.{name}")
            side.send(f"{topic}.{name}", values(0, 4))
    assert queries.run({"subscribe": f"{topic}.a,{topic}.b"}) == ["", ""]
    for side in sides:
        side.send(f"{topic}.b", values(4, 4))
    errors = queries.run({"subscribe": f"{topic}.b"})
    assert is_lost(errors, "PARTITIONS_DELETED") if fail else errors == ["", ""], errors
    queries.check(*[8] if fail else [8, 4])


@LOSS
def test_a_topic_of_a_pattern_that_is_deleted(sides, query, topic, fail):
    queries = query(subscribePattern=f"{topic}[.]", failOnDataLoss=str(fail))
    for side in sides:
        for name in ("a", "b"):
            side.create(f"{topic}.{name}")
            side.send(f"{topic}.{name}", values(0, 4))
    assert queries.run() == ["", ""]
    for side in sides:
        side.delete(f"{topic}.a")
        side.send(f"{topic}.b", values(4, 4))
    errors = queries.run()
    assert is_lost(errors, "PARTITIONS_DELETED") if fail else errors == ["", ""], errors
    queries.check(*[8] if fail else [8, 4])


@LOSS
def test_a_deleted_topic(sides, query, topic, fail):
    """Known difference: without failOnDataLoss ours continues without it."""
    queries = query(subscribe=f"{topic}.a,{topic}.b", failOnDataLoss=str(fail))
    for side in sides:
        for name in ("a", "b"):
            side.create(f"{topic}.{name}")
            side.send(f"{topic}.{name}", values(0, 4))
    assert queries.run() == ["", ""]
    for side in sides:
        side.delete(f"{topic}.a")
    assert [bool(error) for error in queries.run()] == [True, fail]


@LOSS
@pytest.mark.parametrize("count", one_in(2, [4, 9]))
def test_a_topic_that_is_recreated(sides, query, topic, fail, count):
    """Known differences: ours knows it by its id, and never continues in the new topic at an offset of the old one."""
    queries = query(subscribe=topic, failOnDataLoss=str(fail))
    for side in sides:
        side.create(topic)
        side.send(topic, values(0, 6))
    assert queries.run() == ["", ""]
    for side in sides:
        side.delete(topic)
        side.create(topic)
        side.send(topic, values(100, count))
    kafkas, ours = queries.run()
    assert bool(kafkas) == (fail and count < 6), kafkas
    assert ("[PYLOG_DATA_LOSS.PARTITIONS_DELETED]" in ours) == fail, ours
    read = [[row[1] for row in one.rows.get(1, [])] for one in queries.both]
    new = [b"%d" % number for number in range(100, 100 + count)]
    assert read == [new[6:], [] if fail else new]
