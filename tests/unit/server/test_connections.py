"""Clients that behave badly, and many of them, with TLS and without: the others are served meanwhile."""

import contextlib
import os
import socket
import ssl
import struct

import pyarrow as pa
import pytest
from server_requests import LATEST, batch, fetch, fetch_request, list_offset, produce, produce_request, values

from pyspark_log.kafka import messages as m
from tests import requests as r
from tests.security_tools import TlsPeer, name, tls_options
from tests.server_tools import PATIENCE, Peer, served, served_anew

_ASK = m.ApiVersionsRequest("tests", "1.0")


@pytest.fixture(scope="module", params=["plain", "TLS"])
def server(tmp_path_factory, authority, request):
    """A server; its `connect` makes a client."""
    options = tls_options(*authority.issue("server", name(CN="server"))) if request.param == "TLS" else ()
    with served_anew(tmp_path_factory.mktemp("server"), *options) as running:
        running.connect = lambda: TlsPeer(running, authority.context()) if options else Peer(running)
        yield running


@pytest.fixture
def peer(server):
    with server.connect() as peer:
        yield peer


def _closed_after(server, data):
    with server.connect() as other:
        other.socket.sendall(data)
        assert other.is_closed_by_server()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "the client speaks HTTP,"),
        (bytes.fromhex("16030100f8010000f4"), "the client speaks TLS,"),
        (struct.pack(">ihh", -5, 18, 0), "a request of -5 bytes"),
        (struct.pack(">ihh", 4, 18, 0), "a request of 4 bytes"),
        (struct.pack(">ihh", 1 << 30, 18, 0), "a request of 1073741824 bytes"),
        (struct.pack(">ihh", 20 << 20, 18, 0), "only produce requests may have more"),
        (struct.pack(">ihhi", 8, 0, 9, 1), "no request"),
        (struct.pack(">ihhih", 10, 3, 1, 1, 5), "no request"),
        (struct.pack(">ihhih", 10, 999, 1, 1, -1), "not served: an API with the key 999"),
    ],
)
def test_what_is_no_request_closes_the_connection(server, peer, data, said):
    _closed_after(server, data)
    if said != "no request":
        server.wait_for(said)
    assert peer.ask(_ASK, 3).error_code == 0


def test_a_request_byte_by_byte(peer):
    for byte in peer.encoded(_ASK, 3):
        peer.socket.sendall(bytes([byte]))
    assert peer.response().error_code == 0


def test_bytes_after_a_request_are_ignored(peer):
    """librdkafka 2.16 sends some, and Kafka takes no notice either."""
    frame = peer.encoded(_ASK, 3) + b"xyz"
    peer.socket.sendall(struct.pack(">i", len(frame) - 4) + frame[4:])
    assert peer.response().error_code == 0


def test_many_requests_at_once_are_answered_in_their_order(peer, store, topic):
    """Also those that take another way: a wait for a disk, or for records."""
    requests = [
        (_ASK, 3),
        (r.metadata(topic), 9),
        (produce_request(topic, batch(b"a"), acks=1), 9),
        (fetch_request(topic, 0, wait=1, least=1 << 20), 12),
    ] * 25
    peer.socket.sendall(b"".join(peer.encoded(request, version) for request, version in requests))
    # `response` checks the correlation ids, of which the next must come next.
    kinds = []
    for number in range(1, len(requests) + 1):
        assert min(peer._versions) == number
        kinds.append(type(peer.response()).__name__)
    assert kinds == ["ApiVersionsResponse", "MetadataResponse", "ProduceResponse", "FetchResponse"] * 25
    assert store.latest_offset(topic, 0) == 25


def test_a_large_request_after_a_small_one_in_one_piece(peer, store, topic):
    store.alter_configs(topic, {"max.message.bytes": "9000000"})
    large = peer.encoded(produce_request(topic, batch(b"x" * 3_000_000)), 9)
    peer.socket.sendall(peer.encoded(_ASK, 3) + large + peer.encoded(_ASK, 3))
    names = [type(peer.response()).__name__ for _ in range(3)]
    assert names == ["ApiVersionsResponse", "ProduceResponse", "ApiVersionsResponse"]
    assert store.latest_offset(topic, 0) == 1


def test_a_client_that_does_not_read_delays_no_other(server, peer, store, topic):
    for _ in range(8):
        store.append(topic, pa.record_batch({"value": [os.urandom(1_000_000)]}))
    before = server.resident()
    expected = bytes(fetch(peer, topic, 0, max_bytes=1 << 30, total=1 << 30).records)
    with server.connect() as other:
        ask = other.encoded(fetch_request(topic, 0, max_bytes=1 << 30, total=1 << 30), 12)
        other.socket.setblocking(False)
        asked = 0
        with contextlib.suppress(BlockingIOError, ssl.SSLWantWriteError):
            while True:  # until the server does not read from it either
                other.socket.send(ask)
                asked += 1
        # It holds the file of one response, however many were asked for.
        assert 1 <= server.open_files(f"/data/{topic}-0/") <= 2
        assert produce(peer, topic, batch(b"a")).error_code == 0
        assert list_offset(peer, topic, LATEST).offset == 9
        assert server.resident() - before < 50_000_000
        # When it reads, it gets what it has asked for.
        other.socket.settimeout(PATIENCE)
        number = int.from_bytes(ask[8:12], "big")
        for _ in range(3):
            other._versions[number] = (1, 12)
            [[answer]] = [one.partitions for one in other.response().responses]
            assert bytes(answer.records).startswith(expected)
    assert asked > 3


def test_a_client_that_leaves_in_the_middle_of_an_answer(server, peer, store, topic):
    for _ in range(8):
        store.append(topic, pa.record_batch({"value": [b"x" * 1_000_000]}))
    with server.connect() as other:
        other.send(fetch_request(topic, 0, max_bytes=1 << 30, total=1 << 30), 12)
        other.receive(1000)
        other.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert list(values(fetch(peer, topic, 7))) == [7]


def test_a_client_that_leaves_in_the_middle_of_a_request(server, peer, store, topic):
    with server.connect() as other:
        other.socket.sendall(other.encoded(produce_request(topic, batch(b"x" * 500_000)), 9)[:-1])
    assert produce(peer, topic, batch(b"a")).base_offset == 0


def test_hundreds_of_idle_connections(server, peer):
    others = [server.connect() for _ in range(500)]
    try:
        assert peer.ask(_ASK, 3).error_code == 0
        assert others[-1].ask(_ASK, 3).error_code == 0
    finally:
        for other in others:
            other.close()


def test_connections_by_address_are_bounded(tmp_path):
    with served(tmp_path / "store", tmp_path, "--max-connections-per-ip", "3") as server:
        peers = [Peer(server) for _ in range(3)]
        assert [peer.ask(_ASK, 3).error_code for peer in peers] == [0, 0, 0]
        with Peer(server) as other:
            assert other.is_closed_by_server()
        server.wait_for("there are as many as max.connections.per.ip (3) allows")
        peers.pop().close()
        # The server learns of that in its own time.
        while True:
            with Peer(server) as other:
                other.send(_ASK, 3)
                if not other.is_closed_by_server():
                    break
        for peer in peers:
            peer.close()
