"""What the coordinator of groups changes: committed offsets of members, and the members themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark_log.group_records import RecordKey, Value
from pyspark_log.storage.groups.log import records
from pyspark_log.storage.groups.log.metadata import GroupMetadataValue, encode_group_value
from pyspark_log.storage.groups.log.modern_records import encode_key, encode_value
from pyspark_log.storage.groups.log.view import OffsetAndMetadata
from pyspark_log.types import TopicPartition


@dataclass(frozen=True, slots=True)
class GroupChange:
    """A change of one group.

    Attributes:
        group: its name.
        offsets: what is committed; None: the committed offset is deleted.
        members: its members from now on; None: they stay as they are.
        modern: records of its members in the new protocol (KIP-848); None: a tombstone.
        ends_classic: its record of members is deleted, since it is a group of the new protocol now.
        deletes: whether the group is deleted, with all that it has committed.
    """

    group: str
    offsets: Mapping[TopicPartition, OffsetAndMetadata | None] = field(default_factory=dict)
    members: GroupMetadataValue | None = None
    modern: Mapping[RecordKey, Value | None] = field(default_factory=dict)
    ends_classic: bool = False
    deletes: bool = False

    def records(self) -> list[tuple[bytes, bytes | None]]:
        """The keys and values of the change, but for what a deletion adds. ValueError: a text is too long."""
        made: list[tuple[bytes, bytes | None]] = [
            (
                records.encode_offset_key(records.OffsetCommitKey(self.group, at.topic, at.partition)),
                None if kept is None else records.encode_offset_value(_value(kept)),
            )
            for at, kept in self.offsets.items()
        ]
        return made + self.member_records()

    def member_records(self) -> list[tuple[bytes, bytes | None]]:
        """Those of its members alone. ValueError: a text is too long."""
        pairs = list[tuple[bytes, bytes | None]]()
        if self.members is not None or self.ends_classic or (self.deletes and not self.modern):
            value = None if self.members is None else encode_group_value(self.members)
            pairs.append((records.encode_group_key(self.group), value))
        pairs += [
            (encode_key(self.group, key), None if modern is None else encode_value(modern))
            for key, modern in self.modern.items()
        ]
        return pairs


def _value(kept: OffsetAndMetadata) -> records.OffsetCommitValue:
    return records.OffsetCommitValue(
        kept.offset, kept.leader_epoch, kept.metadata, kept.commit_timestamp, kept.expire_timestamp
    )
