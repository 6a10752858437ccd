"""The records of consumer groups of KIP-848 (`group.protocol=consumer`), as Kafka's coordinator has them.

The server's coordinator of groups makes them, and storage/groups/log/modern_records.py writes and reads them.

Left out are the records that Kafka wrote before 4.1 (`ConsumerGroupPartitionMetadata`), and what a member of such a
group says that uses the classic protocol: it is read as any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, TypeAlias

#: Partitions by the ids of their topics.
Partitions: TypeAlias = Mapping[bytes, tuple[int, ...]]
#: Partitions of a member by the ids of their topics, each with the member's epoch when it was assigned (KIP-1251).
Owned: TypeAlias = Mapping[bytes, Mapping[int, int]]


class Kind(IntEnum):
    """The kinds of records, by the version of their keys."""

    GROUP = 3
    MEMBER = 5
    TARGET_EPOCH = 6
    TARGET = 7
    CURRENT = 8
    REGEX = 16


class MemberState(IntEnum):
    """How far a member is with its target assignment; Kafka's numbers."""

    STABLE = 0  # it has all that it is to have, as of its epoch
    UNREVOKED = 1  # it has yet to give partitions up
    UNRELEASED = 2  # it waits for partitions that other members have yet to give up


class RecordKey(NamedTuple):
    """What a record of a group is about. `name`: a member id, or a regular expression; "" for the whole group."""

    kind: Kind
    name: str = ""


@dataclass(frozen=True, slots=True)
class GroupEpoch:
    """The group's epoch, and a hash of the topics that it reads."""

    epoch: int
    metadata_hash: int = 0


@dataclass(frozen=True, slots=True)
class MemberMetadata:
    """What a member says of itself.

    Attributes:
        topics: subscribed topics, sorted.
        regex: it also reads the topics that match this; None or "": no others.
        rebalance_timeout: how long it may take to give partitions up, in ms.
        assignor: the assignor that it prefers, or None.
    """

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    regex: str | None
    rebalance_timeout: int
    assignor: str | None


@dataclass(frozen=True, slots=True)
class TargetEpoch:
    """The group's epoch for which the target assignments were made, and when that was, in ms."""

    epoch: int
    timestamp: int = 0


@dataclass(frozen=True, slots=True)
class Target:
    """The partitions that a member is to have."""

    partitions: Partitions


@dataclass(frozen=True, slots=True)
class Current:
    """What a member has.

    Attributes:
        epoch: its epoch; 0: it has yet to be answered; -2: it is static, and may come back.
        previous_epoch: its epoch before the last change, which its client may still have.
        assigned: its partitions.
        revoking: partitions that it must give up; it may still read them.
    """

    epoch: int
    previous_epoch: int
    state: MemberState
    assigned: Owned
    revoking: Owned


@dataclass(frozen=True, slots=True)
class MatchedTopics:
    """The topics that match a regular expression, as of a version of the topics, and when they were found, in ms."""

    topics: tuple[str, ...]
    version: int
    timestamp: int


Value: TypeAlias = GroupEpoch | MemberMetadata | TargetEpoch | Target | Current | MatchedTopics
