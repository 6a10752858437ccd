"""Publishes of staged output into the replicated topics of a node's cluster: each a transaction through the leaders.

The publish's number is in the transaction, too, as a committed offset of a group of the publisher's: so a publish that
is repeated after any failure is recognised, wherever it is repeated.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence

from pyspark_log.errors import (
    CorruptRecordError,
    OutcomeUnknownError,
    PublisherFencedError,
    PublishFailedError,
    PublishNumberError,
    PylogError,
)
from pyspark_log.kafka.cluster import Cluster
from pyspark_log.kafka.errors import ClusterError, ProducerFencedError
from pyspark_log.kafka.transaction import Batch, Transactions
from pyspark_log.replication.login import read_client_config
from pyspark_log.storage.catalog.store_json import STAGING_FOLDER, OwnCluster
from pyspark_log.storage.publish import StagedPart
from pyspark_log.storage.publish.staging.staged_file import StagedRegion
from pyspark_log.storage.record import headers_in, with_producer
from pyspark_log.types import TopicPartition

log = logging.getLogger(__name__)


def publish(path: str, cluster: OwnCluster, publisher: str, number: int, parts: Sequence[StagedPart]) -> bool:
    """Makes staged output visible, all of it, exactly once.

    Args:
        path: the folder of the store in which it is staged.
        cluster: that of the store's node.
        publisher: the publisher's id.
        number: which of its publishes this is; consecutive, from any start.
        parts: what was staged, in the order in which it is to appear.

    Returns:
        Whether it had been published before, and nothing was done.

    Raises:
        PublishFailedError: nothing was published; unless what was staged is damaged, the same call can be repeated.
        StagedOutputError: the bytes are not those that were staged; nothing was published.
        PublishNumberError: it is neither the next number nor the last one; nothing was published.
        PublisherFencedError: a newer run has the publisher's id; nothing was published.
        OutcomeUnknownError: it is published or not; repeating the call answers it.
    """
    if not parts:
        return False
    name = f"pylog-{publisher}"
    try:
        with Cluster(cluster.brokers, read_client_config(cluster.client_config or None)) as brokers:
            brokers.topics([])
            producer = Transactions(brokers, name)
            if _is_published(producer, name, number):
                return True
            _publish(path, producer, name, number, parts)
            return False
    except ProducerFencedError as error:
        raise PublisherFencedError(f"publisher {publisher!r}: {error}", "", 0, 0) from error
    except (ClusterError, CorruptRecordError, OSError) as error:
        condition = error.condition if isinstance(error, PylogError) else "PYLOG_KAFKA_CLUSTER"
        problem = f"publisher {publisher!r}, number {number}: nothing was published: {error}"
        raise PublishFailedError(problem, condition, not isinstance(error, CorruptRecordError)) from error


def _is_published(producer: Transactions, name: str, number: int) -> bool:
    """Whether the publisher's last publish is of that number. PublishNumberError: it is neither that nor the next."""
    committed = producer.committed(name)
    if not committed:
        return False
    following = max(committed.values())
    if number not in (following - 1, following):
        raise PublishNumberError(
            f"{name}: number {number}, but the cluster has published {following - 1} last: the checkpoint (or the "
            "count that the number comes from) is older or newer than the cluster. Continue with a new checkpoint or "
            "publisher id, from offsets that you choose"
        )
    return number == following - 1


def _publish(path: str, producer: Transactions, name: str, number: int, parts: Sequence[StagedPart]) -> None:
    by_partition = dict[TopicPartition, list[StagedPart]]()
    for part in parts:
        by_partition.setdefault(TopicPartition(part.topic, part.partition), []).append(part)
    try:
        producer.send({at: _batches(path, producer, at, staged) for at, staged in by_partition.items()})
        producer.commit_offset(name, min(by_partition), number + 1, f"publish {number}")
    except BaseException:
        # Else it is aborted after its time-out, or by the next publish.
        with contextlib.suppress(PylogError, OSError):
            producer.end(commit=False)
        raise
    try:
        producer.end(commit=True)
    except ProducerFencedError:
        raise
    except (PylogError, OSError) as error:
        raise OutcomeUnknownError(f"{name}: it is not known whether number {number} is published: {error}") from error


def _batches(path: str, producer: Transactions, at: TopicPartition, parts: Sequence[StagedPart]) -> Iterator[Batch]:
    """The staged batches of a partition, with the producer's id and sequence numbers.

    Only the end of the iteration proves that they are what was staged (see StagedRegion.read).
    """
    for part in parts:
        place = f"{path}/{STAGING_FOLDER}/{part.file}" if part.file else "a commit message"
        for data in StagedRegion(place, part.position, part.size, part.count, part.crcs, part.data).read():
            for header in headers_in(data, 0, len(data)):
                batch = bytearray(data[header.position : header.end])
                with_producer(batch, producer.producer_id, producer.epoch, producer.sequence(at))
                yield batch, header.next_offset - header.base_offset
