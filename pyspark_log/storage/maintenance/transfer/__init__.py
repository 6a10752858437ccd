"""Copies complete batches into and out of a Kafka broker's folders."""

from pyspark_log.storage.maintenance.transfer.kafka_export import ExportedPartition, export_kafka
from pyspark_log.storage.maintenance.transfer.kafka_import import ImportedPartition, import_kafka
from pyspark_log.storage.maintenance.transfer.log_copy import LogCopy
from pyspark_log.storage.maintenance.transfer.producer_files import marker_fault

__all__ = ["ExportedPartition", "ImportedPartition", "LogCopy", "export_kafka", "import_kafka", "marker_fault"]
