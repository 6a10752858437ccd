"""An export from beginning to end, on the driver.

The order makes it exactly once. The plan is kept first, durably. Tasks write complete files aside. The plan is kept
again with the names of what they wrote, and only these files are placed, under names that follow from the offsets. Then
the offsets are committed, synced, and the plan is removed. A run that finds a plan resumes it where it was left.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from pyspark_log.errors import LockTimeoutError, OffsetConflictError, UnsupportedByStoreError
from pyspark_log.jobs.export.delta import add_version
from pyspark_log.jobs.export.layout import Layout
from pyspark_log.jobs.export.plan import Plan, PlannedRange, WrittenFile, check_topic, make_plan
from pyspark_log.jobs.export.target import Target
from pyspark_log.jobs.export.task import ExportTask, write_range
from pyspark_log.jobs.support import JobError, run_tasks
from pyspark_log.spark_connector.store_access import StoreRef
from pyspark_log.storage.catalog import OFFSETS_TOPIC
from pyspark_log.storage.fs import FileLock
from pyspark_log.storage.groups import NEVER
from pyspark_log.storage.store import Store
from pyspark_log.types import TopicPartition


@dataclass(frozen=True)
class Request:
    """What is to be exported.

    Attributes:
        source: the store, or a broker's folder.
        state: the store whose offsets log has the group; None: the source.
        target: the folder.
        group: its name.
        topics: returns the topics by name.
        layout: how the files are made.
        isolation_level: of the reads.
        skip_lost: whether to continue after records that were deleted before they were read.
        max_records_per_task: a larger range is cut; None: one task a partition.
        delta: whether the folder is a Delta table.
    """

    source: str
    state: str | None
    target: str
    group: str
    topics: Callable[[Store], Sequence[str]]
    layout: Layout
    isolation_level: str
    skip_lost: bool
    max_records_per_task: int | None
    delta: bool = False


def export_topics(spark: SparkSession, request: Request) -> dict[str, int | float]:
    """Exports what the group has not read yet; finishes what an earlier run has left first.

    Returns:
        Figures by name: rows, bytes, files, seconds and rows a second.

    Raises:
        JobError: it could not be done; a later run resumes there.
        StoreError, UnknownTopicError, OffsetConflictError, OSError: likewise.
    """
    began = time.monotonic()
    written = _Export(spark, request).run()
    rows, seconds = sum(one.rows for one in written), time.monotonic() - began
    return {
        "rows": rows,
        "bytes": sum(one.bytes for one in written),
        "files": len(written),
        "seconds": seconds,
        "rows_per_second": round(rows / seconds),
    }


class _Export:
    def __init__(self, spark: SparkSession, request: Request) -> None:
        self._spark, self._request = spark, request
        self._source = Store.open(request.source)
        self._state = self._source if request.state is None else Store.open(request.state)
        if self._state.partitions.are_brokers:
            raise JobError(
                f"{self._state.path} is a Kafka broker's folder, which is read-only: name a store for the group's "
                "offsets with --state"
            )
        self._group = self._state.groups[request.group]
        self._target = Target(request.target, request.group)

    def run(self) -> list[WrittenFile]:
        """Returns the files that are in place by this run."""
        self._target.prepare()
        lock = self._lock()
        try:
            self._source.publishes.apply_pending()
            pending = self._target.plan()
            written = [] if pending is None else [*self._finish(pending)]
            plan = self._plan()
            if plan.ranges:
                self._target.keep(plan)
                written += self._finish(plan)
            return written
        finally:
            lock.release()

    def _lock(self) -> FileLock:
        """Takes the lock of the group. JobError: another run of the group has it."""
        try:
            lock = self._group.lock("export")
        except UnsupportedByStoreError:
            # An object store has no locks. There the commit says that another run was faster.
            lock = self._target.lock()
        try:
            lock.acquire(timeout=0)
        except LockTimeoutError as error:
            group = self._request.group
            raise JobError(f"another export of group {group!r} is running: {error}", error.condition) from None
        return lock

    def _plan(self) -> Plan:
        """A plan to read what the group has not read yet."""
        request = self._request
        committed = {at: one.offset for at, one in self._group.committed().items()}
        topics = request.topics(self._source)
        return make_plan(self._source, topics, committed, request.isolation_level, skip_lost=request.skip_lost)

    # ---- a plan

    def _finish(self, plan: Plan) -> Sequence[WrittenFile]:
        """Does what is left of a plan; returns the files that it placed."""
        if plan.cluster_id != self._source.cluster_id:
            raise JobError(
                f"{self._target.plan_path} is the plan of an export from another store (cluster id {plan.cluster_id}) "
                f"than {self._source.path} ({self._source.cluster_id}): finish it with that store, or use another group"
            )
        left, placed = self._left(plan), tuple[WrittenFile, ...]()
        self._target.sweep(plan.files or ())
        if left:
            if plan.files is None:
                plan = self._write(plan)
            placed = plan.files or ()
            self._target.place(placed)
            if self._request.delta:
                add_version(self._target.path, self._request.group, plan)
            self._commit(left)
        self._target.forget_plan()
        return placed

    def _left(self, plan: Plan) -> list[PlannedRange]:
        """The ranges whose offsets are not committed yet. JobError: another process has moved them."""
        committed, left = self._group.committed(), []
        for one in plan.ranges:
            found = committed[one.at].offset if one.at in committed else None
            if found == one.until:
                continue
            if found != one.committed:
                raise JobError(
                    f"group {self._request.group!r}: the committed offset of {one.at} is {found}, and the plan "
                    f"{self._target.plan_path} began at {one.committed}: the group was reset, or has written to "
                    "another folder since. To give the plan up, remove it, and the files that it names if there are "
                    "some",
                    OffsetConflictError.condition,
                )
            left.append(one)
        return left

    def _write(self, plan: Plan) -> Plan:
        """Runs the tasks; returns the plan with their files, which is kept."""
        request, source = self._request, StoreRef.to(self._source)
        for one in plan.ranges:
            check_topic(self._source, one)
        tasks = [
            ExportTask(source, piece, request.layout, self._target.work, request.isolation_level, request.skip_lost)
            for one in plan.ranges
            for piece in _pieces(one, request.max_records_per_task)
        ]
        found = run_tasks(self._spark, f"{request.group}: {len(plan.ranges)} partitions", write_range, tasks)
        plan = replace(plan, files=tuple(file for files_of_task in found for file in files_of_task))
        self._target.check_free(plan.files or ())
        self._target.keep(plan)
        return plan

    def _commit(self, ranges: Sequence[PlannedRange]) -> None:
        """Commits the ends of ranges, durably: no power loss brings the offsets back once the plan is gone."""
        offsets: dict[TopicPartition, int] = {one.at: one.until for one in ranges}
        # An offset that expired would have its partition exported once more.
        expected = {one.at: one.committed for one in ranges}
        self._group.commit(offsets, expected=expected, expire_timestamp=NEVER)
        self._state.flush(OFFSETS_TOPIC)


def _pieces(planned: PlannedRange, most: int | None) -> Iterator[PlannedRange]:
    """A range, cut into ranges of `count` offsets."""
    for start in range(planned.start, planned.until, most or planned.until - planned.start):
        yield replace(planned, start=start, until=min(start + most, planned.until) if most else planned.until)
