"""Reading a partition's log: ranges, look-ups by time, what was committed."""

from pyspark_log.storage.log.read.damage import Damage
from pyspark_log.storage.log.read.isolation import AbortedRanges, aborted_between
from pyspark_log.storage.log.read.reader import READ_BYTES, LogReader
from pyspark_log.storage.log.read.view_position import ViewPosition

__all__ = ["READ_BYTES", "AbortedRanges", "Damage", "LogReader", "ViewPosition", "aborted_between"]
