"""Copies of partitions of a Kafka cluster: what a follower does, for mirrors and for nodes of a cluster."""

from pyspark_log.replication.copied_partition import CopiedPartition, Rules, promote
from pyspark_log.replication.copied_topics import CopiedTopics
from pyspark_log.replication.copies import Copies
from pyspark_log.replication.errors import DivergedError, LostRecordsError, ReplicationError

__all__ = [
    "CopiedPartition", "CopiedTopics", "Copies", "DivergedError", "LostRecordsError", "ReplicationError", "Rules",
    "promote",
]  # fmt: skip
