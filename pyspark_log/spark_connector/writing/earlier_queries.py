"""Whether another query has written to a topic before, which may be the same one with a new checkpoint."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence

from pyspark_log.errors import PylogError
from pyspark_log.spark_connector.errors import ConnectorError
from pyspark_log.spark_connector.planning.source_offsets import topics_read
from pyspark_log.storage.fs.clock import format_time
from pyspark_log.storage.publish import Decision, StagedPart
from pyspark_log.storage.publish.decision import About
from pyspark_log.storage.store import Store

log = logging.getLogger(__name__)

# The publishers that this process has looked at. It lives as long as the query runs.
_seen: set[str] = set()


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
