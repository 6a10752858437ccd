"""Assignors of groups of KIP-848: whole, balanced, and moving no more than that takes."""

import random

import pytest

from pyspark_log.server.coordinator.assignors import ASSIGNORS, RANGE, UNIFORM, Subscriber, assign

T, U, V = (bytes([0] * 15 + [number]) for number in (1, 2, 3))


def members(**topics):
    return {name: Subscriber(None, ids, {}) for name, ids in topics.items()}


def again(before, subscribers):
    """The same members with what they were assigned, and others."""
    return {
        name: Subscriber(one.instance_id, one.topics, before.get(name, {})) for name, one in subscribers.items()
    }  # fmt: skip


def check_whole(found, subscribers, counts):
    given = [(topic, number) for one in found.values() for topic, numbers in one.items() for number in numbers]
    read = {topic for one in subscribers.values() for topic in one.topics}
    assert sorted(given) == sorted((topic, number) for topic in read for number in range(counts[topic]))
    for name, one in subscribers.items():
        assert set(found[name]) <= set(one.topics)


def sizes(found):
    return sorted(sum(map(len, one.values())) for one in found.values())


def test_range_deals_each_topic_in_ranges():
    found = assign(RANGE, members(a=[T, U], b=[T, U], c=[U]), {T: 3, U: 4}, alike=False)
    assert found == {"a": {T: (0, 1), U: (0, 1)}, "b": {T: (2,), U: (2,)}, "c": {U: (3,)}}


def test_range_puts_static_members_first():
    found = assign(RANGE, {"a": Subscriber(None, [T], {}), "z": Subscriber("i", [T], {})}, {T: 2}, alike=True)
    assert found == {"z": {T: (0,)}, "a": {T: (1,)}}


def test_range_leaves_members_without_partitions():
    found = assign(RANGE, members(a=[T], b=[T]), {T: 1}, alike=True)
    assert found == {"a": {T: (0,)}, "b": {}}


def test_uniform_keeps_what_is_within_the_share():
    two = members(a=[T, U], b=[T, U])
    before = assign(UNIFORM, two, {T: 3, U: 3}, alike=True)
    assert sizes(before) == [3, 3]
    after = assign(UNIFORM, again(before, two | members(c=[T, U])), {T: 3, U: 3}, alike=True)
    assert sizes(after) == [2, 2, 2]
    for name in "ab":
        assert sum(len(set(before[name].get(one, ())) & set(after[name].get(one, ()))) for one in (T, U)) == 2


def test_uniform_gives_what_a_member_left():
    three = members(a=[T], b=[T], c=[T])
    before = assign(UNIFORM, three, {T: 6}, alike=True)
    after = assign(UNIFORM, again(before, members(a=[T], c=[T])), {T: 6}, alike=True)
    assert set(before["a"][T]) < set(after["a"][T])
    assert sizes(after) == [3, 3]


def test_uniform_balances_members_that_read_different_topics():
    some = members(a=[T, U, V], b=[T, U], c=[U])
    found = assign(UNIFORM, some, {T: 4, U: 4, V: 1}, alike=False)
    check_whole(found, some, {T: 4, U: 4, V: 1})
    assert sizes(found) == [3, 3, 3]


def test_uniform_moves_what_is_too_much():
    before = {"a": {T: (0, 1, 2, 3, 4, 5)}}
    some = again(before, members(a=[T, U], b=[T], c=[U]))
    found = assign(UNIFORM, some, {T: 6, U: 2}, alike=False)
    check_whole(found, some, {T: 6, U: 2})
    assert (found["a"][T], found["b"][T]) == ((0, 1, 2), (3, 4, 5))


def test_nothing_to_assign():
    for assignor in ASSIGNORS:
        for alike in (True, False):
            assert assign(assignor, members(a=[]), {}, alike=alike) == {"a": {}}


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_groups_that_change(assignor):
    chance = random.Random(1)
    found, counts = {}, {T: 5, U: 3, V: 1}
    for _ in range(300):
        names = chance.sample("abcdefgh", chance.randrange(1, 9))
        alike = chance.random() < 0.5
        same = chance.sample([T, U, V], chance.randrange(1, 4))
        some = members(**{name: same if alike else chance.sample([T, U, V], chance.randrange(4)) for name in names})
        some = again(found, some)
        found = assign(assignor, some, counts, alike=alike)
        check_whole(found, some, counts)
        if alike and assignor == UNIFORM:
            assert sizes(found)[-1] - sizes(found)[0] <= 1
        assert assign(assignor, again(found, some), counts, alike=alike) == found
        counts = {topic: count + (chance.random() < 0.05) for topic, count in counts.items()}
