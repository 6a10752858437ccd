"""Reports what is damaged in a store, and changes nothing."""

from pyspark_log.storage.maintenance.verify.findings import Finder, Finding, Severity
from pyspark_log.storage.maintenance.verify.log.partition import PartitionReport
from pyspark_log.storage.maintenance.verify.log.segment import RecordCheck
from pyspark_log.storage.maintenance.verify.store import Report, check_partition, log_bytes, verify, verify_elsewhere

__all__ = [
    "Finder",
    "Finding",
    "PartitionReport",
    "RecordCheck",
    "Report",
    "Severity",
    "check_partition",
    "log_bytes",
    "verify",
    "verify_elsewhere",
]
