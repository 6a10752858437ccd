"""The state of a partition, and the file that holds it: the authority on log start and log end."""

from pyspark_log.storage.log.state.partition_state import EMPTY, Flags, Intent, PartitionState, ViewPosition
from pyspark_log.storage.log.state.state_file import Loaded
from pyspark_log.storage.log.state.state_slots import Slots, read_slots
from pyspark_log.storage.log.state.state_watch import StateWatch

__all__ = ["EMPTY", "Flags", "Intent", "Loaded", "PartitionState", "Slots", "StateWatch", "ViewPosition", "read_slots"]
