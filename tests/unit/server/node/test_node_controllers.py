"""What a node sends to the controllers in a client's name."""

import threading
from types import SimpleNamespace

import pytest

from pyspark_log.kafka import decode_request
from pyspark_log.kafka import messages as m
from pyspark_log.kafka.errors import LoginError
from pyspark_log.server.handlers.node.elsewhere import forward
from pyspark_log.server.network import ClosedByServerError, Loop, Workers
from pyspark_log.server.node.controllers import envelope

# In seconds.
PATIENCE = 30


def test_an_envelope():
    """A principal is longer than 126 bytes where it is the subject of a certificate."""
    name = "CN=anna,O=" + "x" * 240
    request = m.DeleteTopicsRequest(topic_names=("t",), timeout_ms=1000)
    made = envelope(request, 5, "app", f"User:{name}", "10.0.0.1")
    # DefaultPrincipalData: a version, two texts with their lengths and one more (a varint), no token, no tags.
    assert made.request_principal == b"\0\0" + b"\5User" + b"\xfb\1" + name.encode() + b"\0\0"
    assert made.client_host_address == b"\x0a\0\0\1"
    header, decoded = decode_request(made.request_data)
    assert (header.request_api_version, header.client_id, decoded) == (5, "app", request)


def test_controllers_that_do_not_answer_hold_back_nothing_else():
    """What waits for a disk has threads of its own, however much is to be forwarded."""
    loop = Loop()
    workers, asking, done = Workers(loop, 1), Workers(loop, 1), threading.Event()

    def silent(*_request):
        assert done.wait(PATIENCE), "the other work is held back"
        raise LoginError("they refuse it in the end")

    view = SimpleNamespace(node=SimpleNamespace(forward=silent, asking=asking))
    client = SimpleNamespace(principal="User:anna", host="127.0.0.1")
    call = SimpleNamespace(client=client, version=7, client_id="c")

    async def ask():
        with pytest.raises(ClosedByServerError, match="do not answer: they refuse it in the end"):
            await forward(view, call, m.CreateTopicsRequest())

    async def both():
        asked = loop.start(ask())
        await workers.run(done.set)
        await asked

    ended = loop.start(both())
    ended.then(loop.stop)
    loop.run()
    workers.close()
    asking.close()
    loop.close()
    assert ended.error is None
