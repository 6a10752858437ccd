"""Reports what is damaged in a store, and changes nothing."""

from pyspark_log.storage.maintenance.verify.decisions import DecisionRecords, check_group_records
from pyspark_log.storage.maintenance.verify.findings import Finder, Finding, Severity
from pyspark_log.storage.maintenance.verify.partition import PartitionReport
from pyspark_log.storage.maintenance.verify.segment import RecordCheck
from pyspark_log.storage.maintenance.verify.store import (
    Report,
    check_partition,
    describe,
    log_bytes,
    open_damaged,
    unknown_files,
    verify,
    verify_elsewhere,
    written_places,
)

__all__ = [
    "DecisionRecords", "Finder", "Finding", "PartitionReport", "RecordCheck", "Report", "Severity",
    "check_group_records", "check_partition", "describe", "log_bytes", "open_damaged", "unknown_files", "verify",
    "verify_elsewhere", "written_places",
]  # fmt: skip
