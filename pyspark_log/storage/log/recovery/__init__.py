"""What the next holder of a partition's lock finishes or undoes after a kill or a power loss."""

from pyspark_log.storage.log.recovery.restart import after_restart
from pyspark_log.storage.log.recovery.swap import live_segments

__all__ = ["after_restart", "live_segments"]
