"""A server as a process over a store in an object store."""

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Place
from server_requests import batch, fetch, fetch_request, list_offset, produce, values

from pyspark_log import Store, TopicPartition
from pyspark_log.kafka import messages as m
from pyspark_log.kafka.error_codes import ErrorCode
from tests import requests as r
from tests import store_tools
from tests.requests import NO_ID
from tests.server_tools import Peer, Server, served
from tests.store_tools import rows
from tests.waiting import wait_until


@pytest.fixture
def store(object_url, object_server):
    store = Store.create(object_url)
    store.create_topic("t", 2)
    store.append("t", rows(b"a", b"b", b"c"), partition=0)
    store.groups["g"].commit({TopicPartition("t", 0): 2})
    return store


@pytest.fixture
def server(store, tmp_path):
    with served(store.path, tmp_path) as server:
        yield server


def test_reads(server, store):
    with Peer(server) as peer:
        [topic] = peer.ask(m.MetadataRequest(topics=None), 12).topics
        assert (topic.name, [part.partition_index for part in topic.partitions]) == ("t", [0, 1])
        assert values(fetch(peer, "t", 1)) == {0: b"a", 1: b"b", 2: b"c"}
        assert fetch(peer, "t", 4).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert [list_offset(peer, "t", time).offset for time in (-2, -1, -3, 0)] == [0, 3, 0, 0]
        # What comes while it waits, and without a request for it.
        peer.send(fetch_request("t", 3, wait=60_000), 12)
        store.append("t", rows(b"d"), partition=0)
        [[answer]] = [topic.partitions for topic in peer.response().responses]
        assert values(answer) == {3: b"d"}


def test_writes(server, store):
    with Peer(server) as peer:
        answer = produce(peer, "t", batch(b"x"))
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 3)
        assert values(fetch(peer, "t", 3)) == {3: b"x"}
        assert peer.ask(m.InitProducerIdRequest(None, 0), 4).error_code == ErrorCode.NONE
    assert store.latest_offset("t", 0) == 4


def test_a_client_that_knows_more_than_the_server(server, store):
    """It has read from another server before, or has found a committed offset, and this one looks once a second."""
    with Peer(server) as peer:
        for end in (4, 5, 6):
            store.append("t", rows(b"%d" % end), partition=0)
            answer = fetch(peer, "t", end)
            assert (answer.error_code, answer.high_watermark) == (ErrorCode.NONE, end)
        # An end that another server has answered never goes back.
        store.append("t", rows(b"6"), partition=0)
        assert list_offset(peer, "t", -1).offset == 7
        store.append("t", rows(b"7"), partition=0)
        [[part]] = [topic.partitions for topic in peer.ask(r.end_of_epoch("t", 0), 4).topics]
        assert (part.error_code, part.end_offset) == (ErrorCode.NONE, 8)


def test_topics_are_made_and_deleted(server, store):
    with Peer(server) as peer:
        [answer] = peer.ask(r.create_topic("new", 3), 5).topics
        assert answer.error_code == ErrorCode.NONE
        assert produce(peer, "new", batch(b"x")).base_offset == 0
        assert store.describe_topic("new").partitions == 3
        # As a client that may create what it writes to.
        [made] = peer.ask(m.MetadataRequest([m.MetadataRequest.MetadataRequestTopic(NO_ID, "made")]), 12).topics
        assert (made.error_code, made.name) == (ErrorCode.NONE, "made")
        peer.ask(m.DeleteTopicsRequest(topic_names=["new"]), 4)
        assert produce(peer, "new", batch(b"x")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert store.topics() == ["made", "t"]


def test_topics_that_others_have_just_created(server, store):
    """Clients may know of them from another server; this one looks once a second by itself."""
    with Peer(server) as peer:
        begun = peer.ask(m.InitProducerIdRequest("x", 60_000), 4)
        producer = begun.producer_id, begun.producer_epoch

        def of_partition(request, version):
            return peer.ask(request, version).topics[0].partitions[0].error_code

        def add_to_transaction(name):
            answer = peer.ask(r.add_partitions("x", producer, {name: [0]}), 3)
            return answer.results_by_topic_v3_and_below[0].results_by_partition[0]

        for number, request in enumerate((
            lambda name: peer.ask(r.metadata(name), 12).topics[0].error_code,
            lambda name: fetch(peer, name, 0).error_code,
            lambda name: list_offset(peer, name, -1).error_code,
            lambda name: peer.ask(r.end_of_epoch(name, 0), 4).topics[0].partitions[0].error_code,
            lambda name: of_partition(r.commit("g", name, 0), 9),
            lambda name: of_partition(r.commit_in_transaction("x", "g", producer, name, 0), 5),
            lambda name: add_to_transaction(name).partition_error_code,
            lambda name: peer.ask(r.reassign(name, 0, [1]), 0).responses[0].partitions[0].error_code,
        )):  # fmt: skip
            store.create_topic(f"new{number}", 1)
            assert request(f"new{number}") == ErrorCode.NONE
        assert fetch(peer, "none", 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_idempotent_producer_at_two_servers(server, store, tmp_path):
    """Each record once, in order, while the servers are killed in turn."""
    (tmp_path / "other").mkdir()
    with served(store.path, tmp_path / "other") as other:
        addresses = f"{server.bootstrap},{other.bootstrap}"
        producer = Producer({"bootstrap.servers": addresses, "enable.idempotence": True, "linger.ms": 1})
        outcomes = []
        for number in range(600):
            producer.produce("t", b"%d" % number, partition=1, callback=lambda error, _: outcomes.append(error))
            producer.poll(0)
            if number % 100 == 50:
                producer.flush(0.05)
                again = (server, other)[number // 100 % 2]
                again.kill()
                again.start()
        assert producer.flush(120) == 0
    assert outcomes == [None] * 600
    assert store_tools.values(store, 1) == [b"%d" % number for number in range(600)]


def test_racks(store, tmp_path):
    """Clients are sent to a server of their rack: by their client.id, and consumers by client.rack (KIP-392)."""
    (tmp_path / "other").mkdir()
    with (
        served(store.path, tmp_path, "--rack", "a") as server,
        served(store.path, tmp_path / "other", "--rack", "b"),
        Peer(server) as peer,
    ):
        wait_until(lambda: len(peer.ask(r.metadata("t"), 12).brokers) == 2, "they know of each other")
        assert {broker.node_id: broker.rack for broker in peer.ask(r.metadata("t"), 12).brokers} == {1: "a", 2: "b"}
        described = peer.ask(m.DescribeClusterRequest(), 0).brokers
        assert {broker.broker_id: broker.rack for broker in described} == {1: "a", 2: "b"}
        for rack, node_id in ("a", 1), ("b", 2):
            peer.client_id = f"orders,rack={rack}"
            [topic] = peer.ask(r.metadata("t"), 12).topics
            assert [part.leader_id for part in topic.partitions] == [node_id] * 2
        for session in (-1, 0):
            for rack, elsewhere, count in ("b", 2, 0), ("a", -1, 3), ("c", -1, 3):
                request = fetch_request("t", 0)._replace(rack_id=rack, session_epoch=session)
                [[answer]] = [topic.partitions for topic in peer.ask(request, 12).responses]
                assert (answer.error_code, answer.preferred_read_replica) == (ErrorCode.NONE, elsewhere)
                assert len(values(answer)) == count
        # librdkafka goes there, and stays.
        consumer = Consumer({
            "bootstrap.servers": server.bootstrap, "group.id": "racks", "auto.offset.reset": "earliest",
            "client.rack": "b",
        })  # fmt: skip
        consumer.assign([Place("t", number, 0) for number in (0, 1)])
        found = []

        def read():
            found.extend(message.value() for message in consumer.consume(10, 0.2) if not message.error())
            return len(found) == 3

        wait_until(read, "all records are read")
        consumer.close()
        assert found == [b"a", b"b", b"c"]


def test_a_folder_has_no_racks(tmp_path):
    Store.create(tmp_path / "store").close()
    with pytest.raises(RuntimeError, match="--rack is for nodes and stores in object stores"):
        Server(tmp_path / "store", tmp_path, "--rack", "a").start()


def test_two_beside_each_other(server, store, tmp_path):
    (tmp_path / "other").mkdir()
    with served(store.path, tmp_path / "other") as other, Peer(server) as first, Peer(other) as second:
        assert values(fetch(first, "t", 0)) == values(fetch(second, "t", 0))


def test_requests_of_a_connection_are_decided_together(store, tmp_path):
    """Each batch waits for others, and answers keep the order of the requests."""
    (tmp_path / "slow").mkdir()
    before = store.log.follow().number
    with served(store.path, tmp_path / "slow", "--linger", "1000") as slow, Peer(slow) as peer:
        for number in range(8):
            peer.send(r.produce("t", (number % 2, batch(b"%d" % number))), 9)
        peer.send(m.MetadataRequest(topics=None), 12)
        answers = [peer.response() for _ in range(8)]
        assert len(peer.response().topics) == 1
    bases = [part.base_offset for answer in answers for one in answer.responses for part in one.partition_responses]
    assert bases == [3, 0, 4, 1, 5, 2, 6, 3]
    assert store_tools.values(store, 0, start=3) == [b"0", b"2", b"4", b"6"]
    entries = [store.log.entry(number) for number in range(before + 1, store.log.follow().number + 1)]
    # If each had waited for the answer to the one before, there would be eight.
    assert len([entry for entry in entries if entry.additions]) < 8
