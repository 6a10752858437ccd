"""`__consumer_offsets`: committed offsets and group metadata, read and written in Kafka's format."""

from pyspark_log.storage.groups import committed_offsets, records
from pyspark_log.storage.groups.committed_offsets import CommittedOffsets, OffsetMoves
from pyspark_log.storage.groups.handles import Groups
from pyspark_log.storage.groups.metadata import (
    CONSUMER,
    GroupDescription,
    GroupMember,
    GroupState,
    assigned_partitions,
    decode_group_value,
    subscribed_topics,
)
from pyspark_log.storage.groups.offsets import OffsetsLog, check_empty, move_offsets
from pyspark_log.storage.groups.records import (
    LATER_KINDS,
    NEVER,
    GroupMetadataKey,
    OffsetCommitKey,
    decode_key,
    decode_offset_value,
    group_of,
)
from pyspark_log.storage.groups.view import OffsetAndMetadata

__all__ = [
    "CONSUMER", "LATER_KINDS", "NEVER", "CommittedOffsets", "GroupDescription", "GroupMember", "GroupMetadataKey",
    "GroupState", "Groups", "OffsetAndMetadata", "OffsetCommitKey", "OffsetMoves", "OffsetsLog", "assigned_partitions",
    "check_empty", "committed_offsets", "decode_group_value", "decode_key", "decode_offset_value", "group_of",
    "move_offsets", "records", "subscribed_topics",
]  # fmt: skip
