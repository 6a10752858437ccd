"""A store's descriptions: store.json, topics, log dirs, and the small files that Kafka keeps beside logs."""

from pyspark_log.storage.catalog.log_dirs import LogDir, LogDirs, PartitionPath
from pyspark_log.storage.catalog.store_json import local_path, location
from pyspark_log.storage.catalog.topics import (
    INTERNAL_TOPICS,
    OFFSETS_TOPIC,
    PUBLISH_TOPIC,
    TRANSACTIONS_TOPIC,
    TopicCatalog,
    check_name,
    check_not_internal,
)

__all__ = [
    "INTERNAL_TOPICS",
    "OFFSETS_TOPIC",
    "PUBLISH_TOPIC",
    "TRANSACTIONS_TOPIC",
    "LogDir",
    "LogDirs",
    "PartitionPath",
    "TopicCatalog",
    "check_name",
    "check_not_internal",
    "local_path",
    "location",
]
