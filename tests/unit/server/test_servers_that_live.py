"""Servers of a store in an object store: which of them live, which coordinates, and what a fenced one may write."""

import contextlib
from dataclasses import replace
from types import SimpleNamespace

import pytest

from pyspark_log import Store, TopicPartition
from pyspark_log.errors import GroupNotEmptyError, InvalidConfigError, ObjectStoreError, StoreError
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.server.answers.refusal import RefusedError
from pyspark_log.server.coordinator import Settings
from pyspark_log.server.handlers.coordinators.group_offsets import offset_commit
from pyspark_log.server.handlers.coordinators.transactions import txn_offset_commit
from pyspark_log.server.network import Loop, Workers
from pyspark_log.server.served import servers as servers_of_a_store
from pyspark_log.server.served.objects import servers as object_servers
from pyspark_log.server.served.objects import upkeep as object_upkeep
from pyspark_log.server.served.objects.collector import Collector
from pyspark_log.server.served.objects.follower import Follower
from pyspark_log.server.served.objects.groups import ObjectGroups
from pyspark_log.server.served.objects.pieces import Pieces
from pyspark_log.server.served.objects.servers import DEAD, ObjectServers
from pyspark_log.server.served.objects.upkeep import ObjectUpkeep
from pyspark_log.server.served.servers import Server
from pyspark_log.server.several.over_objects import SeveralOverObjects
from pyspark_log.server.state.producer_ids import ProducerIds
from pyspark_log.storage.fs.clock import now_ms
from pyspark_log.storage.groups import GroupMember, GroupState, OffsetAndMetadata
from pyspark_log.storage.groups.changes import GroupChange
from pyspark_log.storage.groups.log.metadata import GroupMetadataValue
from pyspark_log.storage.objects.observer import set_observer
from pyspark_log.storage.publish_log import checkpoint
from pyspark_log.storage.publish_log.entries.changes import Place
from pyspark_log.storage.publish_log.parts.groups import coordinated
from pyspark_log.storage.publish_log.serving import servers
from tests import requests as r
from tests.waiting import wait_until

AT = TopicPartition("t", 0)


@pytest.fixture
def store(memory_url):
    store = Store.create(memory_url)
    store.create_topic("t", 64)
    return store


@pytest.fixture
def clock(monkeypatch):
    """The clock of all servers, in seconds."""
    now = [1000.0]
    monkeypatch.setattr(object_servers, "since_boot", lambda: now[0])
    return now


class House:
    """A server without its threads: what these do, a test does."""

    def __init__(self, store, clock, node_id=None, port=9092, rack=""):
        self.clock, log = clock, Store.open(store.path).log
        self.follower = Follower(log, Pieces(log.objects), lambda action: action())
        self.follower.looked = clock[0]
        self.servers = ObjectServers(log, self.follower, node_id, rack)
        self.servers.register(("host", port))
        self.collector = Collector(log, self.follower.keep, 0)
        self.groups = ObjectGroups(self.follower, self.collector, self.servers.run, 1000)
        self.collector.start()
        self.groups.take_over()

    def look(self):
        began = self.clock[0]
        self.follower.look()
        self.follower.looked = began

    def work(self, *, looks=True):
        """One round of its thread."""
        if looks:
            self.look()
        self.servers._judge()
        self.servers._take_over()
        if self.servers.coordinates:
            self.groups.take_over()

    def renew(self):
        servers = self.servers
        servers._decide(lambda state: object_servers.servers.renew(state, servers.node_id, servers.run, servers._place))


@pytest.fixture
def house(store, clock):
    made = []

    def make(node_id=None, port=9092, rack=""):
        made.append(House(store, clock, node_id, port, rack))
        return made[-1]

    yield make
    for one in made:
        one.collector.stop()


def leaders_at(house, rack=""):
    """The leaders of partitions, as a server names them to clients of a rack."""
    return [house.servers.leader("id", number, rack).node_id for number in range(300)]


def test_one_that_is_alone_is_where_clients_find_it(house):
    only = house(node_id=7)
    assert (only.servers.alive(), only.servers.coordinates) == ((Server(7, "", 0),), True)
    assert only.servers.coordinator() == Server(7, "", 0)
    with pytest.raises(InvalidConfigError, match="--advertise"):
        ObjectServers(None, None, None, "").register(("0.0.0.0", 1))


def test_several_know_of_each_other(house):
    first, second, third = house(), house(), house(port=1)
    for one in (first, second, third):
        one.work()
        assert one.servers.alive() == (Server(1, "host", 9092), Server(2, "host", 9092), Server(3, "host", 1))
        assert one.servers.coordinator() == Server(1, "host", 9092)
    leaders = leaders_at(first)
    assert leaders == leaders_at(third)
    assert all(60 < leaders.count(node_id) < 140 for node_id in (1, 2, 3))
    second.servers._thread.start()
    second.servers.end()
    first.work()
    left = leaders_at(first)
    assert all(now == before for now, before in zip(left, leaders, strict=True) if before != 2)


def test_clients_are_sent_to_servers_of_their_rack(house):
    houses = [house(rack=rack) for rack in ("a", "b", "b", "")]
    for one in houses:
        one.work()
        assert [server.rack for server in one.servers.alive()] == ["a", "b", "b", ""]
        assert [set(leaders_at(one, rack)) for rack in ("a", "b", "elsewhere", "")] == [
            {1}, {2, 3}, {1, 2, 3, 4}, {1, 2, 3, 4}
        ]  # fmt: skip
    nearer = [[one.servers.nearer("id", 0, rack) for one in houses] for rack in ("a", "elsewhere")]
    assert nearer == [[None, 1, 1, 1], [None] * 4]
    second = houses[0].servers.leader("id", 0, "b").node_id
    assert [one.servers.nearer("id", 0, "b") for one in houses] == [second, None, None, second]
    # What a rack is lasts as long as its server, also in a checkpoint.
    state = houses[0].follower.state
    assert checkpoint.decode(state.number, checkpoint.encode(state)).servers == state.servers


def test_servers_that_change_while_one_is_looked_for(house, monkeypatch):
    first, _ = house(), house()
    first.work()
    expected, blake2b = first.servers.leader("tx", 0, ""), servers_of_a_store.blake2b

    def another_thread_judges(*arguments, **named):
        first.servers._alive = ()
        return blake2b(*arguments, **named)

    monkeypatch.setattr(servers_of_a_store, "blake2b", another_thread_judges)
    assert first.servers.of_transactions("tx") == expected


def test_one_that_has_died(house, clock):
    first, second, third = house(), house(), house()
    for one in (second, third):
        one.work()
    for _ in range(4):
        clock[0] += DEAD / 3
        third.renew()
        second.renew()
        for one in (third, second):
            one.work()
    assert [server.node_id for server in second.servers.alive()] == [2, 3]
    assert (second.servers.coordinates, third.servers.coordinates) == (True, False)
    third.work()
    assert third.servers.coordinator() == Server(2, "host", 9092)
    # It has only slept: what it writes now is refused, and it finds out.
    [refused] = first.groups.write([GroupChange("g", {AT: OffsetAndMetadata(5, -1, "", 1)})])
    assert isinstance(refused, RefusedError)
    assert refused.code == ErrorCode.NOT_COORDINATOR
    assert not first.servers.coordinates
    assert second.groups.write([GroupChange("g", {AT: OffsetAndMetadata(6, -1, "", 1)})]) == [None]
    first.look()
    assert {at: known.offset for at, known in first.groups.fetch("g").items()} == {AT: 6}


def coordinates_again(first, store):
    """Another server has coordinated in between, has changed the groups, and has left; the first one did not notice."""
    log = Store.open(store.path).log
    run, place = "r" * 22, Place("other", 1)
    log.decide(lambda state: servers.register(state, 9, run, place))
    log.decide(lambda state: servers.coordinate(state, 9, run, place, first.servers.run))
    change = GroupChange("other", {AT: OffsetAndMetadata(7, -1, "", 1)}, MEMBERS)
    log.decide(lambda state: coordinated(state, [change]))
    log.decide(lambda state: servers.leave(state, 9, run))
    first.renew()
    assert first.servers.coordinates


def test_what_was_known_in_an_earlier_term_is_not_written(house, store):
    first = house()
    coordinates_again(first, store)
    change = GroupChange("g", {AT: OffsetAndMetadata(5, -1, "", 1)})
    [refused] = first.groups.write([change])
    assert refused.code == ErrorCode.NOT_COORDINATOR
    term, (classic, _) = first.groups.take_over()
    assert (term, classic) == (first.servers.term, {"other": MEMBERS})
    assert first.groups.write([change]) == [None]


@contextlib.contextmanager
def member_of(house, store):
    """A server's part of the store's servers, and its loop."""
    with contextlib.closing(Loop()) as loop, contextlib.closing(Workers(loop, 1)) as workers:
        logs = SimpleNamespace(
            configs=store.configs, clock=now_ms, groups=house.groups, transactions=None, servers=house.servers
        )
        parts = SimpleNamespace(
            loop=loop, workers=workers, logs=logs, settings=Settings(), producer_ids=ProducerIds(), sync=False
        )
        yield SeveralOverObjects(parts, house.groups, None), loop


def test_groups_are_loaded_in_each_term(house, store):
    first = house()
    with member_of(first, store) as (member, loop):

        def load():
            member._look()
            assert member.of_group("g") == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            member.groups.log.read(lambda: None).then(lambda: loop.call_soon(loop.stop))
            loop.run()
            assert member.of_group("g") == ErrorCode.NONE
            return member.groups.names()

        assert load() == []
        coordinates_again(first, store)
        assert load() == ["other"]


def test_a_commit_that_is_not_stored_is_sent_again(house, store):
    """Its client looks for the coordinator; other errors of a commit end it."""
    first = house()
    with member_of(first, store) as (member, loop):

        def fail(request):
            if request.kind != "get" and not request.is_done:
                raise ObjectStoreError("it is full", retriable=False)

        broker = SimpleNamespace(
            groups=member.groups, logs=SimpleNamespace(groups=first.groups),
            cluster=SimpleNamespace(has_partition=lambda _: True),
        )  # fmt: skip
        call = SimpleNamespace(
            broker=broker, version=8, client=SimpleNamespace(warned=set()), allows=lambda *_: True
        )  # fmt: skip
        set_observer(fail)
        try:
            answer = loop.start(offset_commit(call, r.commit("g", "t", 5)))
            answer.then(loop.stop)
            loop.run()
        finally:
            set_observer(None)
    [[part]] = [topic.partitions for topic in answer.value.topics]
    assert part.error_code == ErrorCode.NOT_COORDINATOR


def test_a_commit_in_a_transaction_that_is_not_stored_is_sent_again(house, store):
    """Another server has coordinated meanwhile: its client looks for the coordinator, and keeps its connection."""
    first = house()
    with member_of(first, store) as (member, loop):

        async def admit(_name, _producer_id, _epoch, partitions, *, adds):
            return dict.fromkeys(partitions, ErrorCode.NONE)

        async def place_of(group):
            return first.groups.partition_of(group)

        gate = SimpleNamespace(admit=admit, release=lambda *_: None)
        logs = SimpleNamespace(groups=first.groups, transactions=SimpleNamespace(writable=True))
        cluster = SimpleNamespace(has_partition=lambda _: True, place_of=place_of)
        call = SimpleNamespace(
            broker=SimpleNamespace(groups=member.groups, logs=logs, gate=gate, loop=loop, cluster=cluster), version=5,
            client=SimpleNamespace(warned=set()), allows=lambda *_: True,
        )  # fmt: skip
        coordinates_again(first, store)
        answer = loop.start(txn_offset_commit(call, r.commit_in_transaction("tx", "g", (1, 0), "t", 5)))
        answer.then(loop.stop)
        loop.run()
    [[part]] = [topic.partitions for topic in answer.value.topics]
    assert part.error_code == ErrorCode.NOT_COORDINATOR


def test_one_that_does_not_hear_of_the_store_does_not_coordinate(house, clock):
    """Another one may do so by now, and its offsets are newer."""
    first = house()
    clock[0] += DEAD
    assert (first.servers.coordinates, first.servers.term) == (False, 1)
    first.work()
    assert first.servers.coordinates


def test_one_that_has_slept_takes_none_for_dead(house, clock):
    first, second = house(), house()
    second.work()
    clock[0] += 100 * DEAD
    first.renew()
    # Before it has looked, it knows nothing of what it has slept through.
    second.work(looks=False)
    assert [server.node_id for server in second.servers.alive()] == [1, 2]
    second.work()
    assert [server.node_id for server in second.servers.alive()] == [1, 2]
    assert not second.servers.coordinates


def test_two_with_one_id(house):
    first = house(node_id=4)
    second = house(node_id=4)
    assert second.servers.coordinates
    with pytest.raises(StoreError, match="another server of this store has node id 4"):
        first.renew()


# As a consumer of topic t says and gets it: version, topics, its own data.
SUBSCRIPTION, ASSIGNMENT = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff", b"\0\0\0\0\0\0\xff\xff\xff\xff"
MEMBERS = GroupMetadataValue(
    "consumer", 3, "range", "m", 5, (GroupMember("m", None, "c", "/h", SUBSCRIPTION, ASSIGNMENT),)
)


def test_groups_outlive_their_coordinator(house):
    first = house(node_id=1)
    offsets = {AT: OffsetAndMetadata(5, -1, "note", 1), TopicPartition("t", 1): OffsetAndMetadata(6, -1, "", 1)}
    long = GroupChange("g" * 40_000, members=MEMBERS)
    outcomes = first.groups.write([GroupChange("g", offsets, MEMBERS), long, GroupChange("h", {AT: offsets[AT]})])
    assert outcomes[::2] == [None, None]
    assert isinstance(outcomes[1], ValueError)
    second = house(node_id=1)
    assert second.groups.members() == ({"g": MEMBERS, "h": None}, {})
    fetched = second.groups.fetch("g")
    assert {at: (one.offset, one.metadata) for at, one in fetched.items()} == {
        AT: (5, "note"), TopicPartition("t", 1): (6, "")
    }  # fmt: skip
    assert second.groups.write([GroupChange("g", deletes=True), GroupChange("h", {AT: None})]) == [None, None]
    assert second.groups.members() == ({}, {})


def test_a_group_that_is_deleted_with_what_it_has_just_got(house):
    """What waits is written together: the deletion finds nothing of it in the store."""
    only = house()
    changes = [GroupChange("g", {AT: OffsetAndMetadata(5, -1, "", 1)}, MEMBERS), GroupChange("g", deletes=True)]
    assert only.groups.write(changes) == [None, None]
    assert (only.groups.fetch("g"), only.groups.members()) == ({}, ({}, {}))


def test_an_offset_with_which_a_group_starts_over_is_as_none(house, store):
    only = house()
    at = {AT: OffsetAndMetadata(5, -1, "", 1)}
    assert only.groups.write([GroupChange("g", at)]) == [None]
    assert only.groups.write([GroupChange("g", {AT: OffsetAndMetadata(-2, -1, "", 1)})]) == [None]
    assert only.groups.fetch("g") == {}
    # What was decided can be read.
    assert store.log.follow().groups == {}


def test_tools_see_members(house, store):
    only = house()
    offsets = {AT: OffsetAndMetadata(5, -1, "", 1)}
    assert only.groups.write([GroupChange("g", offsets, MEMBERS)]) == [None]
    assert (store.groups["g"].describe().state, store.groups["g"].describe().members) == (
        GroupState.STABLE, MEMBERS.members
    )  # fmt: skip
    for change in (store.groups["g"].delete, lambda: store.groups["g"].delete_offsets([AT])):
        with pytest.raises(GroupNotEmptyError):
            change()
    assert only.groups.write([GroupChange("g", members=replace(MEMBERS, members=(), state_timestamp=5))]) == [None]
    assert store.groups["g"].describe().state is GroupState.EMPTY
    # Those of groups with members expire once they are empty; those of queries do not.
    store.groups["query"].commit({AT: 1})
    # Not with others in one decision: a commit in it would be deleted.
    only.collector.add = None
    assert only.groups.expire() == 1
    assert list(store.groups) == ["query"]


def test_the_one_that_coordinates_does_the_upkeep(store, monkeypatch):
    monkeypatch.setattr(object_upkeep, "FIRST", 0.0)
    for _ in range(30):
        store.append("t", [{"key": "k", "value": "v"}], partition=0)
    other, first = (ObjectUpkeep(store, SimpleNamespace(coordinates=coordinates)) for coordinates in (False, True))

    def pieces():
        return len(store.log.follow().partitions[store.describe_topic("t").topic_id, 0].pieces)

    other.start()
    other.stop()
    other._thread.join()
    assert pieces() == 30
    first.start()
    wait_until(lambda: pieces() == 1, "they are merged")
    first.stop()
    assert store.latest_offset("t", 0) == 30
