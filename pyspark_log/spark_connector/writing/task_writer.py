"""Stages a task's rows, and reports the staged output to the driver."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import WriterCommitMessage

from pyspark_log.spark_connector.columns import RECORD_COLUMNS, TOPIC
from pyspark_log.spark_connector.errors import ConnectorError, conditions_shown
from pyspark_log.spark_connector.store_access import StoreRef
from pyspark_log.spark_connector.worker_process import spare_modules
from pyspark_log.spark_connector.writing.query_run import QueryRun
from pyspark_log.storage.fs.clock import now_ms
from pyspark_log.storage.publish import AgreedTopic, StagedPart, StagingPlan

if TYPE_CHECKING:
    from pyspark_log.spark_connector.writing.typed_rows import TypedRows

# The engine's name for the column with the records' times.
TIMESTAMP = "timestamp"


@dataclass(frozen=True)
class StagedMessage(WriterCommitMessage):
    """One task's report.

    Attributes:
        parts: what it staged.
        run: the streaming query's run.
        times: each topic's oldest and newest time (ms) from a column; absent if the time of the write is used.
        agreed: topics that the driver's plan lacked.
        made: a topic that the driver has created for this write; "": none.
    """

    parts: tuple[StagedPart, ...]
    run: QueryRun
    times: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    agreed: tuple[AgreedTopic, ...] = ()
    made: str = ""


@dataclass(frozen=True)
class WritePlan:
    """What tasks need to know; created once, on the driver.

    Attributes:
        store: the store.
        topic: the topic of all rows; None: the column `topic` names it.
        timestamp_column: the column with the records' times, or None.
        staging: the topics as they were when the write was planned.
        made: whether the topic was created for this write.
        typed: how columns become keys and values; None: they are bytes or text.
    """

    store: StoreRef
    topic: str | None
    timestamp_column: str | None
    staging: StagingPlan
    made: bool = False
    typed: TypedRows | None = None


def stage(plan: WritePlan, batches: Iterable[pa.RecordBatch]) -> StagedMessage:
    """Stages the rows of a task.

    Raises:
        ConnectorError: with the engine's condition; what was staged so far is removed.
    """
    spare_modules()
    times = dict[str, tuple[int, int]]()
    with conditions_shown():
        writer = plan.store.reopen().publishes.writer(plan.staging)
        try:
            for batch in batches:
                stored = batch if plan.typed is None else plan.typed.encoded(batch)
                for topic, rows in _by_topic(stored, plan.topic, plan.timestamp_column):
                    writer.append(topic, rows)
                    if plan.timestamp_column is not None and rows.num_rows:
                        times[topic] = joined_times(_times(rows), times.get(topic))
            parts = writer.finish()
        except BaseException:
            writer.discard()
            raise
    made = plan.topic if plan.made and plan.topic is not None else ""
    return StagedMessage(tuple(parts), QueryRun.of_task(), times, tuple(writer.agreed), made)


def _by_topic(
    batch: pa.RecordBatch, topic: str | None, timestamp_column: str | None
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Splits the record columns of a batch by topic; a topic's rows keep their order."""
    records = batch.select([name for name in RECORD_COLUMNS if name in batch.schema.names])
    if timestamp_column is not None:
        times = batch.column(batch.schema.get_field_index(timestamp_column))
        records = records.append_column(TIMESTAMP, times)
    if topic is not None:
        yield topic, records
        return
    topics = batch.column(batch.schema.get_field_index(TOPIC))
    if topics.null_count:
        raise ConnectorError(
            "PYLOG_NULL_TOPIC_IN_DATA",
            "The data to write contains a null topic. Use the `topic` option for setting a default topic.",
        )
    for name in pc.unique(topics):
        yield name.as_py(), records.filter(pc.equal(topics, name))


def joined_times(times: tuple[int, int], others: tuple[int, int] | None) -> tuple[int, int]:
    """The oldest and the newest of both."""
    return times if others is None else (min(times[0], others[0]), max(times[1], others[1]))


def _times(rows: pa.RecordBatch) -> tuple[int, int]:
    """The oldest and the newest time of some rows in ms; rows without one get the time of the write."""
    times = rows.column(rows.schema.get_field_index(TIMESTAMP))
    bounds, in_ms = pc.min_max(times), pa.timestamp("ms", times.type.tz)
    found = [now_ms()] if times.null_count else []
    found += [bound.cast(in_ms, safe=False).value for bound in bounds.values() if bound.is_valid]
    return min(found), max(found)
