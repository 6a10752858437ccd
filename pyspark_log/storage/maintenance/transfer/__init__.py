"""Copies complete batches into a Kafka broker's folders, and from log to log."""

from pyspark_log.storage.maintenance.transfer.kafka_export import ExportedPartition, export_kafka
from pyspark_log.storage.maintenance.transfer.log_copy import LogCopy
from pyspark_log.storage.maintenance.transfer.producer_files import marker_fault

__all__ = ["ExportedPartition", "LogCopy", "export_kafka", "marker_fault"]
