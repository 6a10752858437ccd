"""A run of a streaming query, as its tasks know it, and its claim to publish for the query."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from pyspark import TaskContext

from pyspark_log.spark_connector.errors import outcome_shown
from pyspark_log.spark_connector.store_access import StoreRef


@dataclass(frozen=True)
class QueryRun:
    """A task's query and run, which Spark reveals only to tasks.

    Attributes:
        query_id: its id, which its checkpoint keeps; "" in a batch write.
        run_id: the run of the query; each start is a new run.
        checkpoints: the session's checkpoint location; "" if there is none.
    """

    query_id: str
    run_id: str
    checkpoints: str

    @classmethod
    def of_task(cls) -> QueryRun:
        """The run of the task that this process executes."""
        names = ("sql.streaming.queryId", "spark.jobGroup.id", "spark.sql.streaming.checkpointLocation")
        return cls(*(_local_property(name) for name in names))


@dataclass(frozen=True)
class QueryPublisher:
    """Under which id a streaming query publishes, and what with its output.

    Attributes:
        publish_id: the user's; None: derived from the query's id.
        take_over: whether an id that belongs to another query becomes that of this one.
        commits_offsets: whether the offsets that a micro-batch has read are committed with it.
    """

    publish_id: str | None = None
    take_over: bool = False
    commits_offsets: bool = False

    def id_of(self, query_id: str) -> str:
        """The id."""
        return self.publish_id or f"spark-{query_id}"

    def location_of(self, query_id: str) -> str:
        """What is recorded as the checkpoint; "" if the id says it."""
        return f"of query {query_id}" if self.publish_id else ""


#: A query that names no id.
ITS_OWN = QueryPublisher()


def claim_in_first_task(store: StoreRef, publisher: QueryPublisher) -> None:
    """Fences the earlier runs of the query before this one stages anything.

    Tasks are the first to know the run. The first task of each micro-batch does it, so the others need not know
    what was published. Raises: as claim_run.
    """
    if _context().partitionId() == 0:
        claim_run(store, QueryRun.of_task(), int(_local_property("streaming.sql.batchId")), publisher)


def claim_run(store: StoreRef, run: QueryRun, batch_id: int, publisher: QueryPublisher = ITS_OWN) -> None:
    """Makes a run the query's publisher, and fences earlier runs.

    Raises:
        ConnectorError: with the engine's condition, and whether the micro-batch is published. If a newer run holds the
            query, or the micro-batch is neither the last one nor the next, no run is fenced.
    """
    with outcome_shown():
        store.reopen().publishes.claim(
            publisher.id_of(run.query_id),
            run.run_id,
            batch_id,
            location=publisher.location_of(run.query_id),
            take_over=publisher.take_over,
        )


def _local_property(name: str) -> str:
    return _context().getLocalProperty(name) or ""


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "Spark calls a writer's write() in a task"
    return context


def location_of(option: str, session: str, query_name: str) -> str:
    """A query's checkpoint location, by Spark's rule, normalised to one spelling for all runs of the query.

    Args:
        option: the option checkpointLocation, or "".
        session: the session's spark.sql.streaming.checkpointLocation, or "".
        query_name: the query's name, or "".

    Returns:
        "" if Spark chooses another location for each run.
    """
    if option:
        return same_location(option)
    return same_location(f"{session.rstrip('/')}/{query_name}") if session and query_name else ""


def same_location(checkpoint: str) -> str:
    """Normalises a checkpoint location, so that the same folder is the same text in every run of a query.

    A local path may be given with or without `file:`, relative or absolute; other URIs stay unchanged.
    """
    parts = urlsplit(checkpoint)
    if not checkpoint or parts.scheme not in ("", "file"):
        return checkpoint.rstrip("/")
    return os.path.abspath(unquote(parts.path) if parts.scheme else checkpoint)


def plan_of(location: str, batch_id: int) -> str:
    """Identifies the input that Spark has planned for a micro-batch.

    Spark writes a micro-batch's offsets to its checkpoint before running it, with the time of writing, and reads them
    there when it reruns it. If this process cannot read them, the location is used instead.

    Args:
        location: the checkpoint's, as from `location_of`.
        batch_id: the micro-batch's id.

    Returns:
        "" if nothing is known.
    """
    if location.startswith("/"):
        try:
            with open(f"{location}/offsets/{batch_id}", "rb") as file:
                return "offsets " + hashlib.blake2b(file.read(), digest_size=16).hexdigest()
        except OSError:
            pass
    return f"at {location}" if location else ""
