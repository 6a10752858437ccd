"""One partition's log: its state, lease, writing, reading, recovery, producers, leader epochs, retention."""

from pyspark_log.storage.log.append import AppendPlan, Copy, Decided
from pyspark_log.storage.log.appends import Appended, Extent
from pyspark_log.storage.log.held_log import HeldLog
from pyspark_log.storage.log.turnstile import APPEND_BYTES, Turnstile
from pyspark_log.storage.log.writer import LogWriter

__all__ = ["APPEND_BYTES", "AppendPlan", "Appended", "Copy", "Decided", "Extent", "HeldLog", "LogWriter", "Turnstile"]
