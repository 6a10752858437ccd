"""All logs of a store: find, create, delete, move between log dirs, flush (Kafka's LogManager)."""

from pyspark_log.storage.log_manager import cleaning, partition_move, remove_log_dir
from pyspark_log.storage.log_manager.append import append_batch, append_batches, append_rows
from pyspark_log.storage.log_manager.deletion import ASIDE_NAME, FUTURE, aside_name, hex_id
from pyspark_log.storage.log_manager.folder_copy import FolderCopy, NewBytes
from pyspark_log.storage.log_manager.log_dir_usage import LogDirDescription, describe_log_dirs
from pyspark_log.storage.log_manager.manager import LogManager, TopicLogs
from pyspark_log.storage.log_manager.partition_description import PartitionDescription, describe_partition
from pyspark_log.storage.log_manager.topics import TopicAdmin

__all__ = [
    "ASIDE_NAME", "FUTURE", "FolderCopy", "LogDirDescription", "LogManager", "NewBytes", "PartitionDescription",
    "TopicAdmin", "TopicLogs", "append_batch", "append_batches", "append_rows", "aside_name", "cleaning",
    "describe_log_dirs", "describe_partition", "hex_id", "partition_move", "remove_log_dir",
]  # fmt: skip
