"""Tests what this machine, and the file system or object store of a store, guarantee."""

from pyspark_log.storage.maintenance.doctor.examination import examine
from pyspark_log.storage.maintenance.doctor.findings import Finding, Verdict
from pyspark_log.storage.maintenance.doctor.object_checks import examine_objects
from pyspark_log.storage.maintenance.doctor.peer import WAIT_SECONDS, examine_with_peer

__all__ = ["WAIT_SECONDS", "Finding", "Verdict", "examine", "examine_objects", "examine_with_peer"]
