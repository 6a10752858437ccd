"""Which positions of a group have expired: the rules of Kafka's group coordinator.

Source: `OffsetMetadataManager.cleanupExpiredOffsets`, and `offsetExpirationCondition` of its groups (KIP-211). A
position whose commit said when it ends goes then. Any other goes when it was idle for `offsets.retention.minutes`, and
that is counted

- from its commit, where nobody manages the group's members (all that OffsetsLog.commit makes);
- from when the last member left, where the group is empty;
- from its commit, where the group has members none of which wants to read the topic.
"""

from __future__ import annotations

from pyspark_log.storage.groups.metadata import decode_group_value, topics_read
from pyspark_log.storage.groups.view import GroupRecords, OffsetAndMetadata
from pyspark_log.types import TopicPartition


def expired(group: GroupRecords, now: int, retention_ms: int) -> list[TopicPartition]:
    """The partitions whose positions have expired at `now` (ms).

    Raises:
        ValueError: the record of the group's members cannot be understood, so nobody can tell.
    """
    if group.modern:
        return []  # Of these groups only a broker's coordinator knows since when they are empty.
    members = None if group.metadata is None else decode_group_value(group.metadata)
    topics = None if members is None else topics_read(members)

    def is_over(at: TopicPartition, kept: OffsetAndMetadata) -> bool:
        if topics is not None and at.topic in topics:
            return False
        if kept.expire_timestamp >= 0:
            return now >= kept.expire_timestamp
        begin = kept.commit_timestamp
        if members is not None and members.protocol_type and not members.members and members.state_timestamp >= 0:
            begin = members.state_timestamp
        return now - begin >= retention_ms

    if members is not None and members.members and topics is None:
        return []
    return [at for at, kept in group.positions.items() if is_over(at, kept)]


def is_dead(group: GroupRecords) -> bool:
    """Whether nothing is left of a group but the record that it has no members. ValueError as of `expired`."""
    if group.positions or group.modern or group.metadata is None:
        return False
    return not decode_group_value(group.metadata).members
