"""Requests with damaged bytes on live connections: each is answered or closes its connection, and the server continues.

PYLOG_DAMAGED_REQUESTS says how many; docs/internals/testing.md has what was run.
"""

import random

import pytest
from server_requests import DAMAGED, EARLIEST, batch, damaged_frame, fetch_request, produce, produce_request

from pyspark_log.kafka import messages as m
from tests import requests as r
from tests.server_tools import Peer

# What a server may take more than before, in bytes, however many damaged requests it gets.
_ROOM = 60_000_000


def _requests(topic):
    """Requests of all kinds, with their versions; none waits for long, or deletes the topic."""
    join = m.JoinGroupRequest("damaged", 6000, 6000, "", None, "consumer", [("range", b"x" * 20)])
    return [
        (m.ApiVersionsRequest("tests", "1"), 3),
        (r.metadata(topic), 12),
        (produce_request(topic, batch(b"value" * 20)), 9),
        (fetch_request(topic, 0, wait=1), 12),
        (r.list_offsets(topic, EARLIEST), 7),
        (m.FindCoordinatorRequest("damaged"), 3),
        (join, 5),
        (m.HeartbeatRequest("damaged", 1, "m"), 4),
        (r.commit("damaged", topic, 1, metadata="note"), 8),
        (r.committed("damaged", None), 7),
        (m.DescribeGroupsRequest(["damaged"]), 5),
        (r.describe_configs(2, topic), 4),
        (m.InitProducerIdRequest(None, 1), 4),
    ]


@pytest.mark.parametrize("count", DAMAGED)
def test_the_server_continues(server, peer, store, topic, count):
    chance = random.Random(29)
    produce(peer, topic, batch(b"first"))
    requests = _requests(topic)
    before = server.resident()
    other, sent, answered = None, 0, 0
    # On a slow machine few are answered in time.
    while sent < count or answered <= count / 10:
        sent += 1
        if other is None:
            other = Peer(server)
            other.socket.settimeout(0.02)
        request, version = chance.choice(requests)
        frame = other.encoded(request, version)
        # Not into another API, which might delete what the test needs.
        damaged = bytearray(damaged_frame(frame, chance))
        damaged[4:6] = frame[4:6]
        try:
            other.socket.sendall(damaged)
            size = int.from_bytes(other.receive(4), "big")
            other.receive(size)
            answered += 1
        except (TimeoutError, ConnectionError):
            # Closed; or it waits for the rest of a request that said that it is longer, or for other members.
            other.close()
            other = None
    if other is not None:
        other.close()
    # A connection of its own: one without a request for ten minutes is closed.
    with Peer(server) as last:
        assert produce(last, topic, batch(b"last")).error_code == 0
    assert server.resident() - before < _ROOM
    rows = [row["value"] for rows in store.read(topic, 0) for row in rows.to_pylist()]
    assert (rows[0], rows[-1]) == (b"first", b"last")
