"""Batch and streaming writes: tasks stage and the driver publishes (commit.py).

A streaming query's micro-batches are published exactly once. So are batch writes with `publishId` and
`publishNumber`: if such a write fails, it can be repeated. For any other batch write, the error's first words after the
condition say whether it may be: "not published"; "published and pending" (it appears by itself, and a second run would
write all of it again); or "unknown whether published" (check the topic first).

The driver fixes ids and partition counts of the topics for all tasks. With the option `topic` it creates a missing
topic first. Only the tasks know which topics a column `topic` names: the first task with a topic that the driver did
not know creates it if needed, and fixes the same for all (storage/publish/staging/agreed_topics.py).
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, StringType, StructType

from pyspark_log.spark_connector import worker_process
from pyspark_log.spark_connector.abilities import StreamArrowWriter
from pyspark_log.spark_connector.columns import check_columns
from pyspark_log.spark_connector.errors import conditions_shown
from pyspark_log.spark_connector.options import TYPED_OPTIONS, Options, StorePlace, WriteOptions, without_effect
from pyspark_log.spark_connector.store_access import StoreRef, open_for_write, warn_of_new_topic, warn_of_options
from pyspark_log.spark_connector.topic_formats import with_topic_formats
from pyspark_log.spark_connector.worker_process import SentToTasks, is_spark_process, spare_modules
from pyspark_log.spark_connector.writing.commit import (
    StagedMessage,
    WritePlan,
    publish_batch,
    publish_micro_batch,
    stage,
)
from pyspark_log.spark_connector.writing.query_run import QueryPublisher, claim_in_first_task
from pyspark_log.storage.catalog import check_name, check_not_internal
from pyspark_log.storage.fs import Process
from pyspark_log.units import plural

if TYPE_CHECKING:
    from pyspark_log.spark_connector.writing.typed_rows import TypedRows

log = logging.getLogger(__name__)


class PylogBatchWriter(SentToTasks, DataSourceArrowWriter):
    """One batch write; created on the driver, and sent to the tasks and to the commit."""

    def __init__(self, place: StorePlace, options: Options, schema: StructType) -> None:
        parsed = WriteOptions.parse(options)
        parsed.check_batch()
        warn_of_options(without_effect(options, write=True))
        self._plan = plan_write(place, parsed, schema, options)
        self._one_off = parsed.publish_id is None
        self._publisher = parsed.publish_id or f"batch-{uuid.uuid4()}"
        self._number = parsed.publish_number or 0

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        """Stages a task's rows."""
        return stage(self._plan, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publishes what the tasks staged."""
        publish_batch(self._plan.store, messages, self._publisher, self._number, one_off=self._one_off)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Does nothing: Spark calls this also after a commit that failed halfway.

        The staged output may have been decided then, and must stay to be applied.
        """
        log.warning("batch write %s failed; %s", self._publisher, _kept(self._plan, len(messages)))


class PylogStreamWriter(SentToTasks, StreamArrowWriter):
    """One micro-batch's write. Spark creates one for the tasks, and another for the commit."""

    def __init__(self, place: StorePlace, options: Options, schema: StructType) -> None:
        parsed = WriteOptions.parse(options)
        parsed.check_stream()
        self._publisher = QueryPublisher(parsed.publish_id, parsed.publish_take_over, parsed.publish_offsets)
        self._plan = plan_write(place, parsed, schema, options, of_query=True)
        self._checkpoint = options.get("checkpointlocation", "")
        self._query_name = options.get("queryname", "")
        self._warnings = without_effect(options, write=True)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        """Fences earlier runs of the query, then stages a task's rows."""
        claim_in_first_task(self._plan.store, self._publisher)
        return stage(self._plan, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Publishes the micro-batch; a replay of a published one changes nothing."""
        # Here, as one process makes all commits of a query.
        warn_of_options(self._warnings)
        publish_micro_batch(self._plan.store, messages, batchId, self._checkpoint, self._query_name, self._publisher)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Does nothing, for the reason given at PylogBatchWriter.abort."""
        log.warning("micro-batch %d failed; %s", batchId, _kept(self._plan, len(messages)))


def _kept(plan: WritePlan, tasks: int) -> str:
    """What is left of a failed write, for a warning."""
    return (
        f"the staged output of its {plural(tasks, 'task')} is kept in {plan.store.place.path} until "
        "staged.output.expiration.ms has passed (seven days by default); then `pylog clean` deletes it"
    )


def plan_write(
    place: StorePlace,
    options: WriteOptions,
    schema: StructType,
    all_options: Options | None = None,
    *,
    of_query: bool = False,
) -> WritePlan:
    """Checks the columns, opens or creates the store, and creates the topic if needed and allowed.

    Args:
        place: the store's.
        options: the options.
        schema: the columns.
        all_options: as Spark passes them, of which some are about schemas; None: none is.
        of_query: whether it is one of many micro-batches.
    """
    spare_modules()
    with conditions_shown():
        typed = _typed(place, all_options or {}, options, schema, of_query=of_query)
        check_columns(schema, options.topic, options.timestamp_column, typed.parts if typed else ())
        if options.topic is not None:
            # Before a store is created for it.
            check_name(options.topic)
            check_not_internal(options.topic)
        store, made = open_for_write(place), False
        if options.topic is None:
            # The column's topics are not known before the rows are read.
            topics = store.topics()
        else:
            made = store.ensure_topic(options.topic)
            if made:
                warn_of_new_topic(store, options.topic)
            topics = [options.topic]
        staging = store.publishes.plan(topics, options.compression_type, driver_process(), others=options.topic is None)
        return WritePlan(
            StoreRef.to(store, place.options), options.topic, options.timestamp_column, staging, made, typed
        )


def _typed(
    place: StorePlace, all_options: Options, options: WriteOptions, schema: StructType, *, of_query: bool
) -> TypedRows | None:
    """How columns become keys and values; None: they are bytes or text, which are written as they are."""
    plain = (StringType, BinaryType)
    parts = {field.name for field in schema if field.name in ("key", "value") and not isinstance(field.dataType, plain)}
    parts |= {"value"} if "flatten" in all_options else set()
    if options.topic is not None and parts:
        all_options = with_topic_formats(place, all_options, options.topic, parts)
    if not all_options.keys() & TYPED_OPTIONS:
        return None
    from pyspark_log.spark_connector.writing.typed_rows import typed_rows, typed_rows_of_query  # noqa: PLC0415  (most writes do without)

    return (typed_rows_of_query if of_query else typed_rows)(all_options, options, schema)


# A JVM's program has this name. At most this many ancestors are checked.
_JAVA = "java"
_MOST_ANCESTORS = 16


def driver_process() -> Process:
    """Finds the driver from one of its Python processes: without it, no process publishes its planned writes.

    Spark plans writes in Python processes that it may end at any time. Its JVM starts them, directly or by a forking
    daemon, and perhaps through a script in place of Python. A program that calls the connector is the driver itself.
    If the driver cannot be identified, no process takes its staged output for that of a dead one.
    """
    if not is_spark_process():
        return Process.here()
    process = worker_process.started or os.getpid()
    try:
        for _ in range(_MOST_ANCESTORS):
            process = _parent_of(process)
            if os.path.basename(os.readlink(f"/proc/{process}/exe")) == _JAVA:
                return Process.of(process)
    except (OSError, ValueError, IndexError):
        pass  # The system reports no more.
    return Process(os.getpid())


def _parent_of(process: int) -> int:
    """The parent of a process. OSError, ValueError, IndexError: the system does not report it."""
    with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
        return int(file.read().rpartition(")")[2].split()[1])
