"""Writes to the store of a node of a Kafka cluster: what the tasks have staged goes through the partitions' leaders."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark_log.replication.publish import publish
from pyspark_log.spark_connector.errors import ConnectorError
from pyspark_log.storage.catalog.own_cluster import read_cluster
from pyspark_log.storage.publish import StagedPart
from pyspark_log.storage.store import Store


def published_by_leaders(
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


def check_not_replicated(store: Store, what: str) -> None:
    """Refuses what a transaction through the leaders does not do. ConnectorError."""
    if read_cluster(store.path) is not None:
        raise ConnectorError(
            "PYLOG_REPLICATED",
            f"{what} is not possible where topics are replicated: {store.path} is the store of a node of a cluster",
        )
