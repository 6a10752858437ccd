"""`__consumer_offsets`: committed offsets and group metadata, read and written in Kafka's format."""

from pyspark_log.storage.groups.committed_offsets import CommittedOffsets, OffsetMoves
from pyspark_log.storage.groups.file_membership import check_empty
from pyspark_log.storage.groups.handles import Groups
from pyspark_log.storage.groups.log.metadata import GroupDescription, GroupMember, GroupState, assigned_partitions
from pyspark_log.storage.groups.log.records import NEVER
from pyspark_log.storage.groups.log.view import OffsetAndMetadata
from pyspark_log.storage.groups.offsets import OffsetsLog, move_offsets

__all__ = [
    "NEVER",
    "CommittedOffsets",
    "GroupDescription",
    "GroupMember",
    "GroupState",
    "Groups",
    "OffsetAndMetadata",
    "OffsetMoves",
    "OffsetsLog",
    "assigned_partitions",
    "check_empty",
    "move_offsets",
]
