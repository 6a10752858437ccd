"""Makes a clean copy of a damaged store."""

from pyspark_log.storage.maintenance.repair.partition import Loss
from pyspark_log.storage.maintenance.repair.store import RepairReport, repair

__all__ = ["Loss", "RepairReport", "repair"]
