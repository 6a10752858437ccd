"""Upkeep of a store in an object store: merging, compaction, retention, and deleting what nothing needs.

Each is a decision like any other, on the newest state; so any number of processes may do it at the same time.
"""

from pyspark_log.storage.publish_log.maintenance.cleaning import Cleaned, clean
from pyspark_log.storage.publish_log.maintenance.compacting import compact
from pyspark_log.storage.publish_log.maintenance.merging import Merged, merge, merge_recent

__all__ = ["Cleaned", "Merged", "clean", "compact", "merge", "merge_recent"]
