"""Several servers over one store of either kind: partitions shared, one of them coordinates, any may die."""

import contextlib
import os
import signal
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from pyspark_log import Store
from pyspark_log.kafka.error_codes import ErrorCode
from tests.ports import free_ports_in_a_row
from tests.requests import alter_configs, create_topic, metadata, reassign
from tests.server_tools import Peer, Server
from tests.waiting import PATIENCE, wait_until

# A test that is slow over objects, where a server is taken for dead after 15 s, is not over a folder.
KINDS = ("objects", "folder")
SLOW_OVER_OBJECTS = (pytest.param("objects", marks=pytest.mark.slow), "folder")


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def store(kind, request, tmp_path):
    path = tmp_path / "store"
    if kind == "objects":
        request.getfixturevalue("object_server")
        path = request.getfixturevalue("object_url")
    store = Store.create(path)
    store.create_topic("t", 8)
    return store


@pytest.fixture
def servers(store, tmp_path):
    """Three servers, with ids from 1 on; the first one coordinates."""
    started = []
    for number in (1, 2, 3):
        (tmp_path / str(number)).mkdir()
        started.append(Server(store.path, tmp_path / str(number), "--shared").start())
        if number == 1:
            started[0].wait_for("coordinates the groups")
    # librdkafka 2.16 loses a question that is under way when a broker leaves its list, or comes, and waits for minutes.
    wait_until(lambda: all(len(described(server)[0]) == 3 for server in started), "all know of each other")
    yield started
    for server in started:
        server.kill()


def described(server):
    """The servers, and the leaders of a topic, as this one knows them: a client would ask whichever it has reached."""
    with Peer(server) as peer:
        answer = peer.ask(metadata("t"), 12)
    leaders = {part.partition_index: part.leader_id for part in answer.topics[0].partitions}
    return {one.node_id: (one.host, one.port) for one in answer.brokers}, leaders


def test_partitions_are_shared(servers):
    addresses = {number: (server.host, server.port) for number, server in enumerate(servers, 1)}
    views = []

    def agree():
        # One that a busy machine does not let run for a while is taken for dead, until it runs on.
        views[:] = map(described, servers)
        return all(view == (addresses, views[0][1]) for view in views)

    wait_until(agree, "all servers know of each other, and of the same leaders")
    leaders = views[0][1]
    assert len(set(leaders.values())) > 1
    with Peer(servers[1]) as peer:
        [topic] = peer.ask(metadata("t"), 12).topics
        # Else Java's consumers would ask each leader that comes whether their positions are right, and wait for that.
        assert {part.leader_epoch for part in topic.partitions} == {-1}
        codes = [peer.ask(create_topic(f"copies{n}", 1, n), 7).topics[0].error_code for n in (0, 3, 4)]
        assert codes == [ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.NONE, ErrorCode.INVALID_REPLICATION_FACTOR]
        in_sync = [create_topic(f"sync{n}", 1, 3, min_insync_replicas=str(n)) for n in (0, 2, 4)]
        codes = [peer.ask(request, 7).topics[0].error_code for request in in_sync]
        assert codes == [ErrorCode.INVALID_CONFIG, ErrorCode.NONE, ErrorCode.INVALID_CONFIG]
        [changed] = peer.ask(alter_configs(2, "sync2", ("min.insync.replicas", 0, "3")), 1).responses
        assert changed.error_code == ErrorCode.NONE
        replicas = [1, 2, 3], [2], [1, 4], [1, 1], []
        created = [
            peer.ask(create_topic(f"placed{n}", -1, -1, [(0, on)]), 7).topics[0] for n, on in enumerate(replicas)
        ]
        moved = [peer.ask(reassign("t", 0, on), 0).responses[0].partitions[0] for on in replicas]
    expected = [ErrorCode.NONE] * 2 + [ErrorCode.INVALID_REPLICA_ASSIGNMENT] * 3
    assert [answer.error_code for answer in created] == [answer.error_code for answer in moved] == expected
    servers[2].stop()
    wait_until(lambda: set(described(servers[0])[0]) == {1, 2}, "it has left")
    # One that leaves moves its own share alone.
    left = described(servers[0])[1]
    assert all(left[number] == leader for number, leader in leaders.items() if leader != 3)


class Group:
    """A consumer of a group and a producer, of librdkafka, at all servers."""

    def __init__(self, servers, protocol):
        addresses = ",".join(server.bootstrap for server in servers)
        self.producer, self.seen = Producer({"bootstrap.servers": addresses}), []
        self.consumer = Consumer({
            "bootstrap.servers": addresses, "group.id": "g", "auto.offset.reset": "earliest",
            "enable.auto.commit": False, "group.protocol": protocol,
        })  # fmt: skip
        self.consumer.subscribe(["t"])

    def write_and_read(self, *numbers):
        """Commits what it has read."""
        for number in numbers:
            self.producer.produce("t", b"%d" % number)
        assert self.producer.flush(PATIENCE) == 0
        wanted = len(self.seen) + len(numbers)

        def read():
            messages = self.consumer.consume(100, 0.2)
            self.seen += [int(message.value()) for message in messages if not message.error()]
            return len(self.seen) >= wanted

        wait_until(read, lambda: f"{wanted} records are read, not {len(self.seen)}")
        self.consumer.commit(asynchronous=False)

    def check(self, store, count):
        """Each record was read once, and what was read is committed."""
        self.consumer.close()
        assert sorted(self.seen) == list(range(count))
        assert sum(known.offset for known in store.groups["g"].committed().values()) == count


@pytest.mark.parametrize("kind", ["objects"], indirect=True)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_outlives_its_coordinator(servers, store, protocol):
    group = Group(servers, protocol)
    group.write_and_read(*range(100))
    # The first one coordinates; when it starts again with its id, it does so at once.
    servers[0].kill()
    servers[0].options = ("--node-id", "1")
    servers[0].start()
    group.write_and_read(*range(100, 200))
    group.check(store, 200)


@pytest.mark.parametrize("kind", SLOW_OVER_OBJECTS, indirect=True)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_another_server_coordinates_in_its_place(servers, store, protocol):
    group = Group(servers, protocol)
    group.write_and_read(*range(100))
    servers[0].kill()
    group.write_and_read(*range(100, 200))
    group.check(store, 200)


@pytest.mark.slow
def test_processes_of_one_command(store, tmp_path):
    server = Server(store.path, tmp_path, "--processes", "3", "--node-id", "5")
    first = free_ports_in_a_row(3)
    server.port, server.bootstrap = first, f"{server.host}:{first}"
    server.start()
    try:
        addresses = {5 + number: (server.host, first + number) for number in range(3)}
        wait_until(lambda: described(server)[0] == addresses, "all servers know of each other")
        second = next(child for child in children_of(server.process.pid) if "6" in arguments_of(child))
        os.kill(second, signal.SIGKILL)
        server.wait_for("has ended with -9: starting it again")
        wait_until(lambda: arguments_of(second) == [], "it is gone")
        wait_until(lambda: len(children_of(server.process.pid)) == 3, "it is there again")
        # They end with it, also if it is killed.
        left = children_of(server.process.pid)
        server.kill()
        wait_until(lambda: not any(map(arguments_of, left)), "all have ended")
    finally:
        server.kill()


def children_of(pid):
    """The processes that one has started."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]


def arguments_of(pid):
    """The command line of a process; none: it has ended."""
    with contextlib.suppress(OSError):
        return [word.decode() for word in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") if word]
    return []


def visible(store):
    """The committed values of topic t, as Spark and Python see them."""
    found = (rows for number in range(8) for rows in store.read("t", number, isolation_level="read_committed"))
    return sorted(int(value.as_py()) for rows in found for value in rows["value"])


@pytest.mark.parametrize(
    ("kind", "level"),
    [
        pytest.param("objects", "read_committed", marks=pytest.mark.slow), ("objects", "read_uncommitted"),
        ("folder", "read_committed"),
    ],
    indirect=["kind"],
)  # fmt: skip
def test_a_transaction_is_visible_as_a_whole(servers, store, level):
    addresses = ",".join(server.bootstrap for server in servers)
    producer = Producer({"bootstrap.servers": addresses, "transactional.id": "tx"})
    producer.init_transactions(PATIENCE)
    consumer = Consumer({
        "bootstrap.servers": addresses, "group.id": "g", "isolation.level": level, "auto.offset.reset": "earliest",
    })  # fmt: skip
    consumer.assign([TopicPartition("t", number, 0) for number in range(8)])
    seen = []
    for turn, commits in enumerate((True, False, True)):
        producer.begin_transaction()
        for number in range(100 * turn, 100 * turn + 100):
            producer.produce("t", b"%d" % number)
        assert producer.flush(PATIENCE) == 0
        offsets = [TopicPartition("t", 0, 10 * turn + 10)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), PATIENCE)
        # Nothing of it counts before; over objects in no isolation level.
        assert visible(store) == sorted(seen)
        assert [known.offset for known in store.groups["g"].committed().values()] == [10][: len(seen)]
        if commits:
            producer.commit_transaction(PATIENCE)
            seen += range(100 * turn, 100 * turn + 100)
        else:
            producer.abort_transaction(PATIENCE)
    assert visible(store) == seen
    assert {at.partition: known.offset for at, known in store.groups["g"].committed().items()} == {0: 30}
    read = []

    def has_read():
        read.extend(int(message.value()) for message in consumer.consume(300, 0.2) if not message.error())
        return len(read) >= 200

    wait_until(has_read, lambda: f"200 records are read, not {len(read)}")
    assert sorted(read) == seen
    consumer.close()


@pytest.mark.parametrize("kind", ["objects"], indirect=True)
def test_a_later_producer_fences_those_before_it(servers, store):
    def new():
        producer = Producer({"bootstrap.servers": servers[0].bootstrap, "transactional.id": "tx"})
        producer.init_transactions(PATIENCE)
        producer.begin_transaction()
        producer.produce("t", b"1")
        producer.flush(PATIENCE)
        return producer

    first, second = new(), new()
    with pytest.raises(KafkaException) as failed:
        first.commit_transaction(PATIENCE)
    assert failed.value.args[0].code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
    second.commit_transaction(PATIENCE)
    assert visible(store) == [1]


def ended(producer):
    """Commits the producer's transaction, as often as it asks for it; whether it is committed, and not aborted."""
    end = producer.commit_transaction
    while True:
        try:
            end(PATIENCE)
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                end = producer.abort_transaction
            elif not error.args[0].retriable():
                raise
        else:
            return end == producer.commit_transaction


@pytest.mark.parametrize("kind", ["folder"], indirect=True)
def test_producers_over_kills(servers, store):
    """Over objects the campaigns kill servers. The first server coordinates at first, and then any."""
    addresses = {"bootstrap.servers": ",".join(server.bootstrap for server in servers), "log_level": 0}
    transactional, committed = Producer({**addresses, "transactional.id": "tx"}), []
    idempotent, values = Producer({**addresses, "enable.idempotence": True}), list(range(1000, 1400))
    transactional.init_transactions(PATIENCE)
    for turn, victim in enumerate((0, 1, 2, 0)):
        transactional.begin_transaction()
        numbers = range(100 * turn, 100 * turn + 100)
        for number in numbers:
            transactional.produce("t", b"%d" % number)
            idempotent.produce("t", b"%d" % (1000 + number))
            if number % 100 == 50:
                assert transactional.flush(PATIENCE) == 0
                servers[victim].kill()
        assert idempotent.flush(PATIENCE) == 0
        servers[victim].start()
        committed += numbers if ended(transactional) else ()
    assert visible(store) == [*committed, *values]
