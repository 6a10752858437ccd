"""The streaming query that commits a group's offsets: each commit has its process as text.

A query is no member of its group, as no coordinator gives it partitions. So the records of a group say nothing of it.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import NamedTuple

from pyspark_log.storage.fs import Process
from pyspark_log.storage.groups.log.metadata import GroupState
from pyspark_log.storage.groups.log.view import OffsetAndMetadata
from pyspark_log.types import TopicPartition

_MARK = "spark-query"

#: The state of a group without members whose query runs, or may run on another machine.
QUERY = "Query"


class QueryReader(NamedTuple):
    """A query that has committed offsets.

    Attributes:
        host, process: where it ran, or runs: the process that plans its micro-batches.
        name: the query's, as its option `queryName` says; "": it says none.
        commit_timestamp: when it committed last, in ms.
    """

    host: str
    process: Process
    name: str
    commit_timestamp: int


def text_of_this_process(query_name: str) -> str:
    """The text of a query's commits, which this process makes; `query_name`: as of QueryReader."""
    here = Process.here()
    return f"{_MARK} {here.number} {here.birth or '-'} {socket.gethostname()} {query_name}".rstrip()


def query_of(committed: Mapping[TopicPartition, OffsetAndMetadata]) -> QueryReader | None:
    """The query that has committed the newest of a group's offsets; None: another program has."""
    newest = max(committed.values(), key=lambda one: one.commit_timestamp, default=None)
    words = [] if newest is None else newest.metadata.split(" ", 4)
    if newest is None or len(words) < 4 or words[0] != _MARK or not words[1].isdecimal():
        return None
    birth = "" if words[2] == "-" else words[2]
    return QueryReader(words[3], Process(int(words[1]), birth), "".join(words[4:]), newest.commit_timestamp)


def state_of(state: str, committed: Mapping[TopicPartition, OffsetAndMetadata]) -> str:
    """A group's state for people: `QUERY`, or Kafka's name of the state, which `state` is."""
    reader = query_of(committed) if state == GroupState.EMPTY.value else None
    return state if reader is None or reader.process.is_dead() else QUERY
