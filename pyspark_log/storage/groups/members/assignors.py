"""Kafka's client-side assignors: which member of a group is to have which partitions.

`range` and `roundrobin` give what Kafka's give. `sticky` gives what is as balanced; which partitions move may differ.
`cooperative-sticky` is the same: what sets it apart in Kafka, that a partition is withheld until its member has given
it up, is not the assignor's task here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain, cycle
from typing import NamedTuple, TypeAlias

from pyspark_log.group_ranges import dealing_order, ranges
from pyspark_log.types import TopicPartition


class Subscriber(NamedTuple):
    """A member.

    Attributes:
        topics: the topics that it reads, whether they exist or not.
        owned: what it has now, for the sticky assignors. Of what two members say they own, neither counts as owner.
    """

    member_id: str
    instance_id: str | None
    topics: Collection[str]
    owned: Collection[TopicPartition]


#: From the number of partitions of each topic, and the members: the partitions that each member, by its id, is to have,
#: sorted. Each partition of a topic that is read goes to one member that reads it. The order of the members and of what
#: they name does not count.
Assignor: TypeAlias = Callable[[Mapping[str, int], Sequence[Subscriber]], dict[str, list[TopicPartition]]]

# The members that read a topic, by their places in order.
_Readers: TypeAlias = tuple[int, ...]


def _in_order(members: Iterable[Subscriber]) -> list[Subscriber]:
    return sorted(members, key=lambda one: dealing_order(one.member_id, one.instance_id))


def _readers(counts: Mapping[str, int], members: Sequence[Subscriber]) -> dict[str, _Readers]:
    """By topic, in order: the places in `members` of those that read it. Topics without readers are left out."""
    found: dict[str, list[int]] = {topic: [] for topic in sorted(counts)}
    for at, member in enumerate(members):
        for topic in set(member.topics) & counts.keys():
            found[topic].append(at)
    return {topic: tuple(places) for topic, places in found.items() if places}


def _partitions(topic: str, numbers: Iterable[int]) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


def _range(counts: Mapping[str, int], members: Sequence[Subscriber]) -> dict[str, list[TopicPartition]]:
    """Each topic is dealt in ranges."""
    members = _in_order(members)
    found: dict[str, list[TopicPartition]] = {one.member_id: [] for one in members}
    for topic, readers in _readers(counts, members).items():
        for reader, numbers in zip(readers, ranges(counts[topic], len(readers)), strict=True):
            found[members[reader].member_id] += _partitions(topic, numbers)
    return found


def _round_robin(counts: Mapping[str, int], members: Sequence[Subscriber]) -> dict[str, list[TopicPartition]]:
    """The partitions of all topics are dealt in a circle of all members. Those that do not read a topic are skipped."""
    members = _in_order(members)
    found: dict[str, list[TopicPartition]] = {one.member_id: [] for one in members}
    circle = cycle(range(len(members)))
    for topic, readers in _readers(counts, members).items():
        may_read = frozenset(readers)
        for partition in _partitions(topic, range(counts[topic])):
            reader = next(at for at in circle if at in may_read)
            found[members[reader].member_id].append(partition)
    return found


class _Shares:
    """What each member is to have. Members are numbers here.

    Partitions are grouped by the readers of their topics. Within a group it does not matter which one moves.
    """

    def __init__(self, members: int) -> None:
        self._sizes = [0] * members
        # What a member has owned is first in its lists, so what it was given here is the first to move on.
        self._held: list[dict[_Readers, list[TopicPartition]]] = [{} for _ in range(members)]

    def give(self, member: int, readers: _Readers, partition: TopicPartition) -> None:
        """Adds a partition to those of a member."""
        self._held[member].setdefault(readers, []).append(partition)
        self._sizes[member] += 1

    def least(self, readers: _Readers) -> int:
        """The first of the readers that have the fewest partitions."""
        return min(readers, key=self._sizes.__getitem__)

    def balance(self) -> None:
        """Moves partitions to members with at least two fewer, from those with the most, until none can."""
        while self._move_one():
            pass

    def partitions(self) -> list[list[TopicPartition]]:
        """Those of each member, sorted."""
        return [sorted(chain.from_iterable(held.values())) for held in self._held]

    def _move_one(self) -> bool:
        """Whether a partition could move, which it has then."""
        for giver in sorted(range(len(self._sizes)), key=lambda at: -self._sizes[at]):
            takers = [(self.least(readers), readers) for readers, held in self._held[giver].items() if held]
            if takers:
                taker, readers = min(takers, key=lambda one: (self._sizes[one[0]], one))
                if self._sizes[taker] <= self._sizes[giver] - 2:
                    self.give(taker, readers, self._held[giver][readers].pop())
                    self._sizes[giver] -= 1
                    return True
        return False


def _sticky(counts: Mapping[str, int], members: Sequence[Subscriber]) -> dict[str, list[TopicPartition]]:
    """Members keep what they own; the rest is dealt; then partitions move, as few as balance takes.

    That they are the fewest is certain where all members read the same topics. Elsewhere it can take a few more, as in
    Kafka.
    """
    members = _in_order(members)
    owners = _owners(members)
    shares, free = _Shares(len(members)), list[tuple[_Readers, TopicPartition]]()
    for topic, readers in _readers(counts, members).items():
        for partition in _partitions(topic, range(counts[topic])):
            if (owner := owners.get(partition)) is not None:
                shares.give(owner, readers, partition)
            else:
                free.append((readers, partition))
    # What few members read is first: what more read makes up for it.
    for readers, partition in sorted(free, key=lambda one: len(one[0])):
        shares.give(shares.least(readers), readers, partition)
    shares.balance()
    return dict(zip((one.member_id for one in members), shares.partitions(), strict=True))


def _owners(members: Sequence[Subscriber]) -> dict[TopicPartition, int]:
    """The places of the members that own partitions of topics that they read, and that no other such member owns."""
    found = dict[TopicPartition, int]()
    claims = Counter[TopicPartition]()
    for at, member in enumerate(members):
        topics = set(member.topics)
        mine = {one for one in member.owned if one.topic in topics}
        claims.update(mine)
        found.update(dict.fromkeys(mine, at))
    return {partition: at for partition, at in found.items() if claims[partition] == 1}


#: By Kafka's names.
ASSIGNORS: Mapping[str, Assignor] = {
    "range": _range,
    "roundrobin": _round_robin,
    "sticky": _sticky,
    "cooperative-sticky": _sticky,
}
