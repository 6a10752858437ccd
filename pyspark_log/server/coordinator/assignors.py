"""Kafka's server-side assignors, `uniform` and `range`: which member of a group is to have which partitions.

They give what Kafka's give, up to the order in which Kafka's hash tables give out members and topics: here that is by
their ids. Racks do not count, as in Kafka.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from pyspark_log.group_ranges import dealing_order, ranges
from pyspark_log.group_records import Partitions

UNIFORM, RANGE = "uniform", "range"
#: The assignors; the first is that of groups whose members prefer none.
ASSIGNORS = (UNIFORM, RANGE)

# Rounds of balancing after which `uniform` takes what it has.
_MOST_ROUNDS = 16


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A member.

    Attributes:
        topics: ids of the topics that it reads, all of which exist.
        target: what it was to have before.
    """

    instance_id: str | None
    topics: Collection[bytes]
    target: Partitions


def assign(
    assignor: str, members: Mapping[str, Subscriber], counts: Mapping[bytes, int], *, alike: bool
) -> dict[str, Partitions]:
    """The partitions of each member.

    Args:
        assignor: one of ASSIGNORS.
        members: by member id.
        counts: the number of partitions of each topic, by its id.
        alike: all members subscribe to the same.
    """
    if assignor == RANGE:
        return _range(members, counts)
    return _uniform_alike(members, counts) if alike else _Balance(members, counts).balanced()


def _topic_order(topic_id: bytes) -> tuple[int, ...]:
    """Kafka orders ids as two signed numbers."""
    return struct.unpack(">qq", topic_id)


def _as_partitions(pairs: Iterable[tuple[bytes, int]]) -> Partitions:
    found = dict[bytes, list[int]]()
    for topic_id, number in sorted(pairs):
        found.setdefault(topic_id, []).append(number)
    return {topic_id: tuple(numbers) for topic_id, numbers in found.items()}


def _range(members: Mapping[str, Subscriber], counts: Mapping[bytes, int]) -> dict[str, Partitions]:
    """Each topic's partitions are dealt in ranges."""
    order = sorted(members, key=lambda one: dealing_order(one, members[one].instance_id))
    found: dict[str, dict[bytes, tuple[int, ...]]] = {one: {} for one in members}
    for topic_id in sorted({topic for one in members.values() for topic in one.topics}):
        readers = [one for one in order if topic_id in members[one].topics]
        for reader, numbers in zip(readers, ranges(counts[topic_id], len(readers)), strict=True):
            if numbers:
                found[reader][topic_id] = tuple(numbers)
    return dict(found)


def _uniform_alike(members: Mapping[str, Subscriber], counts: Mapping[bytes, int]) -> dict[str, Partitions]:
    """All read the same topics: each member keeps as much of what it had as its share is, then the rest is dealt.

    Shares differ by one at most. The larger ones go to members that had as much, as long as there are members left.
    """
    order = sorted(members)
    topics = sorted(members[order[0]].topics, key=_topic_order) if order else []
    everything = [(topic_id, number) for topic_id in topics for number in range(counts[topic_id])]
    known, held = set(everything), set[tuple[bytes, int]]()
    least, more = divmod(len(everything), max(len(order), 1))
    shares, kept = dict[str, int](), dict[str, list[tuple[bytes, int]]]()
    given_up = list[tuple[bytes, int]]()
    for index, member_id in enumerate(order):
        had = [(topic_id, number) for topic_id, numbers in members[member_id].target.items() for number in numbers]
        held.update(had)
        had = [one for one in had if one in known]
        is_larger = more > 0 and (len(had) > least or len(order) - index <= more)
        more -= is_larger
        share = shares[member_id] = least + is_larger
        kept[member_id] = had[:share]
        given_up += had[share:]
    rest = iter([one for one in everything if one not in held] + given_up)
    return {
        member_id: _as_partitions([*kept[member_id], *islice(rest, share - len(kept[member_id]))])
        for member_id, share in shares.items()
    }


class _Balance:
    """`uniform` where members read different topics: what they had is kept, and partitions move while that helps."""

    def __init__(self, members: Mapping[str, Subscriber], counts: Mapping[bytes, int]) -> None:
        self._counts = counts
        self._order = sorted(members)
        self._readers: dict[bytes, list[str]] = {}
        for member_id in self._order:
            for topic_id in members[member_id].topics:
                self._readers.setdefault(topic_id, []).append(member_id)
        self._owners: dict[bytes, list[str | None]] = {one: [None] * counts[one] for one in self._readers}
        self._sizes = dict.fromkeys(self._order, 0)
        for member_id in self._order:
            for topic_id, numbers in members[member_id].target.items():
                if topic_id in members[member_id].topics:
                    for number in numbers:
                        self._give(topic_id, number, member_id)

    def _give(self, topic_id: bytes, number: int, member_id: str) -> None:
        old = self._owners[topic_id][number]
        if old is not None:
            self._sizes[old] -= 1
        self._owners[topic_id][number] = member_id
        self._sizes[member_id] += 1

    def balanced(self) -> dict[str, Partitions]:
        """The assignment."""
        topics = sorted(self._readers, key=self._difficulty)
        for topic_id in topics:
            self._deal(topic_id)
        self._balance_topics([one for one in topics if len(self._readers[one]) > 1])
        found: dict[str, list[tuple[bytes, int]]] = {one: [] for one in self._order}
        for topic_id, owners in self._owners.items():
            for number, owner in enumerate(owners):
                assert owner is not None
                found[owner].append((topic_id, number))
        return {member_id: _as_partitions(pairs) for member_id, pairs in found.items()}

    def _difficulty(self, topic_id: bytes) -> tuple[float, int, tuple[int, ...]]:
        """Topics with many partitions for each of its readers come first."""
        readers = len(self._readers[topic_id])
        return -self._counts[topic_id] / readers, readers, _topic_order(topic_id)

    def _by_size(self, topic_id: bytes) -> list[str]:
        return sorted(self._readers[topic_id], key=lambda one: (self._sizes[one], one))

    def _least(self, line: list[str]) -> str:
        """The member with the fewest partitions; of several the first in line."""
        return min(line, key=self._sizes.__getitem__)

    def _deal(self, topic_id: bytes) -> None:
        """Gives the partitions that are free to the members that have the fewest."""
        line = self._by_size(topic_id)
        for number, owner in enumerate(self._owners[topic_id]):
            if owner is None:
                self._give(topic_id, number, self._least(line))

    def _balance_topics(self, topics: list[bytes]) -> None:
        """Balances one topic after the other until a whole round moves nothing."""
        last_moved = None
        for _ in range(_MOST_ROUNDS):
            for topic_id in topics:
                if topic_id == last_moved:
                    return
                if self._balance(topic_id) or last_moved is None:
                    last_moved = topic_id

    def _balance(self, topic_id: bytes) -> bool:
        """Moves partitions of a topic from members with the most to those with the fewest. Returns whether it did."""
        line, moved = self._by_size(topic_id), False
        spare: dict[str, list[int]] = {one: [] for one in line}
        for number, owner in enumerate(self._owners[topic_id]):
            assert owner is not None
            spare[owner].append(number)
        givers = len(line)  # the first in line; the others have nothing of the topic left
        while givers:
            at = max(range(givers), key=lambda index: (self._sizes[line[index]], index))
            most = line[at]
            if not spare[most]:
                givers -= 1
                line[at], line[givers] = line[givers], line[at]
                continue
            least = self._least(line)
            if self._sizes[most] - self._sizes[least] <= 1:
                break
            self._give(topic_id, spare[most].pop(), least)
            moved = True
        return moved
