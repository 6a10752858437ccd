"""A group of KIP-848: its records, and what follows from them alone. What is answered is in modern.py."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeVar

from pyspark_log.group_records import (
    Current,
    GroupEpoch,
    Kind,
    MatchedTopics,
    MemberMetadata,
    MemberState,
    Partitions,
    RecordKey,
    Target,
    TargetEpoch,
    Value,
)
from pyspark_log.server.coordinator.assignors import ASSIGNORS, Subscriber, assign

# That of a group that is new; its first member begins another. No member has it, as 0 is the epoch of one that joins.
_FIRST_EPOCH = 1
_K = TypeVar("_K")
_T = TypeVar("_T")

#: The epoch of a static member that has left, and may come back.
STATIC_LEAVE = -2


class Topic(NamedTuple):
    """A topic: its id, 16 bytes, and the number of its partitions."""

    topic_id: bytes
    partitions: int


@dataclass(frozen=True)
class Topics:
    """The topics that there are.

    Attributes:
        version: another number whenever a topic has changed.
        topics: by name.
        matching: the names that match a regular expression; ValueError: it is none.
    """

    version: int
    topics: Mapping[str, Topic]
    matching: Callable[[str], Iterable[str]]

    def names(self) -> dict[bytes, str]:
        """The names of topics by their ids."""
        return {topic.topic_id: name for name, topic in self.topics.items()}


class ModernState(Enum):
    """Kafka's states of such a group, by the names that ConsumerGroupDescribe gives."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"  # its target assignments are of an older epoch
    RECONCILING = "Reconciling"  # members have yet to get theirs
    STABLE = "Stable"
    DEAD = "Dead"  # it does not exist


class ModernGroup:
    """The state of one group.

    Attributes:
        members, current, target: records of members, by member id.
        static: member ids by `group.instance.id`.
        owners: the members that have a partition, or may still have it, by its topic's id and its number.
        regexes: the topics that match the members' regular expressions.
        topics: those that its epoch accounts for; None: unknown.
        ends_classic: the record of the empty classic group whose place it has taken is to be deleted.
        doubtful: keys whose records may differ from those in the log, since a write has failed.
    """

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.members: dict[str, MemberMetadata] = {}
        self.current: dict[str, Current] = {}
        self.target: dict[str, Partitions] = {}
        self.static: dict[str, str] = {}
        self.owners: dict[tuple[bytes, int], str] = {}
        self.regexes: dict[str, MatchedTopics] = {}
        self.topics: Topics | None = None
        self.ends_classic = False
        self.doubtful: set[RecordKey] = set()
        self._records: dict[RecordKey, Value] = {}

    # ---- records

    @property
    def records(self) -> Mapping[RecordKey, Value]:
        """All of them."""
        return self._records

    def tombstones(self) -> dict[RecordKey, Value | None]:
        """What ends it in the log."""
        return dict.fromkeys(sorted({*self._records, *self.doubtful}))

    def apply(self, key: RecordKey, value: Value | None) -> None:
        """Replaces a record; None: removes it."""
        _set(self._records, key, value)
        match key.kind:
            case Kind.MEMBER:
                self._apply_member(key.name, value)
            case Kind.CURRENT:
                self._apply_current(key.name, value)
            case Kind.TARGET:
                _set(self.target, key.name, value.partitions if isinstance(value, Target) else None)
            case Kind.REGEX:
                _set(self.regexes, key.name, value if isinstance(value, MatchedTopics) else None)

    def _apply_member(self, member_id: str, value: Value | None) -> None:
        old = self.members.pop(member_id, None)
        if old is not None and old.instance_id is not None and self.static.get(old.instance_id) == member_id:
            del self.static[old.instance_id]
        if isinstance(value, MemberMetadata):
            self.members[member_id] = value
            if value.instance_id is not None:
                self.static[value.instance_id] = member_id

    def _apply_current(self, member_id: str, value: Value | None) -> None:
        old = self.current.pop(member_id, None)
        for at in () if old is None else _places(old):
            if self.owners.get(at) == member_id:
                del self.owners[at]
        if isinstance(value, Current):
            self.current[member_id] = value
            self.owners |= dict.fromkeys(_places(value), member_id)

    @staticmethod
    def of(group_id: str, records: Mapping[RecordKey, Value]) -> ModernGroup:
        """The group that records describe.

        When a write has failed, those after it may depend on what the log does not have, see ModernLog. Nothing of that
        was answered. It is corrected here, and in the log with the next change:

        - A partition may have two owners: that the first has given it up, or was removed, is not in the log. Both are
          removed, and join again. So is a member whose instance has a newer one.
        - There may be higher epochs than the group's. So it begins another.
        """
        group = ModernGroup(group_id)
        for key, value in records.items():
            group.apply(key, value)
        owners, old = Counter(at for one in group.current.values() for at in _places(one)), set(group.members)
        known = {
            member_id
            for member_id, member in group.members.items()
            if group.static.get(member.instance_id or "", member_id) == member_id
            and (member_id not in group.current or all(owners[at] == 1 for at in _places(group.current[member_id])))
        }
        last = max((group.target_epoch.epoch, *(one.epoch for one in group.current.values())))
        for member_id in {*group.members, *group.current, *group.target} - known:
            for kind in (Kind.CURRENT, Kind.TARGET, Kind.MEMBER):
                group._correct(RecordKey(kind, member_id), None)
        if last > group.epoch or known != old:
            group._correct(RecordKey(Kind.GROUP), GroupEpoch(max(last, group.epoch) + 1, group.metadata_hash))
        return group

    def _correct(self, key: RecordKey, value: Value | None) -> None:
        """Replaces a record that is not as it should be in the log."""
        self.apply(key, value)
        self.doubtful.add(key)

    # ---- epochs and states

    @property
    def epoch(self) -> int:
        """Its epoch, which grows with each change of what its members read."""
        value = self._records.get(RecordKey(Kind.GROUP))
        return value.epoch if isinstance(value, GroupEpoch) else _FIRST_EPOCH

    @property
    def metadata_hash(self) -> int:
        """The hash of the topics that its epoch accounts for."""
        value = self._records.get(RecordKey(Kind.GROUP))
        return value.metadata_hash if isinstance(value, GroupEpoch) else 0

    @property
    def target_epoch(self) -> TargetEpoch:
        """The epoch of its target assignments."""
        value = self._records.get(RecordKey(Kind.TARGET_EPOCH))
        return value if isinstance(value, TargetEpoch) else TargetEpoch(0)

    @property
    def state(self) -> ModernState:
        """Its state."""
        if not self.members:
            return ModernState.EMPTY
        if self.epoch > self.target_epoch.epoch:
            return ModernState.ASSIGNING
        if all(self.is_reconciled(member_id) for member_id in self.members):
            return ModernState.STABLE
        return ModernState.RECONCILING

    def is_reconciled(self, member_id: str) -> bool:
        """Whether a member has what it is to have."""
        current = self.current.get(member_id)
        has = (0, MemberState.STABLE) if current is None else (current.epoch, current.state)
        return has == (self.target_epoch.epoch, MemberState.STABLE)

    @property
    def assignor(self) -> str:
        """The assignor that most members prefer; of several the first in ASSIGNORS."""
        votes = [one.assignor for one in self.members.values()]
        return max(ASSIGNORS, key=votes.count)

    # ---- topics

    def topics_of(self, member: MemberMetadata) -> set[str]:
        """The names of the topics that a member reads; they may not exist."""
        matched = self.regexes.get(member.regex) if member.regex else None
        return {*member.topics, *(matched.topics if matched is not None else ())}

    def reads(self, topic: str) -> bool:
        """Whether members read a topic."""
        return any(topic in self.topics_of(member) for member in self.members.values())

    def hash_of(self, topics: Topics) -> int:
        """A number that changes with the topics that its members read; 0: there are none."""
        names = {name for member in self.members.values() for name in self.topics_of(member)}
        found = [(name, topics.topics[name]) for name in sorted(names) if name in topics.topics]
        if not found:
            return 0
        return int.from_bytes(hashlib.blake2b(repr(found).encode(), digest_size=8).digest(), "big", signed=True)

    def new_targets(self, topics: Topics) -> dict[str, Partitions]:
        """What its members are to have from now on, by member id."""
        known = topics.topics
        subscribers = {
            member_id: Subscriber(
                member.instance_id,
                frozenset(known[name].topic_id for name in self.topics_of(member) if name in known),
                self.target.get(member_id, {}),
            )
            for member_id, member in self.members.items()
        }
        alike = len({(member.topics, member.regex or None) for member in self.members.values()}) == 1
        counts = dict(known.values())
        return assign(self.assignor, subscribers, counts, alike=alike)


def _set(table: dict[_K, _T], name: _K, value: _T | None) -> None:
    if value is None:
        table.pop(name, None)
    else:
        table[name] = value


def _places(current: Current) -> list[tuple[bytes, int]]:
    return [
        (topic_id, number)
        for owned in (current.assigned, current.revoking)
        for topic_id, numbers in owned.items()
        for number in numbers
    ]
