"""Which offsets a micro-batch reads, and what counts as data loss."""

import pytest

from pyspark_log.spark_connector.errors import ConnectorError, LossPolicy
from pyspark_log.spark_connector.planning.ranges import OffsetRange, ranges_between, starts_of
from pyspark_log.spark_connector.planning.subscription import Assigned, Topics
from pyspark_log.types import TopicPartition

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))


def at_zero(_at):
    return 0


ALL = Topics(("t",))


def plan_ranges(starts, ends, earliest, subscription=ALL):
    return ranges_between(starts_of(starts, ends, earliest, subscription, LossPolicy()), ends)


def test_empty_ranges_are_left_out_and_the_rest_is_in_order():
    ranges = plan_ranges({P2: 1, P0: 3, P1: 4}, {P2: 2, P1: 4, P0: 5}, at_zero)
    assert ranges == [OffsetRange(P0, 3, 5), OffsetRange(P2, 1, 2)]


def test_a_new_partition_starts_at_its_first_offset():
    assert plan_ranges({P0: 3}, {P0: 3, P1: 2}, at_zero) == [OffsetRange(P1, 0, 2)]


@pytest.mark.parametrize(
    ("starts", "ends", "condition"),
    [
        ({P0: 1, P1: 1}, {P0: 1}, r"PARTITIONS_DELETED\] Partitions t-1 have been deleted"),
        ({P0: 2}, {P0: 1}, r"PARTITION_OFFSET_CHANGED\] Partition t-0 offset was changed from 2 to 1"),
        (
            {P0: 1},
            {P0: 1, P1: 9},
            r"ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO\] Added partition t-1 starts from 5 instead of 0",
        ),
    ],
)
def test_data_loss(starts, ends, condition):
    with pytest.raises(ConnectorError, match=rf"\[PYLOG_DATA_LOSS\.{condition}"):
        plan_ranges(starts, ends, lambda at: 5)


def test_partitions_that_the_options_do_not_name_any_more_are_not_called_deleted():
    with pytest.raises(ConnectorError, match=r"PARTITIONS_DELETED\] The query had read partitions t-1, which its opt"):
        plan_ranges({P0: 1, P1: 1}, {P0: 1}, at_zero, Assigned(frozenset([P0])))


def test_without_an_error_the_rest_is_read_and_each_loss_is_warned_of_once(caplog):
    loss = LossPolicy(fail=False)
    for _ in range(3):
        begins = starts_of({P0: 2, P1: 1}, {P0: 1, P2: 9}, lambda _at: 5, Topics(("t",)), loss)
    assert ranges_between(begins, {P0: 1, P2: 9}) == [OffsetRange(P2, 5, 9)]
    assert [record.message.split("]")[0] for record in caplog.records] == [
        "[PYLOG_DATA_LOSS.PARTITIONS_DELETED",
        "[PYLOG_DATA_LOSS.PARTITION_OFFSET_CHANGED",
        "[PYLOG_DATA_LOSS.ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO",
    ]
