"""Every change to the disk, and the machine's facts: locks, mounts, links, processes, time."""

from pyspark_log.storage.fs import files, locks, timeouts
from pyspark_log.storage.fs.clock import Clock, StoreClock, format_time, now_ms
from pyspark_log.storage.fs.files import File, open_read
from pyspark_log.storage.fs.guarded import DEFAULT_TIMEOUT, contextmanager
from pyspark_log.storage.fs.json_fields import Fields, text, whole
from pyspark_log.storage.fs.links import forbids_links, on_one_device
from pyspark_log.storage.fs.locks import FileLock, Mutex, lock_for
from pyspark_log.storage.fs.mounts import NFS, SHARED, SMB, Mount, is_shared, mount_of
from pyspark_log.storage.fs.process_id import Process
from pyspark_log.storage.fs.side_by_side import side_by_side

__all__ = [
    "DEFAULT_TIMEOUT", "NFS", "SHARED", "SMB", "Clock", "Fields", "File", "FileLock", "Mount", "Mutex", "Process",
    "StoreClock", "contextmanager", "files", "forbids_links", "format_time", "is_shared", "lock_for", "locks",
    "mount_of", "now_ms", "on_one_device", "open_read", "side_by_side", "text", "timeouts", "whole",
]  # fmt: skip
