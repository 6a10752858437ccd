"""Writes several DataFrames to several topics, published atomically: for streaming queries with `foreachBatch`.

    def split(batch, batch_id):
        with Publish("/data/store", "split-orders", batch_id) as out:
            out.write(batch.where("amount > 100"), topic="large")
            out.write(batch.groupBy("customer").agg(...), topic="totals")

Each write stages its rows in a Spark job of its own, whose result describes the staged output. The end of the block
publishes all of it.
"""

from __future__ import annotations

import logging
import os
import pickle
import uuid
from collections.abc import Iterator, Mapping
from types import TracebackType

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from pyspark_log.spark_connector.errors import conditions_shown, option_error, outcome_shown
from pyspark_log.spark_connector.options import StorePlace, WriteOptions
from pyspark_log.spark_connector.store_access import open_for_write
from pyspark_log.spark_connector.writing.commit import (
    StagedMessage,
    check_agreements,
    end_agreements,
    keep_old_records,
    stage,
    warn_of_old_times,
)
from pyspark_log.spark_connector.writing.query_run import ITS_OWN, QueryRun
from pyspark_log.spark_connector.writing.writer import plan_write
from pyspark_log.storage.publish import PublishResult
from pyspark_log.types import TopicPartition

log = logging.getLogger(__name__)

_STAGED = "message"


class Publish:
    """Publishes all writes of a block atomically, exactly once; after an error in the block, none of them.

    If publishing fails, the end of the block raises a ConnectorError whose first words after the condition give the
    outcome, as for a batch write (writer.py).

    The caller chooses the id and the number: in `foreachBatch` a name for this block, and the batch id. The last number
    again is a replay, whose rows are dropped; otherwise only the next number is accepted. So the block must be entered
    for each micro-batch, even if it writes nothing; and a second block in the same function needs a second name.

    A restarted query fences the run before it, and a second query cannot use the id of the first.

    Attributes:
        result: the result of the publish, after the block.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        publish_id: str,
        publish_number: int,
        *,
        take_over: bool = False,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """
        Args:
            path: the store's folder; a store is created if the folder is missing or empty.
            publish_id: names a series of publishes, permanently.
            publish_number: numbers them consecutively, from any start; the batch id.
            take_over: whether an id that belongs to another query becomes that of this one, with new numbers: for a
                query whose checkpoint is lost.
            options: as for `Store.open`.

        Raises:
            ConnectorError: the id is empty, the number is negative, or the path is not a store.
        """
        if not publish_id or publish_number < 0:
            raise option_error(f"a publish needs an id and a number from 0 on, got {publish_id!r} and {publish_number}")
        self._place = StorePlace(os.fspath(path), options or {})
        with conditions_shown():
            self._store = open_for_write(self._place)
        self._publish_id = publish_id
        self._number = publish_number
        self._take_over = take_over
        self._messages: list[StagedMessage] = []
        self._ended = False
        self.result: PublishResult | None = None

    def write(self, df: DataFrame, topic: str | None = None, *, timestamp_column: str | None = None) -> None:
        """Stages the rows of a DataFrame in a Spark job, and waits for it.

        Args:
            df: the rows, with the columns of a batch write: value, and optionally key, headers, partition, topic.
            topic: the topic of all rows; None: the column `topic` names it. A missing one is created if the store
                allows it.
            timestamp_column: the column with the records' times; None: the time of the write.

        Raises:
            ConnectorError: a column or the topic is refused.
            PySparkException: the job failed; its text contains the engine error's condition in brackets.
        """
        if self._ended:
            raise option_error(f"publish {self._publish_id!r}, {self._number} has ended: nothing can be added to it")
        options = WriteOptions(
            topic=topic,
            publish_id=None,
            publish_number=None,
            publish_take_over=False,
            publish_offsets=False,
            compression_type=None,
            timestamp_column=timestamp_column,
        )
        plan = plan_write(self._place, options, df.schema)

        def stage_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            message = pickle.dumps(stage(plan, batches))
            yield pa.record_batch({_STAGED: pa.array([message], pa.binary())})

        rows = df.mapInArrow(stage_rows, f"{_STAGED} binary").collect()
        # In task order.
        self._messages += [pickle.loads(row[_STAGED]) for row in rows]

    @property
    def staged(self) -> dict[TopicPartition, int]:
        """How many records the writes so far have staged for each partition that gets some."""
        found = dict[TopicPartition, int]()
        for part in (part for message in self._messages for part in message.parts):
            at = TopicPartition(part.topic, part.partition)
            found[at] = found.get(at, 0) + part.count
        return found

    def __enter__(self) -> Publish:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended = True
        parts, publishes = [part for message in self._messages for part in message.parts], self._store.publishes
        if kind is not None:
            publishes.discard(parts)
            end_agreements(self._store, self._messages)
            return
        run, location = self._query()
        with outcome_shown():
            check_agreements(self._messages)
            keep_old_records(self._store, self._messages)
            if self._take_over:
                publishes.claim(self._publish_id, run, self._number, location=location, take_over=True)
            self.result = publishes.publish(self._publish_id, self._number, parts, run=run, location=location)
        if not self.result.replayed:
            warn_of_old_times(self._store, self._messages)
        end_agreements(self._store, self._messages)
        if self.result.replayed:
            log.warning(
                "%s, number %d was published before, with %d records; this block's rows were dropped",
                self._publish_id,
                self._number,
                self.result.records,
            )

    def _query(self) -> tuple[str, str]:
        """The tasks' run and checkpoint; "" outside a streaming query."""
        known = [message.run for message in self._messages] or _asked()
        query_ids = {run.query_id for run in known}
        # If the user has set a job group, it replaces the run's id.
        runs = {run.run_id for run in known if _is_uuid(run.run_id)}
        if len(query_ids) != 1 or "" in query_ids:
            return "", ""
        return runs.pop() if len(runs) == 1 else "", f"of query {query_ids.pop()}"


def own_publish_id() -> str:
    """The id under which the query of this thread publishes if its user names none; it stays with the checkpoint.

    Only for functions of `foreachBatch` with one block: the output of a second one would be dropped as a replay.

    Raises:
        ConnectorError: this thread runs no streaming query.
    """
    for run in _asked():
        if run.query_id:
            return ITS_OWN.id_of(run.query_id)
    raise option_error("a publish needs an id outside of a streaming query")


def _asked() -> list[QueryRun]:
    """The query of this thread's session, as a task of it sees it.

    For a block that has staged nothing and so had no task: Spark runs none for a DataFrame that it knows to be empty.
    """
    session = SparkSession.getActiveSession()
    if session is None:
        return []

    def staged_output(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({_STAGED: pa.array([pickle.dumps(QueryRun.of_task())], pa.binary())})

    rows = session.range(0, 1, 1, 1).mapInArrow(staged_output, f"{_STAGED} binary").collect()
    return [pickle.loads(row[_STAGED]) for row in rows]


def _is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False
