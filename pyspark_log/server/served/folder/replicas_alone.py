"""Replicas of a node of a Kafka cluster, served without the cluster: from a copy of its folder, say."""

from __future__ import annotations

import contextlib
import logging

from pyspark_log.errors import PylogError
from pyspark_log.storage.catalog import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from pyspark_log.storage.folder_store import FolderStore
from pyspark_log.storage.fs import files
from pyspark_log.storage.log.state.partition_state import check_length
from pyspark_log.storage.segment.file_names import LOG, segment_path
from pyspark_log.types import TopicPartition

_log = logging.getLogger(__name__)

#: Why nothing of such a store is changed.
WHY = (
    "it has the replicas of a node of a Kafka cluster, which coordinates its groups: consumers have to name their "
    "partitions here"
)


def has_replicas(store: FolderStore) -> bool:
    """Whether a store is that of a node, by Kafka's own topics and the first other one that was written to."""
    others = (is_replica for topic in store.topics() if (is_replica := _is_replica(store, topic)) is not None)
    return any(_is_replica(store, topic) for topic in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)) or next(others, False)


def _is_replica(store: FolderStore, topic: str) -> bool | None:
    """Whether the first partition of a topic that was written to is a replica; None: there is none to be read."""
    with contextlib.suppress(PylogError, OSError):  # A read reports that.
        for number in store.written_partitions(topic):
            return store.logs.reader(topic, number).state().is_replica
    return None


def report_hidden(store: FolderStore) -> None:
    """Says in the log which records are there and cannot be read."""
    for topic in store.topics():
        for number in store.written_partitions(topic):
            try:
                _report(store, TopicPartition(topic, number))
            except (PylogError, OSError) as error:
                _log.error("%s-%d cannot be read: %s", topic, number, error)


def _report(store: FolderStore, at: TopicPartition) -> None:
    reader = store.logs.recovered(at.topic, at.partition)
    state = reader.state()
    if state.position:
        path = segment_path(reader.place_in(state).folder, state.active_base, LOG)
        check_length(reader.place, path, files.size_of(path), state.position)
    if state.is_replica and state.high_watermark < state.next_offset:
        _log.warning(
            "%s: offsets %d to %d are not shown, as the node did not know yet that all replicas in sync had them",
            at, state.high_watermark, state.next_offset - 1,
        )  # fmt: skip
