"""A run of a streaming query, as its tasks know it, and how it becomes the one that publishes for the query."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark import TaskContext

from pyspark_log.spark_connector.errors import outcome_shown
from pyspark_log.spark_connector.store_access import StoreRef
from pyspark_log.storage.publish import claim


@dataclass(frozen=True)
class QueryRun:
    """What only tasks are told of the query that they work for.

    Attributes:
        query_id: its id, which its checkpoint keeps; "" in a batch write.
        run_id: which run of the query; each start is one.
        checkpoints: the session's checkpoint location; "" if there is none.
    """

    query_id: str
    run_id: str
    checkpoints: str

    @classmethod
    def of_task(cls) -> QueryRun:
        """That of the task which this process is at work on."""
        names = ("sql.streaming.queryId", "spark.jobGroup.id", "spark.sql.streaming.checkpointLocation")
        return cls(*(_local_property(name) for name in names))


def publisher_of(query_id: str) -> str:
    """The id under which a query publishes."""
    return f"spark-{query_id}"


def claim_in_first_task(store: StoreRef) -> None:
    """Fences the earlier runs of the query before this one stages anything.

    Tasks are the first to be told of the run. The first one of each micro-batch does it; so the others need not know
    what was published. Errors as claim_run.
    """
    if _context().partitionId() == 0:
        claim_run(store, QueryRun.of_task(), int(_local_property("streaming.sql.batchId")))


def claim_run(store: StoreRef, run: QueryRun, batch_id: int) -> None:
    """Makes a run the one that publishes for its query.

    Raises:
        ConnectorError: with the engine's condition, and whether the micro-batch is published. If a newer run has the
            query, or the micro-batch is neither the last one nor the next, nobody is fenced.
    """
    with outcome_shown():
        claim(store.reopen(), publisher_of(run.query_id), run.run_id, batch_id)


def _local_property(name: str) -> str:
    return _context().getLocalProperty(name) or ""


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "Spark calls a writer's write() in a task"
    return context
