"""Publishes, on the driver, what the tasks have staged."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence

from pyspark.sql.datasource import WriterCommitMessage

from pyspark_log.errors import PylogError, StagedOutputError
from pyspark_log.spark_connector.errors import ConnectorError, outcome_shown
from pyspark_log.spark_connector.planning.source_offsets import steps_of
from pyspark_log.spark_connector.store_access import StoreRef, warn_of_new_topic
from pyspark_log.spark_connector.writing.earlier_queries import about, warn_of_earlier
from pyspark_log.spark_connector.writing.leaders import check_not_replicated, published_by_leaders
from pyspark_log.spark_connector.writing.query_run import ITS_OWN, QueryPublisher, QueryRun, location_of, plan_of
from pyspark_log.spark_connector.writing.task_writer import StagedMessage, joined_times
from pyspark_log.storage.new_topics import keep_first_records
from pyspark_log.storage.publish import StagedPart
from pyspark_log.storage.store import Store

log = logging.getLogger(__name__)

# The runs of queries, with topics, that were warned. The committing process lives as long as the query runs.
_warned: set[tuple[str, str]] = set()


def publish_batch(
    store: StoreRef, messages: Sequence[WriterCommitMessage | None], publisher: str, number: int, *, one_off: bool
) -> None:
    """Publishes a batch write under the id from its plan."""
    with outcome_shown():
        staged, opened = _staged(messages), store.reopen()
        check_agreements(staged)
        keep_old_records(opened, staged)
        parts = published_by_leaders(opened, publisher, number, _parts(staged))
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
            check_not_replicated(opened, "publishOffsets")
        output = _parts(staged)
        known = about(query_name, location, batch_id, output)
        warn_of_earlier(opened, publisher_id, known)
        parts = published_by_leaders(opened, publisher_id, batch_id, output, run.run_id)
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
            times[topic] = joined_times(bounds, times.get(topic))
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
