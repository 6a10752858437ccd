"""What the next holder of a partition's lock finishes or undoes after a kill or a power loss."""

from pyspark_log.storage.log.recovery import apply_intent, swap
from pyspark_log.storage.log.recovery.restart import after_restart

__all__ = ["after_restart", "apply_intent", "swap"]
