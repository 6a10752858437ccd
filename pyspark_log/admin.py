"""Maintenance of a store, for programs: backup, verify, repair, compact, transfer to Kafka, the janitor.

`pylog` does the same on the command line. Most work on the files of a store, so they take a FolderStore, which is what
`Store.open` returns for a folder. `back_up` and `verify` take a store in an object store as well, and its URL.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark_log.storage.compaction import BACKOFF, Outcome
from pyspark_log.storage.compaction import LogCleaner as _LogCleaner
from pyspark_log.storage.compaction import compact as _compact
from pyspark_log.storage.folder_store import FolderStore
from pyspark_log.storage.maintenance.backup import Backup
from pyspark_log.storage.maintenance.janitor import clean as janitor
from pyspark_log.storage.maintenance.object_backup import back_up_store as back_up
from pyspark_log.storage.maintenance.repair import RepairReport, repair
from pyspark_log.storage.maintenance.transfer import ExportedPartition, export_kafka
from pyspark_log.storage.maintenance.verify import Finding, Report, Severity, verify

__all__ = [
    "Backup", "ExportedPartition", "Finding", "FolderStore", "LogCleaner", "Outcome", "RepairReport", "Report",
    "Severity", "back_up", "compact", "export_kafka", "janitor", "repair", "verify",
]  # fmt: skip


def compact(
    store: FolderStore, topic: str | None = None, progress: Callable[[int, int], None] | None = None
) -> list[Outcome]:
    """Compacts the partitions that are due, the dirtiest first; with a topic, all of it that can be.

    Args:
        store: which store.
        topic: which topic; None: all whose cleanup.policy is to compact.
        progress: called with the bytes that were read, and those that there are to read.

    Returns:
        What was done with each partition.
    """
    return list(_compact(store.logs, topic, progress))


class LogCleaner(_LogCleaner):
    """Compacts a store in the background, in a thread of this process: `with LogCleaner(store): ...`."""

    def __init__(self, store: FolderStore, backoff: float = BACKOFF) -> None:
        """`backoff`: how long it waits, in seconds, when nothing is due."""
        super().__init__(store.logs, backoff)
