"""Small values that components pass to each other and to their callers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pyspark_log.errors import InvalidConfigError

#: "The first offset that can be read", as in Kafka's ListOffsets request.
EARLIEST = -2
#: "The offset that the next record will get".
LATEST = -1
#: The time of a record that has none, in ms.
NO_TIMESTAMP = -1


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """One partition of a topic; prints as `topic-3`, as its folder is named."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """The description of a topic in `topics/TOPIC.json`.

    Attributes:
        name: the topic's name.
        topic_id: 16 random bytes as 22 characters of URL-safe base64; a different one if the topic is
            deleted and recreated.
        partitions: how many partitions it has.
        configs: the configs that differ from the store's, by Kafka's names.
    """

    name: str
    topic_id: str
    partitions: int
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OffsetAndTimestamp:
    """A record's offset and its time in ms, as the result of a lookup by time."""

    offset: int
    timestamp: int


@dataclass(frozen=True, slots=True)
class AppendResult:
    """The result of an append: the records have the offsets [base_offset, next_offset).

    Attributes:
        partition, base_offset, next_offset: where the records are.
        duplicate: whether they were there already, and nothing was written.
    """

    partition: int
    base_offset: int
    next_offset: int
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class OffsetStep:
    """The change of a group's committed offset in one partition that a publish makes.

    Attributes:
        group: the consumer group.
        at: the partition that it has read.
        expected: the committed offset that it started from; None: the group had none there.
        offset: the offset of the next record to read, once this is published.
    """

    group: str
    at: TopicPartition
    expected: int | None
    offset: int


READ_UNCOMMITTED, READ_COMMITTED = "read_uncommitted", "read_committed"


class IsolationLevel(StrEnum):
    """What readers see of transactions (`isolation.level`); its text is accepted wherever one is asked for."""

    READ_UNCOMMITTED = READ_UNCOMMITTED
    READ_COMMITTED = READ_COMMITTED


def check_isolation(level: str) -> bool:
    """Returns whether only committed records are to be read. InvalidConfigError: there is no such level."""
    if level not in (READ_UNCOMMITTED, READ_COMMITTED):
        raise InvalidConfigError(f"isolation.level = {level!r}: must be {READ_UNCOMMITTED} or {READ_COMMITTED}")
    return level == READ_COMMITTED
