"""Puts ranges of partitions into tasks, and, in a task, reads them as Arrow batches."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from pyspark_log.errors import OffsetOutOfRangeError, UnknownTopicError
from pyspark_log.spark_connector.corruption import OnCorruption
from pyspark_log.spark_connector.errors import ConnectorError, LossPolicy, conditions_shown
from pyspark_log.spark_connector.options import ReadOptions
from pyspark_log.spark_connector.planning.ranges import OffsetRange, end_within, is_same_topic, resolved
from pyspark_log.spark_connector.reading.transform import Transform
from pyspark_log.spark_connector.store_access import StoreRef
from pyspark_log.spark_connector.worker_process import spare_modules
from pyspark_log.storage.store import Store

if TYPE_CHECKING:
    from pyspark_log.spark_connector.reading.dead_letters import DeadLetters
    from pyspark_log.spark_connector.typed_columns import TypedColumns

# A task of Spark's costs about as much as reading this many bytes of records (benchmarks/results/spark.md).
_TASK_BYTES = 4 * 1024 * 1024
# Bytes of records in a batch of rows: each batch has a cost of its own in Spark, which is that of some thousand rows.
_BATCH_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class ReadPlan:
    """What all tasks of a read need, so that no reader state must be sent.

    Attributes:
        store: the store.
        columns: the columns that are read from the store.
        isolation_level: read_uncommitted or read_committed.
        fail_on_data_loss: whether records of a range that are missing are an error; if not, the others are read.
        on_corruption: what to do where they are damaged.
        transform: the user's function over the rows; None: there is none.
        typed: how keys and values become columns; None: they stay bytes.
        returned: the columns of a task's rows, before `transform`.
        letters: where records go that do not fit their schemas; None: there are no dead letters.
    """

    store: StoreRef
    columns: tuple[str, ...]
    isolation_level: str
    fail_on_data_loss: bool
    on_corruption: OnCorruption
    transform: Transform | None
    typed: TypedColumns | None
    returned: tuple[str, ...]
    letters: DeadLetters | None = None

    @classmethod
    def make(
        cls,
        store: StoreRef,
        columns: tuple[str, ...],
        options: ReadOptions,
        transform: Transform | None,
        typed: TypedColumns | None,
        letters: DeadLetters | None = None,
    ) -> ReadPlan:
        """The plan for a read of some columns with some options."""
        stored = columns if typed is None else typed.stored(columns)
        loss, damage = options.fail_on_data_loss, options.on_corruption
        return cls(store, stored, options.isolation_level, loss, damage, transform, typed, columns, letters)


@dataclass(frozen=True)
class RangePartition(InputPartition):
    """A range that one task reads.

    Attributes:
        plan: how it is read.
        range: the range.
        topic_id: the id of the topic that it was planned for; None: not known.
    """

    plan: ReadPlan
    range: OffsetRange
    topic_id: str | None


@dataclass(frozen=True)
class TaskPartition(InputPartition):
    """Several ranges that one task reads, one after the other."""

    ranges: tuple[RangePartition, ...]


def in_tasks(store: Store, ranges: Sequence[RangePartition], partitions_per_task: int | None) -> list[InputPartition]:
    """Puts ranges into tasks, in order; a range that is alone stays as it is.

    Args:
        store: where they are.
        ranges: what is to be read.
        partitions_per_task: how many for each task; None: those that have _TASK_BYTES together, as stored.
    """
    if partitions_per_task is None:
        tasks = _by_bytes(store, ranges)
    else:
        tasks = [ranges[at : at + partitions_per_task] for at in range(0, len(ranges), partitions_per_task)]
    return [one[0] if len(one) == 1 else TaskPartition(tuple(one)) for one in tasks]


def _by_bytes(store: Store, ranges: Sequence[RangePartition]) -> Sequence[Sequence[RangePartition]]:
    tasks: list[list[RangePartition]] = []
    left = 0
    for one in ranges:
        at, level = one.range.at, one.plan.isolation_level
        start, end = (resolved(store, at, edge, level) for edge in (one.range.start, one.range.end))
        # A range that ends before it starts is refused by its task.
        reached, size = end_within(store, at, start, end, _TASK_BYTES) if start < end else (end, 0)
        if tasks and reached == end and size <= left:
            tasks[-1].append(one)
        else:
            tasks.append([one])
            left = _TASK_BYTES
        left -= size
    return tasks


def read_partition(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Reads all rows of a task's ranges. Raises: as `_read_range`."""
    spare_modules()
    if isinstance(partition, TaskPartition):
        for number, one in enumerate(partition.ranges):
            yield from _rows_of(one, math.inf if number else 0.0)
    elif isinstance(partition, RangePartition):
        yield from _rows_of(partition, 0.0)
    # Else it is Spark's placeholder for "no partitions at all".


def _rows_of(partition: RangePartition, age: float) -> Iterator[pa.RecordBatch]:
    plan, at, rows = partition.plan, partition.range.at, _read_range(partition, age)
    if plan.typed is not None:
        with conditions_shown():
            letters = None
            if plan.letters is not None:
                letters = plan.letters.writer(plan.store.reopen(), at, partition.topic_id)
        rows = plan.typed.decoded(rows, at, plan.returned, letters)
    if plan.transform is not None:
        rows = plan.transform.apply(rows)
    with conditions_shown():
        yield from rows


def _read_range(partition: RangePartition, age: float) -> Iterator[pa.RecordBatch]:
    """Reads all rows of a range, or raises.

    Sentinels are resolved here, when the task runs: Spark plans a batch read once for a DataFrame, and an
    action on it must see what has been appended since.

    Args:
        partition: the range.
        age: as for Partitions.looking: a task looks for its first range.

    Raises:
        ConnectorError: PYLOG_DATA_LOSS if the log does not hold the range any more; any other engine error with
            its condition.
    """
    with conditions_shown():
        plan, at = partition.plan, partition.range.at
        store, loss, level = plan.store.reopen(), LossPolicy(fail=plan.fail_on_data_loss), plan.isolation_level
        start, end = partition.range.start, partition.range.end
        while True:
            try:
                with store.partitions.looking(age):
                    if not is_same_topic(store, at, partition.topic_id, loss):
                        return
                    end = resolved(store, at, end, level)
                    start = resolved(store, at, start, level)
                    if start > end:
                        raise ConnectorError(
                            "PYLOG_RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET",
                            f"The resolved start offset {start} is greater than the resolved end offset {end} for "
                            f"topic {at.topic} partition {at.partition}.",
                        )
                    # By the offset it is known how far the rows have come.
                    wanted = list(dict.fromkeys((*plan.columns, "offset")))
                    rows = store.read(
                        at.topic, at.partition, start, end, max_bytes=_BATCH_BYTES, columns=wanted,
                        headers="headers" in wanted, isolation_level=level,
                        on_damage=plan.on_corruption.handler(at, plan.store.place.options),
                    )  # fmt: skip
                    # Check again: from here on the rows are those of one topic, even if it is recreated.
                    if not is_same_topic(store, at, partition.topic_id, loss):
                        return
                for batch in rows:
                    yield batch.select(plan.columns)
                    start = batch["offset"][-1].as_py() + 1
            except (OffsetOutOfRangeError, UnknownTopicError) as error:
                loss.report(
                    "COULD_NOT_READ_OFFSET_RANGE",
                    f"Could not read records in offset [{start}, {end}) for topic partition {at}: {error}.",
                )
                if isinstance(error, UnknownTopicError):
                    return
                # What is left of the range is read: never a record twice.
                rest = max(start, error.log_start), min(end, error.log_end)
                if rest[0] >= rest[1] or rest == (start, end):
                    return
                start, end = rest
            else:
                return
