"""Reports what is damaged in a store, and changes nothing."""

from pyspark_log.storage.maintenance.verify.decisions import DecisionRecords, group_record_faults
from pyspark_log.storage.maintenance.verify.findings import Finding, Severity
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
    "DecisionRecords", "Finding", "RecordCheck", "Report", "Severity", "describe", "group_record_faults", "log_bytes",
    "open_damaged", "unknown_files", "verify", "written_places",
]  # fmt: skip
