"""Every change to the disk, and the machine's facts: locks, mounts, links, processes, time."""

from pyspark_log.storage.fs.guarded import contextmanager
from pyspark_log.storage.fs.locking.locks import FileLock, Mutex, lock_for
from pyspark_log.storage.fs.processes import Process, side_by_side

__all__ = ["FileLock", "Mutex", "Process", "contextmanager", "lock_for", "side_by_side"]
