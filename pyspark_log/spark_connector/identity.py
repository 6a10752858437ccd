"""Of which store and which topics offsets are.

Another store can stand at a path later, and a topic can be deleted and made again; the names stay the same then, and
the ids do not. Where one side has no id (a broker's folder need not say it, nor does a checkpoint of the Kafka
connector), nothing is known, and nothing is refused.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark_log.spark_connector.errors import data_loss
from pyspark_log.spark_connector.offsets import Identity
from pyspark_log.spark_connector.ranges import names
from pyspark_log.storage.store import Store
from pyspark_log.types import TopicPartition


def identity_of(store: Store, topics: Iterable[str]) -> Identity:
    """That of topics of a store as they are now. UnknownTopicError."""
    found = {topic: store.recorded_topic_id(topic) for topic in topics}
    return Identity(store.recorded_cluster_id, {topic: one for topic, one in found.items() if one is not None})


def identity_after(store: Store, topics: Iterable[str], known: Identity, read: Iterable[TopicPartition]) -> Identity:
    """The identity of a store and its topics, with what was known before; they must be those that a query has read.

    Args:
        store: what there is now.
        topics: that are to be read on.
        known: what the query's offsets say.
        read: the partitions that the query has read, for the message.

    Raises:
        ConnectorError: PYLOG_DATA_LOSS, it is another store, or one of the topics is another one.
        UnknownTopicError: a topic is missing.
    """
    if known.cluster_id and store.recorded_cluster_id not in (None, known.cluster_id):
        raise data_loss(
            "PARTITIONS_DELETED",
            f"Partitions {names(read)} are gone: {store.path} is another store (cluster id "
            f"{store.recorded_cluster_id}) than the one that the query has read ({known.cluster_id}). Start the query "
            "with the path of that one; to read this one, start it with a new checkpoint.",
        )
    found = identity_of(store, topics)
    for topic, topic_id in found.topic_ids.items():
        before = known.topic_ids.get(topic, topic_id)
        if topic_id != before:
            raise data_loss(
                "PARTITIONS_DELETED",
                f"Partitions {names(at for at in read if at.topic == topic)} have been deleted: {_made_again(topic)} "
                f"(topic id {topic_id}) since the query has read it ({before}). To read the new one, start the query "
                "with a new checkpoint.",
            )
    return Identity(found.cluster_id or known.cluster_id, {**known.topic_ids, **found.topic_ids})


def check_topic(store: Store, at: TopicPartition, topic_id: str | None) -> None:
    """Refuses a topic that is not the one for which a task was planned.

    Args:
        store: where the task reads.
        at: what it reads.
        topic_id: of the topic for which it was planned, if it is known.

    Raises:
        ConnectorError: PYLOG_DATA_LOSS, it is another one.
        UnknownTopicError: there is none.
    """
    found = store.recorded_topic_id(at.topic)
    if topic_id is not None and found not in (None, topic_id):
        raise data_loss(
            "COULD_NOT_READ_OFFSET_RANGE",
            f"Could not read records of topic partition {at}: {_made_again(at.topic)} (topic id {found}) since the "
            f"read was planned ({topic_id}). Call load() again to read the new one.",
        )


def _made_again(topic: str) -> str:
    return f"topic {topic!r} was deleted and made again"
