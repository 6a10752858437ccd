"""Assignors of clients: each partition once, balanced, and moving no more than that takes."""

from collections import Counter
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as some
from searching import searched

from pyspark_log.storage.groups.members.assignors import ASSIGNORS, Subscriber
from pyspark_log.types import TopicPartition

MEMBERS, TOPICS = ("a", "b", "c", "d"), ("x", "y", "z")


def partitions(**numbers):
    return [TopicPartition(topic, number) for topic, of_topic in numbers.items() for number in of_topic]


def reader(member_id, topics, owned=(), instance_id=None):
    return Subscriber(member_id, instance_id, topics, owned)


def assign(assignor, counts, *members):
    return ASSIGNORS[assignor](counts, members)


# The examples of Kafka's documentation of the two assignors.
def test_range():
    found = assign("range", {"t0": 3, "t1": 3}, reader("c0", ["t0", "t1"]), reader("c1", ["t0", "t1"]))
    assert found == {"c0": partitions(t0=[0, 1], t1=[0, 1]), "c1": partitions(t0=[2], t1=[2])}


def test_round_robin():
    found = assign("roundrobin", {"t0": 3, "t1": 3}, reader("c0", ["t0", "t1"]), reader("c1", ["t0", "t1"]))
    assert found == {"c0": partitions(t0=[0, 2], t1=[1]), "c1": partitions(t0=[1], t1=[0, 2])}


def test_round_robin_skips_members_that_do_not_read():
    members = reader("c0", ["t0"]), reader("c1", ["t0", "t1"]), reader("c2", ["t0", "t1", "t2"])
    found = assign("roundrobin", {"t0": 1, "t1": 2, "t2": 3}, *members)
    assert found == {"c0": partitions(t0=[0]), "c1": partitions(t1=[0]), "c2": partitions(t1=[1], t2=[0, 1, 2])}


def test_sticky_where_members_read_different_topics():
    members = reader("c0", ["t0"]), reader("c1", ["t0", "t1"]), reader("c2", ["t0", "t1", "t2"])
    found = assign("sticky", {"t0": 1, "t1": 2, "t2": 3}, *members)
    assert found == {"c0": partitions(t0=[0]), "c1": partitions(t1=[0, 1]), "c2": partitions(t2=[0, 1, 2])}


def test_sticky_shares_what_a_member_left():
    counts = {"t0": 2, "t1": 2, "t2": 2, "t3": 2}
    before = assign("sticky", counts, *(reader(name, list(counts)) for name in ("c0", "c1", "c2")))
    assert sorted(map(len, before.values())) == [2, 3, 3]
    after = assign("sticky", counts, *(reader(name, list(counts), before[name]) for name in ("c0", "c2")))
    assert list(map(len, after.values())) == [4, 4]
    assert all(set(before[name]) <= set(after[name]) for name in after)


def test_sticky_moves_what_members_have_too_much():
    owned = partitions(t=range(9))
    members = reader("a", ["t"], owned[:3]), reader("b", ["t"], owned[3:9]), reader("c", ["t"])
    found = assign("sticky", {"t": 9}, *members)
    assert found == {"a": owned[:3], "b": owned[3:6], "c": owned[6:9]}
    # One with two more than another keeps them, as long as a third can give.
    members = reader("a", ["t"], owned[:2]), reader("b", ["t"], owned[2:5]), reader("c", ["t"])
    found = assign("sticky", {"t": 5}, *members)
    assert found == {"a": owned[:2], "b": owned[2:4], "c": owned[4:5]}


def test_sticky_deals_first_what_few_members_read():
    both = ["t", "u"]
    members = reader("a", both, partitions(t=[1])), reader("b", both), reader("c", ["t"])
    found = assign("sticky", {"t": 2, "u": 1}, *members)
    assert found == {"a": partitions(t=[1]), "b": partitions(u=[0]), "c": partitions(t=[0])}


def test_sticky_moves_on_what_was_not_owned():
    members = reader("a", ["t", "u"], partitions(t=[1])), reader("b", ["u"]), reader("c", ["t"])
    found = assign("sticky", {"t": 3, "u": 2}, *members)
    assert partitions(t=[1])[0] in found["a"]


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_static_members_are_first(assignor):
    members = reader("a", ["t"]), reader("b", ["t"], instance_id="j"), reader("c", ["t"], instance_id="i")
    found = assign(assignor, {"t": 3}, *members)
    assert found == {"c": partitions(t=[0]), "b": partitions(t=[1]), "a": partitions(t=[2])}


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_what_is_not_there_goes_to_no_member(assignor):
    assert assign(assignor, {"t": 1}) == {}
    gone = partitions(gone=[0], t=[1], u=[0])
    assert assign(assignor, {"t": 1, "u": 1}, reader("a", ["t", "gone"], gone)) == {"a": partitions(t=[0])}
    assert assign(assignor, {"t": 0}, reader("a", ["t"]), reader("b", [])) == {"a": [], "b": []}


def test_what_two_members_own_is_dealt_as_what_none_owns():
    two = reader("a", ["t"], partitions(t=[0, 1])), reader("b", ["t"], partitions(t=[1, 2]))
    three = *two, reader("c", ["t"])
    assert assign("sticky", {"t": 3}, *three) == {
        "a": partitions(t=[0]),
        "b": partitions(t=[2]),
        "c": partitions(t=[1]),
    }
    # One that does not read the topic any more has no say.
    stale = reader("b", ["u"], partitions(t=[1]))
    assert assign("sticky", {"t": 2, "u": 2}, two[0], stale)["a"] == partitions(t=[0, 1])


class Case:
    """A group.

    Attributes:
        counts: the number of partitions of each topic.
        members: the members.
        topics: of each member, those that it reads.
        read: the partitions of topics that a member reads, sorted.
        owners: the member of each of them that has one.
    """

    def __init__(self, counts, members):
        self.counts, self.members = counts, members
        self.topics = {one.member_id: set(one.topics) for one in members}
        wanted = set().union(*self.topics.values())
        self.read = partitions(**{topic: range(counts[topic]) for topic in sorted(counts) if topic in wanted})
        claims = [(one, member) for member in members for one in member.owned if one.topic in member.topics]
        often = Counter(partition for partition, _ in claims)
        self.owners = {
            partition: member.member_id
            for partition, member in claims
            if often[partition] == 1 and partition in self.read
        }  # fmt: skip

    def is_balanced(self, takers):
        """Whether no partition can move to a member with two fewer; `takers`: of each partition that is read."""
        sizes = Counter(takers)
        return not any(
            partition.topic in topics and sizes[name] <= sizes[taker] - 2
            for partition, taker in zip(self.read, takers, strict=True)
            for name, topics in self.topics.items()
        )

    def moves(self, takers):
        """How many partitions lose their owner."""
        return sum(
            self.owners.get(partition, taker) != taker for partition, taker in zip(self.read, takers, strict=True)
        )

    def fewest_moves(self):
        """Of all balanced assignments."""
        choices = [[name for name, topics in self.topics.items() if one.topic in topics] for one in self.read]
        return min(self.moves(takers) for takers in product(*choices) if self.is_balanced(takers))


@some.composite
def cases(draw, *, alike=None, most=4):
    """Groups. `alike`: whether all members read the same topics; None: either. `most`: partitions of a topic."""
    counts = draw(some.dictionaries(some.sampled_from(TOPICS), some.integers(0, most), min_size=1))
    names = draw(some.lists(some.sampled_from(MEMBERS), min_size=1, unique=True))
    topics = some.lists(some.sampled_from([*counts, "gone"]), unique=True)
    same = draw(topics) if (draw(some.booleans()) if alike is None else alike) else None
    every = partitions(**{topic: range(count) for topic, count in counts.items()})
    # What each partition's owner is: mostly one member, at times none, at times two.
    owners = {one: draw(some.lists(some.sampled_from(MEMBERS), max_size=2, unique=True)) for one in every}
    instances = some.sampled_from([None, None, *(f"i{name}" for name in names)])
    ids = draw(some.lists(instances, min_size=len(names), max_size=len(names), unique_by=lambda one: one or object()))
    members = []
    for name, instance in zip(names, ids, strict=True):
        owned = [one for one in every if name in owners[one]]
        members.append(Subscriber(name, instance, draw(topics) if same is None else same, owned))
    return Case(counts, members)


def takers(case, found):
    """The member of each partition that is read, after checking that each has one, which reads it."""
    given_away = {partition: name for name, of_member in found.items() for partition in of_member}
    assert sorted(given_away) == case.read
    assert sum(map(len, found.values())) == len(case.read)
    assert set(found) == {one.member_id for one in case.members}
    assert all(of_member == sorted(of_member) for of_member in found.values())
    assert all(partition.topic in case.topics[name] for partition, name in given_away.items())
    return [given_away[partition] for partition in case.read]


@pytest.mark.parametrize("assignor", ASSIGNORS)
@searched
@given(case=cases(), chance=some.randoms(use_true_random=False))
def test_each_partition_goes_to_one_reader_whatever_the_order(assignor, case, chance):
    found = assign(assignor, case.counts, *case.members)
    takers(case, found)
    counts = dict(chance.sample(list(case.counts.items()), len(case.counts)))
    members = [
        one._replace(
            topics=chance.sample(one.topics, len(one.topics)), owned=chance.sample(one.owned, len(one.owned))
        )
        for one in chance.sample(case.members, len(case.members))
    ]  # fmt: skip
    assert assign(assignor, counts, *members) == found


@pytest.mark.parametrize("assignor", ["roundrobin", "sticky"])
@searched
@given(case=cases(alike=True))
def test_members_that_read_the_same_differ_by_one(assignor, case):
    sizes = [len(of_member) for of_member in assign(assignor, case.counts, *case.members).values()]
    assert max(sizes) - min(sizes) <= 1


@searched
@given(case=cases())
def test_sticky_is_balanced_and_stays(case):
    found = assign("sticky", case.counts, *case.members)
    assert case.is_balanced(takers(case, found))
    again = [one._replace(owned=found[one.member_id]) for one in case.members]
    assert assign("sticky", case.counts, *again) == found


@searched
@given(case=cases(alike=True, most=2))
def test_sticky_moves_as_few_as_any(case):
    found = assign("sticky", case.counts, *case.members)
    assert case.moves(takers(case, found)) == case.fewest_moves()


@searched
@given(case=cases(alike=False, most=2))
def test_sticky_moves_hardly_more_where_members_read_different_topics(case):
    found = takers(case, assign("sticky", case.counts, *case.members))
    fewest = case.fewest_moves()
    assert case.moves(found) <= fewest + 1
    if len(case.owners) == len(case.read) and not fewest:
        assert case.moves(found) == 0
