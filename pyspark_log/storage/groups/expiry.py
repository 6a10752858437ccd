"""Finds the expired offsets of a group, by the rules of Kafka's group coordinator.

Source: `OffsetMetadataManager.cleanupExpiredOffsets`, and `offsetExpirationCondition` of its groups (KIP-211). An
offset whose commit set an expiry expires then. Any other expires when it was idle for `offsets.retention.minutes`,
counted

- from its commit, if the group has no managed members (all groups that OffsetsLog.commit creates);
- from when the last member left, if the group is empty;
- from its commit, if the group has members of which none subscribes to the topic.
"""

from __future__ import annotations

from pyspark_log.storage.groups.log.metadata import decode_group_value, topics_read
from pyspark_log.storage.groups.log.view import GroupRecords, OffsetAndMetadata
from pyspark_log.types import TopicPartition


def expired(group: GroupRecords, now: int, retention_ms: int) -> list[TopicPartition]:
    """The partitions whose committed offsets have expired at `now` (ms).

    Raises:
        ValueError: the group's metadata record cannot be decoded, so expiry is unknown.
    """
    if group.modern:
        return []  # Only a broker's coordinator knows since when these groups are empty.
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
    return [at for at, kept in group.offsets.items() if is_over(at, kept)]


def is_dead(group: GroupRecords) -> bool:
    """Whether a group's only record says that it has no members. ValueError: as `expired`."""
    if group.offsets or group.modern or group.metadata is None:
        return False
    return not decode_group_value(group.metadata).members
