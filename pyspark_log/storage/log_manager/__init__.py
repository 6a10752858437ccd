"""All logs of a store: find, create, delete, move between log dirs, flush (Kafka's LogManager)."""

from pyspark_log.storage.log_manager import cleaning, partition_move, remove_log_dir
from pyspark_log.storage.log_manager.append import append_rows
from pyspark_log.storage.log_manager.deletion import ASIDE_NAME, FUTURE, aside_name, hex_id
from pyspark_log.storage.log_manager.describe_log_dirs import FolderUsage, folder_usage
from pyspark_log.storage.log_manager.manager import OpenTopic, Partitions
from pyspark_log.storage.log_manager.topics import TopicAdmin

__all__ = [
    "ASIDE_NAME",
    "FUTURE",
    "FolderUsage",
    "OpenTopic",
    "Partitions",
    "TopicAdmin",
    "append_rows",
    "aside_name",
    "cleaning",
    "folder_usage",
    "hex_id",
    "partition_move",
    "remove_log_dir",
]
