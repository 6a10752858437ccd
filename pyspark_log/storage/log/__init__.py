"""One partition's log: its state, lease, writing, reading, recovery, producers, leader epochs, retention."""

from pyspark_log.storage.log import cleaner_checkpoint, leader_epochs, retention
from pyspark_log.storage.log.append import AppendPlan, Copy, Decided
from pyspark_log.storage.log.appends import Appended, Extent
from pyspark_log.storage.log.cleaner_checkpoint import CleanerCheckpoint, cleaning
from pyspark_log.storage.log.held_log import HeldLog
from pyspark_log.storage.log.leader_epochs import FILE_NAME, Epochs, LeaderEpochs
from pyspark_log.storage.log.leftovers import first_batch, reason_to_keep
from pyspark_log.storage.log.missing import missing_is_damage, no_state
from pyspark_log.storage.log.new_segment import NewSegment, is_prepared_name
from pyspark_log.storage.log.producers import snapshot
from pyspark_log.storage.log.producers.manager import idempotent_batches, replay
from pyspark_log.storage.log.producers.state import ProducerEntry, ProducerStates
from pyspark_log.storage.log.read import segment_cache
from pyspark_log.storage.log.read.isolation import AbortedRanges, aborted_between
from pyspark_log.storage.log.read.reader import READ_BYTES, Damage, LogReader, holds_segments
from pyspark_log.storage.log.read.segment_cache import WIDTH, read_all
from pyspark_log.storage.log.recovery import swap
from pyspark_log.storage.log.recovery.swap import live_segments
from pyspark_log.storage.log.state import state_file
from pyspark_log.storage.log.state.partition_state import EMPTY, Flags, Intent, PartitionState
from pyspark_log.storage.log.state.state_file import FILE_SIZE, SLOT_COUNT, SLOT_DISTANCE, Loaded
from pyspark_log.storage.log.state.state_slots import Slots, read_slots
from pyspark_log.storage.log.state.state_watch import StateWatch
from pyspark_log.storage.log.view_position import ViewPosition
from pyspark_log.storage.log.writer import APPEND_BYTES, LogWriter

__all__ = [
    "APPEND_BYTES", "EMPTY", "FILE_NAME", "FILE_SIZE", "READ_BYTES", "SLOT_COUNT", "SLOT_DISTANCE", "WIDTH",
    "AbortedRanges", "AppendPlan", "Appended", "CleanerCheckpoint", "Copy", "Damage", "Decided", "Epochs", "Extent",
    "Flags", "HeldLog", "Intent", "LeaderEpochs", "Loaded", "LogReader", "LogWriter", "NewSegment", "PartitionState",
    "ProducerEntry", "ProducerStates", "Slots", "StateWatch", "ViewPosition", "aborted_between", "cleaner_checkpoint",
    "cleaning", "first_batch", "holds_segments", "idempotent_batches", "is_prepared_name", "leader_epochs",
    "live_segments", "missing_is_damage", "no_state", "read_all", "read_slots", "reason_to_keep", "replay", "retention",
    "segment_cache", "snapshot", "state_file", "swap",
]  # fmt: skip
