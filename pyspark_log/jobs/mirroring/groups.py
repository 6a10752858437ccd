"""Commits in the target where the groups of the source are, by the syncs of the mirror."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark_log.jobs.mirroring.syncs import Syncs
from pyspark_log.mirror.groups import commit_unless_used
from pyspark_log.storage.store import Store
from pyspark_log.types import TopicPartition


def move_groups(
    target: Store, mirror: str, groups: Mapping[str, Mapping[TopicPartition, int]], syncs: Syncs, prefix: str
) -> int:
    """Commits the translated offsets of groups, never backwards.

    A group is left alone if it is in use in the target: if it has members there, or an offset of the partitions that
    another than this mirror has committed.

    Args:
        target: the target.
        mirror: the mirror's name, which the metadata of its commits has.
        groups: committed offsets of the source, by the names of groups.
        syncs: how far the partitions are mirrored.
        prefix: what the names of topics get in the target.

    Returns:
        How many offsets were committed.
    """
    topic_ids = {name: target.describe_topic(name).topic_id for name in target.topics()}
    moved = 0
    for name, offsets in groups.items():
        wanted = {
            there: max(syncs[at].translate(offset), target.earliest_offset(there.topic, there.partition))
            for at, offset in offsets.items()
            if (there := TopicPartition(prefix + at.topic, at.partition)).topic in topic_ids
            and at in syncs
            and syncs[at].topic_id == topic_ids[there.topic]
        }
        moved += commit_unless_used(target, name, wanted, mirror, back=False)
    return moved
