"""`__consumer_offsets`: committed offsets and group metadata, read and written in Kafka's format."""

from pyspark_log.storage.groups.committed_offsets import CommittedOffsets, OffsetMoves
from pyspark_log.storage.groups.file_membership import check_empty
from pyspark_log.storage.groups.handles import Groups
from pyspark_log.storage.groups.metadata import GroupDescription, GroupMember, GroupState, assigned_partitions
from pyspark_log.storage.groups.offsets import OffsetsLog, check_unread, move_offsets
from pyspark_log.storage.groups.records import NEVER
from pyspark_log.storage.groups.view import GroupRecords, OffsetAndMetadata

__all__ = [
    "NEVER",
    "CommittedOffsets",
    "GroupDescription",
    "GroupMember",
    "GroupRecords",
    "GroupState",
    "Groups",
    "OffsetAndMetadata",
    "OffsetMoves",
    "OffsetsLog",
    "assigned_partitions",
    "check_empty",
    "check_unread",
    "move_offsets",
]
