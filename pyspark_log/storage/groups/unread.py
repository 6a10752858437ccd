"""Whether committed offsets may be deleted, as no member of their group reads these partitions."""

from __future__ import annotations

from collections.abc import Collection

from pyspark_log.errors import GroupNotEmptyError
from pyspark_log.storage.groups.file_membership import members_of
from pyspark_log.storage.groups.log.metadata import GroupDescription
from pyspark_log.types import TopicPartition


def check_unread(group: GroupDescription, partitions: Collection[TopicPartition]) -> None:
    """Refuses partitions that members of a group read, or may read. GroupNotEmptyError."""
    for at in partitions:
        if group.topics is None or at.topic in group.topics:
            raise GroupNotEmptyError(
                f"group {group.group!r} {members_of(group)}, which read {at.topic}, or may read it"
            )
