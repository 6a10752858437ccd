"""One partition's log: its state, lease, writing, reading, recovery, producers, leader epochs, retention."""

from pyspark_log.storage.log.appending.append import AppendPlan, Copy, Decided
from pyspark_log.storage.log.appending.appends import Appended, Extent
from pyspark_log.storage.log.appending.writer import APPEND_BYTES, LogWriter, Turnstile
from pyspark_log.storage.log.held_log import HeldLog

__all__ = ["APPEND_BYTES", "AppendPlan", "Appended", "Copy", "Decided", "Extent", "HeldLog", "LogWriter", "Turnstile"]
