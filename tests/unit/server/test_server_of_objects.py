"""A server as a process over a store in an object store."""

import pytest
from server_requests import batch, fetch, fetch_request, list_offset, produce, values

from pyspark_log import Store, TopicPartition
from pyspark_log.kafka import messages as m
from pyspark_log.kafka.error_codes import ErrorCode
from tests.server_tools import Peer, Server, served
from tests.store_tools import rows


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


def test_writes_are_refused(server, store):
    with Peer(server) as peer:
        assert produce(peer, "t", batch(b"x")).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        found = peer.ask(m.FindCoordinatorRequest(key="g"), 2)
        assert found.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert store.latest_offset("t", 0) == 3
    assert "a server over an object store only reads" in server.output()


def test_two_beside_each_other(server, store, tmp_path):
    (tmp_path / "other").mkdir()
    with served(store.path, tmp_path / "other") as other, Peer(server) as first, Peer(other) as second:
        assert values(fetch(first, "t", 0)) == values(fetch(second, "t", 0))


def test_users_have_no_place(store, tmp_path):
    server = Server(store.path, tmp_path, "--sasl-mechanisms", "SCRAM-SHA-512")
    with pytest.raises(RuntimeError, match="an object store keeps no users"):
        server.start()
