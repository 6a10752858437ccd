"""Several servers over one store in an object store: partitions shared, one of them coordinates, any may die."""

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from pyspark_log import Store
from tests.server_tools import Server
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
    for server in servers:
        wait_until(lambda server=server: described(server)[0] == addresses, "all servers know of each other")
    brokers, leaders = described(servers[0])
    assert all(described(server) == (brokers, leaders) for server in servers)
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
