"""All logs of a store: find, create, delete, move between log dirs, flush (Kafka's LogManager)."""

from pyspark_log.storage.log_manager.client_batches import append_batch, append_batches
from pyspark_log.storage.log_manager.log_dir_usage import LogDirDescription, describe_log_dirs
from pyspark_log.storage.log_manager.manager import LogManager, TopicLogs
from pyspark_log.storage.log_manager.partition_description import PartitionDescription, describe_partition
from pyspark_log.storage.log_manager.topics import TopicAdmin

__all__ = [
    "LogDirDescription",
    "LogManager",
    "PartitionDescription",
    "TopicAdmin",
    "TopicLogs",
    "append_batch",
    "append_batches",
    "describe_log_dirs",
    "describe_partition",
]
