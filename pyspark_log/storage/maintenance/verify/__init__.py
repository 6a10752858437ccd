"""Reports what is damaged in a store, and changes nothing."""

from pyspark_log.storage.maintenance.verify.decisions import DecisionRecords, check_group_records
from pyspark_log.storage.maintenance.verify.findings import Finder, Finding, Severity
from pyspark_log.storage.maintenance.verify.segment import RecordCheck
from pyspark_log.storage.maintenance.verify.store import (
    Report,
    describe,
    log_bytes,
    open_damaged,
    unknown_files,
    verify,
    written_places,
)

__all__ = [
    "DecisionRecords", "Finder", "Finding", "RecordCheck", "Report", "Severity", "check_group_records", "describe",
    "log_bytes", "open_damaged", "unknown_files", "verify", "written_places",
]  # fmt: skip
