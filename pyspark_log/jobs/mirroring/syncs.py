"""Which offset of the target follows which offset of the source: MirrorMaker's offset syncs.

Offsets differ where the source has gaps (compaction, aborted transactions, markers, a later start), and where others
write to the target. After each micro-batch, one record of the topic `mirror-offset-syncs` for each partition that has
moved says where it is now. It is published with the micro-batch, so there is no moment between the two.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark_log.storage.store import Store
from pyspark_log.types import READ_COMMITTED, TopicPartition

SYNCS_TOPIC = "mirror-offset-syncs"

# More ranges of a partition are not kept: the oldest two become one.
_MOST_RANGES = 32


@dataclass(frozen=True, slots=True)
class MirroredRange:
    """What a micro-batch, or several in a row, have mirrored of a partition.

    Attributes:
        until: the offset of the source where it ends, exclusive.
        first: no record of it has a lower offset in the target.
        count: how many records it has.
    """

    until: int
    first: int
    count: int

    def continued(self, after: MirroredRange) -> MirroredRange:
        """Both as one range."""
        return MirroredRange(after.until, self.first, self.count + after.count)

    def is_continued_densely_by(self, after: MirroredRange) -> bool:
        """Whether nothing is lost if both become one range: there are no gaps in the other one."""
        return self.first + self.count == after.first and after.until - self.until == after.count


@dataclass(frozen=True, slots=True)
class OffsetSync:
    """How far a partition is mirrored.

    Attributes:
        topic_id: that of the target's topic.
        ranges: what was mirrored, in order; at least one.
    """

    topic_id: str
    ranges: tuple[MirroredRange, ...]

    @property
    def source_offset(self) -> int:
        """The source's next offset to mirror."""
        return self.ranges[-1].until

    @property
    def target_offset(self) -> int:
        """No record from `source_offset` on has a lower offset in the target."""
        return self.ranges[-1].first + self.ranges[-1].count

    def translate(self, offset: int) -> int:
        """An offset of the target, such that each record of the source from `offset` on is there, or comes there.

        The largest that is certain: of the records that a range has from `offset` on there are at most as many as
        offsets. Exact where the source has no gaps from there to the end of the range, and at the end of each range.
        """
        for one in self.ranges:
            if offset < one.until:
                return max(one.first, one.first + one.count - (one.until - offset))
        return self.target_offset

    def followed_by(self, after: MirroredRange) -> OffsetSync:
        """The same with one more range."""
        last = self.ranges[-1]
        if last.is_continued_densely_by(after):
            return replace(self, ranges=(*self.ranges[:-1], last.continued(after)))
        ranges = (*self.ranges, after)
        if len(ranges) > _MOST_RANGES:
            ranges = (ranges[0].continued(ranges[1]), *ranges[2:])
        return replace(self, ranges=ranges)


#: The syncs of a mirror, by the source's partitions.
Syncs = Mapping[TopicPartition, OffsetSync]


def create_topic_of_syncs(store: Store) -> None:
    """Makes the topic if it is missing."""
    if SYNCS_TOPIC not in store.topics():
        store.create_topic(SYNCS_TOPIC, 1, {"cleanup.policy": "compact"})


def load_syncs(store: Store, mirror: str) -> dict[TopicPartition, OffsetSync]:
    """The newest syncs of a mirror; `mirror` is its name."""
    found = dict[TopicPartition, OffsetSync]()
    batches = store.read(SYNCS_TOPIC, 0, columns=["key", "value"], isolation_level=READ_COMMITTED)
    for batch in batches:
        # A record a partition and micro-batch, of which compaction leaves the newest.
        for row in batch.to_pylist():
            key = json.loads(row["key"])
            if key["mirror"] == mirror:
                found[TopicPartition(key["topic"], key["partition"])] = _sync_of(json.loads(row["value"]))
    return found


def rows_of(mirror: str, syncs: Syncs) -> list[tuple[str, str]]:
    """Keys and values of the records that say it."""
    return [(json.dumps({"mirror": mirror, "topic": at.topic, "partition": at.partition}), json.dumps({
        "source_offset": one.source_offset, "target_offset": one.target_offset, "topic_id": one.topic_id,
        "ranges": [[each.until, each.first, each.count] for each in one.ranges],
    })) for at, one in sorted(syncs.items())]  # fmt: skip


def _sync_of(value: Mapping[str, Any]) -> OffsetSync:
    return OffsetSync(value["topic_id"], tuple(MirroredRange(*one) for one in value["ranges"]))


def next_sync(before: OffsetSync | None, topic_id: str, after: MirroredRange) -> OffsetSync:
    """The sync after one more micro-batch; restarted with this one if either topic was recreated meanwhile."""
    if before is None or before.topic_id != topic_id or after.until < before.source_offset:
        return OffsetSync(topic_id, (after,))
    return before.followed_by(replace(after, first=max(after.first, before.target_offset)))
