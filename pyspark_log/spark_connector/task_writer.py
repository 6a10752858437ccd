"""What a task does to write: it stages its rows, and tells the driver what it staged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import WriterCommitMessage

from pyspark_log.spark_connector.errors import ConnectorError, conditions_shown
from pyspark_log.spark_connector.query_run import QueryRun
from pyspark_log.spark_connector.store_access import StoreRef
from pyspark_log.spark_connector.write_columns import RECORD_COLUMNS, TOPIC
from pyspark_log.storage.staging import StagedPart, StagedWriter, StagingPlan


@dataclass(frozen=True)
class StagedMessage(WriterCommitMessage):
    """What one task reports.

    Attributes:
        parts: what it staged.
        run: the run of the streaming query that it worked for.
    """

    parts: tuple[StagedPart, ...]
    run: QueryRun


@dataclass(frozen=True)
class WritePlan:
    """What tasks need to know; made once, on the driver.

    Attributes:
        store: where to write.
        topic: where all rows go; None: the column `topic` says it.
        staging: the topics as they were when the write was planned.
    """

    store: StoreRef
    topic: str | None
    staging: StagingPlan


def stage(plan: WritePlan, batches: Iterable[pa.RecordBatch]) -> StagedMessage:
    """Stages the rows of a task.

    Raises:
        ConnectorError: with the engine's condition; what was staged so far is removed.
    """
    with conditions_shown():
        writer = StagedWriter(plan.store.reopen(), plan.staging)
        try:
            for batch in batches:
                for topic, rows in _by_topic(batch, plan.topic):
                    writer.append(topic, rows)
            parts = writer.finish()
        except BaseException:
            writer.discard()
            raise
    return StagedMessage(tuple(parts), QueryRun.of_task())


def _by_topic(batch: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The record columns of a batch, cut up by topic; a topic's rows keep their order."""
    records = batch.select([name for name in RECORD_COLUMNS if name in batch.schema.names])
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
