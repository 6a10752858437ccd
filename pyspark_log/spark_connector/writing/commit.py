"""A write: its tasks stage their rows and report that to the driver, which publishes it.

Where the store is that of a node of a Kafka cluster, it goes through the partitions' leaders.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import WriterCommitMessage

from pyspark_log.errors import PylogError, StagedOutputError
from pyspark_log.replication.publish import publish
from pyspark_log.spark_connector.columns import RECORD_COLUMNS, TOPIC
from pyspark_log.spark_connector.errors import ConnectorError, conditions_shown, outcome_shown
from pyspark_log.spark_connector.store_access import StoreRef, warn_of_new_topic
from pyspark_log.spark_connector.worker_process import spare_modules
from pyspark_log.spark_connector.writing.query_run import (
    ITS_OWN,
    QueryPublisher,
    QueryRun,
    about,
    location_of,
    plan_of,
    steps_of,
    warn_of_earlier,
)
from pyspark_log.storage.catalog.store_json import read_cluster
from pyspark_log.storage.fs.clock import now_ms
from pyspark_log.storage.new_topics import keep_first_records
from pyspark_log.storage.publish import AgreedTopic, StagedPart, StagingPlan
from pyspark_log.storage.store import Store

if TYPE_CHECKING:
    from pyspark_log.spark_connector.writing.typed_rows import TypedRows

log = logging.getLogger(__name__)

# The runs of queries, with topics, that were warned. The committing process lives as long as the query runs.
_warned: set[tuple[str, str]] = set()
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
                        times[topic] = _joined_times(_bounds(rows), times.get(topic))
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


def _joined_times(times: tuple[int, int], others: tuple[int, int] | None) -> tuple[int, int]:
    """The oldest and the newest of both."""
    return times if others is None else (min(times[0], others[0]), max(times[1], others[1]))


def _bounds(rows: pa.RecordBatch) -> tuple[int, int]:
    """The oldest and the newest time of some rows in ms; rows without one get the time of the write."""
    times = rows.column(rows.schema.get_field_index(TIMESTAMP))
    bounds, in_ms = pc.min_max(times), pa.timestamp("ms", times.type.tz)
    ends = [now_ms()] if times.null_count else []
    ends += [bound.cast(in_ms, safe=False).value for bound in bounds.values() if bound.is_valid]
    return min(ends), max(ends)


def publish_batch(
    store: StoreRef, messages: Sequence[WriterCommitMessage | None], publisher: str, number: int, *, one_off: bool
) -> None:
    """Publishes a batch write under the id from its plan."""
    with outcome_shown():
        staged, opened = _staged(messages), store.reopen()
        check_agreements(staged)
        keep_old_records(opened, staged)
        parts = _published_by_leaders(opened, publisher, number, _parts(staged))
        result = opened.publishes.publish(publisher, number, parts, one_off=one_off)
    if not result.replayed:
        warn_of_old_times(opened, staged)
    end_agreements(opened, staged)
    if result.replayed:
        log.warning(
            "publishId %s, publishNumber %d was published before, with %d records; this write's rows were dropped",
            publisher,
            number,
            result.records,
        )


def publish_micro_batch(
    store: StoreRef,
    messages: Sequence[WriterCommitMessage | None],
    batch_id: int,
    checkpoint: str,
    query_name: str,
    publisher: QueryPublisher = ITS_OWN,
) -> None:
    """Publishes a micro-batch under its query's id, which Spark keeps in the checkpoint, or the user's.

    Args:
        store: the store.
        messages: the tasks' messages, in task order.
        batch_id: the micro-batch's id.
        checkpoint: the query's own checkpoint location, or "" if the session's counts.
        query_name: the query's name, or "".
        publisher: under which id the query publishes, and whether with the offsets that it has read.
    """
    with outcome_shown():
        staged, opened = _staged(messages), store.reopen()
        check_agreements(staged)
        keep_old_records(opened, staged)
        run = _run_of(staged, batch_id)
        location = location_of(checkpoint, run.checkpoints, query_name)
        publisher_id = publisher.id_of(run.query_id)
        if publisher.commits_offsets:
            _check_not_replicated(opened, "publishOffsets")
        output = _parts(staged)
        known = about(query_name, location, batch_id, output)
        warn_of_earlier(opened, publisher_id, known)
        parts = _published_by_leaders(opened, publisher_id, batch_id, output, run.run_id)
        opened.publishes.publish(
            publisher_id,
            batch_id,
            parts,
            steps=steps_of(opened, location, batch_id) if publisher.commits_offsets else [],
            run=run.run_id,
            claimed=True,
            location=publisher.location_of(run.query_id),
            plan=plan_of(location, batch_id),
            about=known,
        )
    warn_of_old_times(opened, staged, run.run_id)
    end_agreements(opened, staged)


def check_agreements(messages: Sequence[StagedMessage]) -> None:
    """Refuses a write whose tasks used different partition counts of a topic: a key could be in two partitions.

    Then the file with the agreed count was removed while they ran: by hand, or because it was older than
    `staged.output.expiration.ms`.

    Raises:
        StagedOutputError: the write must be repeated.
    """
    agreed = dict[str, tuple[str, int]]()
    for one in (one for message in messages for one in message.agreed):
        terms = (one.topic_id, one.partitions)
        if agreed.setdefault(one.file, terms) != terms:
            raise StagedOutputError(
                f"tasks of one write saw {agreed[one.file][1]} and {one.partitions} partitions of topic "
                f"{one.name!r}, as {one.file} was removed from the staging folder meanwhile: write it again"
            )


def end_agreements(store: Store, messages: Sequence[StagedMessage]) -> None:
    """Logs the topics that a write's tasks have created, and removes their agreement files; all tasks are done."""
    agreed = [one for message in messages for one in message.agreed]
    for topic in sorted({one.name for one in agreed if one.made}):
        warn_of_new_topic(store, topic)
    store.publishes.end_agreements(agreed)


def keep_old_records(store: Store, messages: Sequence[StagedMessage]) -> None:
    """Before a publish: has the topics that its write has created keep old records that it brings."""
    made = {message.made for message in messages}
    made |= {one.name for message in messages for one in message.agreed if one.made}
    for topic, (oldest, _) in _times(messages).items():
        if topic in made:
            keep_first_records(store, topic, oldest)


def warn_of_old_times(store: Store, messages: Sequence[StagedMessage], run_id: str = "") -> None:
    """Warns of topics whose written records are all past retention: the next write deletes them.

    Args:
        store: the store that was published to.
        messages: the tasks' messages.
        run_id: the streaming query's run, which is warned once per topic.
    """
    for topic, (_, newest) in _times(messages).items():
        # All of it is published: a write that failed here would be repeated.
        with contextlib.suppress(PylogError, OSError):
            if (run_id, topic) not in _warned and store.publishes.warn_of_old(topic, newest) and run_id:
                _warned.add((run_id, topic))


def _times(messages: Sequence[StagedMessage]) -> dict[str, tuple[int, int]]:
    """The oldest and the newest time (ms) that a write brings to each topic."""
    times = dict[str, tuple[int, int]]()
    for message in messages:
        for topic, bounds in message.times.items():
            times[topic] = _joined_times(bounds, times.get(topic))
    return times


def _run_of(staged: Sequence[StagedMessage], batch_id: int) -> QueryRun:
    """The one run that all tasks worked for."""
    runs = {message.run for message in staged}
    if len(runs) != 1 or not staged[0].run.query_id:
        raise ConnectorError(
            "PYLOG_UNKNOWN_QUERY",
            f"micro-batch {batch_id}: its tasks do not agree on the query that they worked for: {runs}",
        )
    return staged[0].run


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[StagedMessage]:
    """The messages of all tasks. A task without a message may have had rows, which would be lost."""
    staged = [message for message in messages if isinstance(message, StagedMessage)]
    if len(staged) != len(messages):
        silent = len(messages) - len(staged)
        problem = f"{silent} of {len(messages)} tasks did not report what they staged"
        raise ConnectorError("PYLOG_INCOMPLETE_WRITE", problem)
    return staged


def _parts(messages: Sequence[StagedMessage]) -> list[StagedPart]:
    """All parts, in the order of the tasks."""
    return [part for message in messages for part in message.parts]


def _published_by_leaders(
    store: Store, publisher: str, number: int, parts: Sequence[StagedPart], run: str = ""
) -> Sequence[StagedPart]:
    """Publishes staged output as a transaction through the leaders, exactly once, if the store is a node's.

    `run`: the run that must still hold its claim to the publisher; "": none has claimed it.

    Returns:
        What is left to publish in the store itself: nothing, but for the publish's number, or all.

    Raises:
        PublishError, OutcomeUnknownError: as replication.publish.
    """
    cluster = read_cluster(store.path)
    if cluster is None:
        return parts
    if run:
        store.publishes.check_claim(publisher, run)
    publish(store.path, cluster, publisher, number, parts)
    store.publishes.discard(parts)
    return []


def _check_not_replicated(store: Store, what: str) -> None:
    """Refuses what a transaction through the leaders does not do. ConnectorError."""
    if read_cluster(store.path) is not None:
        raise ConnectorError(
            "PYLOG_REPLICATED",
            f"{what} is not possible where topics are replicated: {store.path} is the store of a node of a cluster",
        )
