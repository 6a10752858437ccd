"""Publishes on the driver what the tasks have staged."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from urllib.parse import unquote, urlsplit

from pyspark.sql.datasource import WriterCommitMessage

from pyspark_log.spark_connector.errors import ConnectorError, conditions_shown
from pyspark_log.spark_connector.store_access import StoreRef
from pyspark_log.spark_connector.task_writer import StagedMessage
from pyspark_log.storage.publish import publish
from pyspark_log.storage.staging import StagedPart

log = logging.getLogger(__name__)


def publish_batch(
    store: StoreRef, messages: Sequence[WriterCommitMessage | None], publisher: str, number: int, *, one_off: bool
) -> None:
    """Publishes a batch write under the name that it was given when it was planned."""
    with conditions_shown():
        result = publish(store.reopen(), publisher, number, _parts(messages), one_off=one_off)
    if result.replayed:
        log.warning(
            "publishId %s, publishNumber %d was published before, with %d records; this write's rows were dropped",
            publisher, number, result.records,
        )  # fmt: skip


def publish_micro_batch(
    store: StoreRef, messages: Sequence[WriterCommitMessage | None], batch_id: int, checkpoint: str
) -> None:
    """Publishes a micro-batch under its query's id, which Spark keeps in the checkpoint.

    Args:
        store: where.
        messages: of the tasks, in their order.
        batch_id: which micro-batch.
        checkpoint: the query's own checkpoint location, or "" if the session's counts.
    """
    staged = _staged(messages)
    query_ids = {message.query_id for message in staged}
    if len(query_ids) != 1 or "" in query_ids:
        raise ConnectorError(
            "PYLOG_UNKNOWN_QUERY",
            f"micro-batch {batch_id}: its tasks do not name the one query they worked for: {sorted(query_ids)}",
        )
    with conditions_shown():
        publish(
            store.reopen(),
            f"spark-{staged[0].query_id}",
            batch_id,
            _parts(messages),
            run=staged[0].run_id,
            location=same_location(checkpoint or staged[0].checkpoints),
        )


def same_location(checkpoint: str) -> str:
    """A checkpoint location in one spelling, so that the same folder is the same text in every run of a query.

    A local path may be given with or without `file:`, relative or absolute; other URIs stay as they are.
    """
    parts = urlsplit(checkpoint)
    if not checkpoint or parts.scheme not in ("", "file"):
        return checkpoint.rstrip("/")
    return os.path.abspath(unquote(parts.path) if parts.scheme else checkpoint)


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[StagedMessage]:
    return [message for message in messages if isinstance(message, StagedMessage)]


def _parts(messages: Sequence[WriterCommitMessage | None]) -> list[StagedPart]:
    """All parts, in the order of the tasks."""
    return [part for message in _staged(messages) for part in message.parts]
