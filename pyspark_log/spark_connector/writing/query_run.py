"""What is known of a streaming query where it writes: its run, other queries that wrote before, and what it has read.

Its tasks know the run, which claims to publish for the query. Another query that has written to a topic before may be
the same one with a new checkpoint. The offsets that a micro-batch has read of the store that it is written to are
committed by the publish itself. A sink learns nothing of its sources from Spark. But Spark writes the end offset of
each source to the query's checkpoint before it runs a micro-batch: a line with a version, one with metadata, and one
for each source.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from pyspark import TaskContext

from pyspark_log.errors import PylogError
from pyspark_log.spark_connector.errors import ConnectorError, option_error, outcome_shown
from pyspark_log.spark_connector.planning.offsets import Offsets, SourceOffset, is_own
from pyspark_log.spark_connector.store_access import StoreRef
from pyspark_log.storage.fs.clock import format_time
from pyspark_log.storage.publish import Decision, StagedPart
from pyspark_log.storage.publish.decision import About
from pyspark_log.storage.store import Store
from pyspark_log.types import OffsetStep, TopicPartition

log = logging.getLogger(__name__)

# The publishers that this process has looked at. It lives as long as the query runs.
_seen: set[str] = set()
# Of a file of offsets in a checkpoint.
_VERSION = "v1"


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


def about(query: str, location: str, batch_id: int, parts: Sequence[StagedPart]) -> About:
    """What is known of a query by its micro-batch: its name, its checkpoint, and topics that it reads and writes."""
    reads: tuple[str, ...] = ()
    with contextlib.suppress(ConnectorError):  # The checkpoint cannot be read here.
        reads = topics_read(location, batch_id)
    return About(query, location, reads, tuple(sorted({part.topic for part in parts if part.count})))


def warn_of_earlier(store: Store, publisher: str, now: About) -> None:
    """Warns if a query's first output goes to a topic that an earlier query of the same kind wrote; before it is out.

    Of the same kind: with this checkpoint, name, or topics to read.

    Args:
        store: the store that is written to.
        publisher: the query's.
        now: what is known of it.
    """
    if not now.writes or publisher in _seen:
        return
    _seen.add(publisher)
    with contextlib.suppress(PylogError, OSError):  # The publish meets the same.
        found = store.publishes.publishers()
        if any(one.publisher == publisher and one.about.writes for one in found):
            return
        for other in found:
            why = _likeness(now, other) if other.publisher != publisher else ""
            if why:
                log.warning("%s: %s", store.path, _said(publisher, now, other, why))
                return


def _likeness(now: About, other: Decision) -> str:
    """What two queries that write to the same topic have in common; "": nothing, or the other one runs."""
    before = other.about
    if set(now.writes).isdisjoint(before.writes):
        return ""
    if now.checkpoint and now.checkpoint == before.checkpoint:
        return "with the same checkpoint location"
    if now.query and now.query == before.query:
        return "of the same name"
    if now.reads and now.reads == before.reads and not other.may_run():
        return "that read the same topics"
    return ""


def _said(publisher: str, now: About, other: Decision, why: str) -> str:
    topics = ", ".join(sorted(set(now.writes) & set(other.about.writes)))
    return (
        f"the query {now.query or publisher} writes to {topics} for the first time, which another query {why} has "
        f"written to before ({other.publisher}, last {format_time(other.time)}). If it is the same query, whose "
        "checkpoint was lost, it has begun again at startingOffsets, and its output may be there twice. A query with a "
        "publishId, or with publishOffsets, is refused then or continues: "
        "docs/guides/streaming.md#when-a-checkpoint-is-lost"
    )


def steps_of(store: Store, location: str, batch_id: int) -> list[OffsetStep]:
    """The moves of committed offsets from where a micro-batch begins to where it ends, for each source in the store.

    A group that has no committed offset of a partition may begin anywhere. Any other must be where the micro-batch
    begins: what it reads was not read by another query of the group, and nothing was left out.

    Args:
        store: the store that the micro-batch is written to.
        location: the query's checkpoint, as from `location_of`.
        batch_id: the micro-batch's id.

    Raises:
        ConnectorError: the checkpoint cannot be read here; or no source reads this store.
    """
    steps: dict[tuple[str, TopicPartition], OffsetStep] = {}
    for start, end in _ranges(store, location, batch_id):
        group = end.group or ""
        committed = store.groups[group].committed()
        for at, offset in end.offsets.items():
            if offset != start.get(at):
                steps[group, at] = OffsetStep(group, at, start.get(at) if at in committed else None, offset)
    return list(steps.values())


def topics_read(location: str, batch_id: int) -> tuple[str, ...]:
    """The topics of all pylog sources of a query, sorted. ConnectorError: the checkpoint cannot be read here."""
    ends = [end for end in _offsets_of(location, batch_id) if end is not None]
    return tuple(sorted({at.topic for end in ends for at in end.offsets}))


def _ranges(store: Store, location: str, batch_id: int) -> Iterator[tuple[Offsets, SourceOffset]]:
    """The start and the end of each source that reads the store."""
    ends = _offsets_of(location, batch_id)
    starts = _offsets_of(location, batch_id - 1) if batch_id else [None for _ in ends]
    found = 0
    for before, end in zip(starts, ends, strict=True):
        if end is not None and end.identity.cluster_id == store.cluster_id:
            found += 1
            yield (before.offsets if before is not None else end.start or {}), end
    if not found:
        raise option_error(
            f"publishOffsets: no source of this query reads the store {store.path}: a publish can commit offsets "
            "only of topics in the store that it writes to"
        )


def _offsets_of(location: str, batch_id: int) -> list[SourceOffset | None]:
    """The end offsets of a micro-batch's sources; None for a source of another kind."""
    path = f"{location}/offsets/{batch_id}"
    try:
        with open(path, encoding="utf-8") as file:
            version, _, *lines = file.read().splitlines()
    except (OSError, ValueError) as error:
        raise ConnectorError(
            "PYLOG_CHECKPOINT_NOT_READABLE",
            f"publishOffsets needs the query's checkpoint in a folder that the driver can read: {error or path}",
        ) from error
    if version != _VERSION:
        raise ConnectorError(
            "PYLOG_CHECKPOINT_NOT_READABLE", f"{path} has the version {version}; {_VERSION} is understood"
        )
    return [SourceOffset.from_json(nested) if any(map(is_own, nested := _parsed(line))) else None for line in lines]


def _parsed(line: str) -> dict[str, object]:
    """An offset as JSON; empty if it is that of another kind of source, or of one without new data."""
    try:
        nested = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return nested if isinstance(nested, dict) else {}
