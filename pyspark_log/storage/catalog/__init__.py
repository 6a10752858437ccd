"""A store's descriptions: store.json, topics, log dirs, and the small files that Kafka keeps beside logs."""

from pyspark_log.storage.catalog import kafka_files, log_dir_list, store_json, topics
from pyspark_log.storage.catalog.kafka_files import (
    CLEANER,
    HIGH_WATERMARK,
    LOG_START,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINT,
    read_epochs,
    read_meta_properties,
    read_offsets,
    read_partition_metadata,
    write_partition_metadata,
)
from pyspark_log.storage.catalog.log_dir import INTERVAL, LogDir, LogOffsets
from pyspark_log.storage.catalog.log_dir_list import ListedLogDir
from pyspark_log.storage.catalog.log_dirs import PARTITION_FOLDER, LogDirs
from pyspark_log.storage.catalog.partition_path import PartitionPath
from pyspark_log.storage.catalog.store_json import (
    CUT_FOLDER,
    STAGING_FOLDER,
    STATE_FOLDER,
    STORE_FILE,
    TOPICS_FOLDER,
    TOPICS_LOCK,
    StoreDescription,
    list_made_folder,
    local_path,
)
from pyspark_log.storage.catalog.topics import (
    DELETED_FOLDER,
    INTERNAL_TOPICS,
    MAX_DESCRIPTION_BYTES,
    OFFSETS_TOPIC,
    PUBLISH_TOPIC,
    DeletedTopic,
    TopicCatalog,
    check_id,
    check_name,
    check_not_internal,
    check_partitions,
    new_id,
)

__all__ = [
    "CLEANER", "CUT_FOLDER", "DELETED_FOLDER", "HIGH_WATERMARK", "INTERNAL_TOPICS", "INTERVAL", "LOG_START",
    "MAX_DESCRIPTION_BYTES", "META_PROPERTIES", "OFFSETS_TOPIC", "PARTITION_FOLDER", "PARTITION_METADATA",
    "PUBLISH_TOPIC", "RECOVERY_POINT", "STAGING_FOLDER", "STATE_FOLDER", "STORE_FILE", "TOPICS_FOLDER", "TOPICS_LOCK",
    "DeletedTopic", "ListedLogDir", "LogDir", "LogDirs", "LogOffsets", "PartitionPath", "StoreDescription",
    "TopicCatalog", "check_id", "check_name", "check_not_internal", "check_partitions", "kafka_files",
    "list_made_folder", "local_path", "log_dir_list", "new_id", "read_epochs", "read_meta_properties", "read_offsets",
    "read_partition_metadata", "store_json", "topics", "write_partition_metadata",
]  # fmt: skip
