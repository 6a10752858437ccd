"""Several servers over one store in an object store: partitions shared, one of them coordinates, any may die."""

import contextlib
import os
import signal
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from pyspark_log import Store
from tests.ports import free_ports_in_a_row
from tests.server_tools import Server
from tests.store_tools import all_values
from tests.waiting import PATIENCE, wait_until


@pytest.fixture
def store(object_url, object_server):
    store = Store.create(object_url)
    store.create_topic("t", 8)
    return store


@pytest.fixture
def servers(store, tmp_path):
    """Three servers, with ids from 1 on."""
    started = []
    for number in (1, 2, 3):
        (tmp_path / str(number)).mkdir()
        started.append(Server(store.path, tmp_path / str(number)).start())
    yield started
    for server in started:
        server.kill()


def described(server):
    cluster = AdminClient({"bootstrap.servers": server.bootstrap}).list_topics("t", 30)
    leaders = {number: part.leader for number, part in cluster.topics["t"].partitions.items()}
    return {node_id: (one.host, one.port) for node_id, one in cluster.brokers.items()}, leaders


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


@pytest.mark.slow
def test_another_server_coordinates_in_its_place(servers, store):
    group = Group(servers, "classic")
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
    folder = Server(tmp_path / "store", tmp_path, "--processes", "2")
    with pytest.raises(RuntimeError, match="that one is in a folder"):
        folder.start()


def children_of(pid):
    """The processes that one has started."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]


def arguments_of(pid):
    """The command line of a process; none: it has ended."""
    with contextlib.suppress(OSError):
        return [word.decode() for word in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") if word]
    return []


def visible(store, topic="t"):
    """The values of a topic, as Spark and Python see them."""
    return sorted(int(value) for value in all_values(store, topic))


@pytest.mark.parametrize("level", [pytest.param("read_committed", marks=pytest.mark.slow), "read_uncommitted"])
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
        # Nothing of it is there before, in no isolation level.
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
