"""Members of groups that share the files of a store. The clock is one that the tests move."""

import gc
import os
import time
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from searching import examples

from pyspark_log import Store
from pyspark_log.clients.consuming.membership import MemberConfig, Membership
from pyspark_log.errors import FencedMemberError, GroupNotEmptyError, InvalidConfigError
from pyspark_log.storage.groups import GroupMember, GroupState
from pyspark_log.storage.groups.changes import GroupChange
from pyspark_log.storage.groups.log.metadata import (
    GroupMetadataValue,
    assigned_partitions,
    encode_subscription,
    owned_partitions,
)
from pyspark_log.storage.groups.members import member_files
from pyspark_log.storage.groups.members.member_files import MemberFiles
from pyspark_log.types import TopicPartition

TOPICS = ("bills", "orders")
DAY_MS = 24 * 3600 * 1000


class World:
    """A store with a group, and the time of its members."""

    def __init__(self, path):
        self.store = Store.create(path, {"offsets.topic.num.partitions": "2"})
        self.store.create_topic("orders", 4)
        self.store.create_topic("bills", 2)
        self.seconds = 1000.0

    def join(self, topics=TOPICS, **config):
        """A new member, which has looked."""
        made = Membership(self.store, MemberConfig("g", **config), lambda: self.seconds)
        made.join(topics)
        made.look()
        return made

    def settled(self, topics=TOPICS, **config):
        """Two members that have what is theirs."""
        both = self.join(topics, **config), self.join(topics, **config)
        self.settle(*both)
        return both

    def describe(self):
        return self.store.groups["g"].describe()

    def owners(self):
        """By the record of the group: the members that own each partition."""
        found = {}
        for member in self.describe().members:
            for at in owned_partitions(member.subscription):
                found.setdefault(at, []).append(member.member_id)
        return found

    def later(self, seconds, *members):
        """Lets time pass, in which some members look again and again."""
        for _ in range(int(seconds * 4)):
            self.seconds += 0.25
            for one in members:
                one.look()

    def settle(self, *members):
        """Has members do what they are to do until nothing is left."""
        for _ in range(4):
            self.later(0.25, *members)
            for one in members:
                one.settle()
        assert all(one.is_settled for one in members)


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path / "store")
    yield world
    world.store.close()


def kill(member):
    """What the end of its process does."""
    member._file.close()


def all_of(world):
    return {TopicPartition(name, n) for name in TOPICS for n in range(world.store.describe_topic(name).partitions)}


def test_what_moves_is_taken_once_it_is_given_up(world):
    first = world.join()
    assert first.settle() == all_of(world)
    second = world.join()
    assert second.settle() == frozenset()
    assert world.describe().state is GroupState.RECONCILING
    first.look()
    moving = first.to_give_up
    assert len(moving) == 3
    first.settle()
    second.look()
    assert second.settle() == moving
    assert first.owned | second.owned == all_of(world)
    assert world.describe().state is GroupState.STABLE


def test_what_dies_is_removed_at_the_next_look(world):
    first, second = world.settled()
    generation = first.generation
    kill(second)
    world.later(0.25, first)
    assert first.settle()
    assert first.owned == all_of(world)
    assert first.generation == generation + 1
    assert not MemberFiles(world.store.path).lives(second.member_id)


def test_a_member_that_is_forgotten_has_died(world):
    first, second = world.settled()
    del second
    gc.collect()
    world.later(0.25, first)
    first.settle()
    assert first.owned == all_of(world)


def test_a_member_that_leaves_is_gone_at_once(world):
    first, second = world.settled()
    second.leave()
    assert [one.member_id for one in world.describe().members] == [first.member_id]
    first.look()
    first.settle()
    assert first.owned == all_of(world)
    first.leave()
    assert world.describe().state is GroupState.EMPTY


def test_a_silent_member_is_removed_and_commits_nothing_more(world):
    first, second = world.settled(max_poll_interval_ms=10_000)
    at = min(second.owned)
    second.commit({at: 5})
    world.later(9, first)
    assert len(world.describe().members) == 2
    world.later(3, first)
    assert [one.member_id for one in world.describe().members] == [first.member_id]
    first.settle()
    with pytest.raises(FencedMemberError, match="max_poll_interval_ms"):
        second.commit({at: 6})
    assert world.store.groups["g"].committed()[at].offset == 5
    with pytest.raises(FencedMemberError):
        second.look()
    first.commit({at: 7})
    second.join(TOPICS)
    world.settle(first, second)
    assert len(second.owned) == 3


def test_members_that_sleep_together_do_not_remove_each_other(world):
    first, second = world.settled(max_poll_interval_ms=10_000)
    world.seconds += 3600
    first.look()
    second.look()
    world.later(5, first, second)
    assert len(world.describe().members) == 2


def test_a_member_commits_only_for_what_it_owns(world):
    first, second = world.settled()
    at = min(first.owned)
    with pytest.raises(FencedMemberError, match=f"does not own {at}"):
        second.commit({at: 5})
    assert world.store.groups["g"].committed() == {}


def test_a_restart_with_an_instance_id_moves_nothing(world):
    first, second = world.join(instance_id="a"), world.join(instance_id="b")
    world.settle(first, second)
    generation, owned = first.generation, second.owned
    second.leave()
    world.later(40, first)
    again = world.join(instance_id="b")
    assert again.owned == owned
    assert again.generation == generation
    assert again.is_settled
    assert len(world.describe().members) == 2


def test_a_newer_consumer_with_its_instance_id_fences_a_member(world):
    first = world.join(instance_id="a")
    world.settle(first)
    again = world.join(instance_id="a")
    assert again.owned == all_of(world)
    with pytest.raises(FencedMemberError, match="group_instance_id"):
        first.commit({min(again.owned): 1})
    again.commit({min(again.owned): 1})


def test_what_has_an_instance_id_is_removed_when_its_session_is_over(world):
    first, second = world.join(instance_id="a"), world.join(instance_id="b", session_timeout_ms=20_000)
    world.settle(first, second)
    kill(second)
    world.later(19, first)
    assert len(world.describe().members) == 2
    world.later(4, first)
    first.settle()
    assert first.owned == all_of(world)


def test_a_session_of_some_days(world):
    gone = world.join(instance_id="a", session_timeout_ms=3 * DAY_MS)
    files, name = world.store.groups.log.membership.member_files, gone.member_id
    gone.leave()
    seconds = time.time() - 2 * DAY_MS / 1000
    os.utime(files._path(name), (seconds, seconds))
    world.join()
    assert name in [one.member_id for one in world.describe().members]


def test_partitions_that_are_added_and_topics_that_come_and_go(world):
    first, second = world.settled([*TOPICS, "later"])
    world.store.add_partitions("orders", 6)
    world.store.create_topic("later", 2)
    world.settle(first, second)
    assert first.owned | second.owned == all_of(world) | {TopicPartition("later", n) for n in range(2)}
    world.store.delete_topic("later")
    world.settle(first, second)
    assert first.owned | second.owned == all_of(world)


def test_members_may_read_different_topics(world):
    first, second = world.join(["orders"]), world.join(["bills"])
    world.settle(first, second)
    assert {at.topic for at in first.owned} == {"orders"}
    assert {at.topic for at in second.owned} == {"bills"}
    second.subscribe(["orders"])
    world.settle(first, second)
    assert len(first.owned) == len(second.owned) == 2
    assert {at.topic for at in second.owned} == {"orders"}


def test_all_have_the_same_assignor(world):
    first = world.join()
    with pytest.raises(InvalidConfigError, match="the assignor 'range', this one has 'sticky'"):
        world.join(assignor="sticky")
    with pytest.raises(InvalidConfigError, match="there is no assignor 'best'; there are range,"):
        world.join(assignor="best")
    first.leave()
    world.join(assignor="sticky")


def test_an_assignor_of_ones_own(world):
    def to_the_first(counts, members):
        wanted = [TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)]
        return {min(one.member_id for one in members): wanted}

    first, second = world.settled(assignor=to_the_first)
    assert sorted(map(len, (first.owned, second.owned))) == [0, 6]
    assert world.describe().protocol == "to_the_first"


def test_an_assignor_that_forgets_a_partition_is_refused(world):
    with pytest.raises(InvalidConfigError, match="'broken' has not given each partition to one member"):
        world.join(assignor=broken)
    assert world.describe().state is GroupState.DEAD
    assert list(Path(world.store.path, "state", "members").iterdir()) == []


def broken(_counts, _members):
    return {}


def test_a_group_of_a_server_is_refused(world):
    member = GroupMember("x", None, "x", "/host", encode_subscription(TOPICS, ()), b"")
    value = GroupMetadataValue("consumer", 7, "range", "x", 0, (member,))
    world.store.groups.log.write([GroupChange("g", members=value)])
    with pytest.raises(GroupNotEmptyError):
        world.join()


def test_a_server_may_not_take_a_group_that_has_members(world):
    first = world.join()
    member = GroupMember("x", None, "x", "/host", b"", b"")
    change = GroupChange("g", members=GroupMetadataValue("consumer", 7, "range", "x", 0, (member,)))
    other = GroupChange("h", members=GroupMetadataValue("consumer", 7, "range", "x", 0, (member,)))
    refused, written = world.store.groups.log.write([change, other])
    assert isinstance(refused, GroupNotEmptyError)
    assert written is None
    kill(first)
    assert world.store.groups.log.write([change]) == [None]


def test_a_group_with_members_is_not_deleted_and_one_whose_members_died_is(world):
    first = world.join()
    with pytest.raises(GroupNotEmptyError, match=r"has 1 member \(pylog on .*end them"):
        world.store.groups["g"].delete()
    kill(first)
    assert world.describe().state is GroupState.EMPTY
    world.store.groups["g"].delete()
    assert world.describe().state is GroupState.DEAD


def test_offsets_of_a_group_whose_members_died_expire(world):
    first = world.join()
    world.settle(first)
    world.store.groups["g"].commit({min(first.owned): 5})
    kill(first)
    log = world.store.groups.log
    assert log.expire() == 0
    assert log.describe("g").state is GroupState.EMPTY
    now = log._now()
    log._clock = lambda: now / 1000 + 8 * 24 * 3600
    assert log.expire() == 1


def test_the_generation_counts_on_after_the_group_was_empty(world):
    first = world.join()
    generation = first.generation
    first.leave()
    assert world.join().generation > generation


class Group(RuleBasedStateMachine):
    """Members that join, work, leave, sleep and die in any order."""

    assignor = "range"

    @initialize()
    def begin(self):
        self.world = World(self.folder.mktemp("group") / "store")
        self.members, self.positions = [], {}

    def teardown(self):
        if hasattr(self, "world"):
            self.world.store.close()

    @rule()
    def join(self):
        if len(self.members) < 5:
            self.members.append(self.world.join(max_poll_interval_ms=10_000, assignor=self.assignor))

    @precondition(lambda self: self.members)
    @rule(data=st.data(), moves=st.booleans())
    def work(self, data, moves):
        """One member looks, and reads and commits a record of each partition."""
        one = data.draw(st.sampled_from(self.members))
        self.world.seconds += 0.5
        try:
            one.look()
            if moves:
                one.settle()
            committed = self.world.store.groups["g"].committed()
            offsets = {at: committed[at].offset + 1 if at in committed else 1 for at in one.owned}
            one.commit(offsets)
        except FencedMemberError:
            one._file.close()
            self.members.remove(one)
            return
        for at, offset in offsets.items():
            assert offset == self.positions.get(at, 0) + 1
            self.positions[at] = offset

    @precondition(lambda self: self.members)
    @rule(data=st.data(), kills=st.booleans())
    def end(self, data, kills):
        one = self.members.pop(data.draw(st.integers(0, len(self.members) - 1)))
        if kills:
            kill(one)
        else:
            one.leave()

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def sleep(self, data):
        """All but one sleep for so long that they are removed."""
        one = data.draw(st.sampled_from(self.members))
        try:
            self.world.later(12, one)
        except FencedMemberError:
            return
        [left] = self.world.describe().members
        assert left.member_id == one.member_id

    @invariant()
    def each_partition_has_one_owner(self):
        if hasattr(self, "world"):
            assert all(len(owners) == 1 for owners in self.world.owners().values())

    @precondition(lambda self: self.members)
    @rule()
    def rest(self):
        """When nothing happens any more, each partition has an owner that lives."""
        left = []
        for one in self.members:
            try:
                one.look()
                left.append(one)
            except FencedMemberError:
                one._file.close()
        self.members = left
        if not left:
            return
        self.world.settle(*left)
        assert set().union(*(one.owned for one in left)) == all_of(self.world)
        for member in self.world.describe().members:
            assert set(owned_partitions(member.subscription)) == set(assigned_partitions(member.assignment))


@pytest.mark.parametrize("assignor", ["range", "sticky"])
def test_any_order_of_joins_leaves_deaths_and_sleeps(assignor, tmp_path_factory):
    kind = type(f"Group{assignor}", (Group,), {"assignor": assignor, "folder": tmp_path_factory})
    kind.TestCase.settings = settings(max_examples=examples(15), stateful_step_count=25, deadline=None)
    kind.TestCase("runTest").runTest()


def test_old_files_of_members_that_have_died_are_deleted(world, monkeypatch):
    living, dead = world.join(), world.join()
    kill(dead)
    folder = Path(world.store.path) / "state" / "members"
    assert len(list(folder.iterdir())) == 2
    monkeypatch.setattr(member_files, "_OLD_MS", -DAY_MS)
    new = world.join()
    assert len(list(folder.iterdir())) == 2
    files = MemberFiles(world.store.path)
    assert [files.lives(one.member_id) for one in (living, new, dead)] == [True, True, False]
