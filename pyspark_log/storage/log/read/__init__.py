"""Reading a partition's log: ranges, look-ups by time, what was committed."""

from pyspark_log.storage.log.read.damage import Damage
from pyspark_log.storage.log.read.isolation import AbortedRanges, aborted_between
from pyspark_log.storage.log.read.reader import READ_BYTES, LogReader

__all__ = ["READ_BYTES", "AbortedRanges", "Damage", "LogReader", "aborted_between"]
